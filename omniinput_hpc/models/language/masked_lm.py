"""Masked language models (BERT, ESM-2, ...): z is the mean pseudo-loss of an input's tokens.

Each token is predicted from all others: its site is masked, and the model gives the probability of
what stood there (pseudo-log-likelihood; Salazar, Liang, Nguyen & Kirchhoff 2020). One evaluation of
an input is therefore one of the network for each predicted site. Probabilities are those among all
tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from transformers import AutoModelForMaskedLM

from omniinput_hpc.config import Allowed
from omniinput_hpc.config import MaskedLm as Options
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import hf_folder, tokenizer
from omniinput_hpc.models.language.embedding_leaf import (
    EmbeddingLeaf,
    gradient_problem,
    table_of,
)
from omniinput_hpc.models.language.foreign_code import (
    ForeignError,
    as_close,
    foreign_code,
    special_tokens,
    trial_inputs,
)
from omniinput_hpc.models.language.framed import FramedTokens
from omniinput_hpc.models.language.loading import load
from omniinput_hpc.models.language.packed import packed_bytes, packed_if_same
from omniinput_hpc.models.language.trial import check_length

AT_ONCE = 1 << 13
"""Tokens that the network evaluates together: more gain nothing, and take memory."""


class MaskedLm:
    """A masked language model: see the module's docstring, and `models.protocol` for the methods.

    Raises a `UserError` if the folder has no mask token, or if a predicted site does not exist.
    """

    def __init__(self, options: Options, device: str, allowed: Allowed = None) -> None:
        folder = hf_folder.resolve(options.path)
        self.lm = load(AutoModelForMaskedLM, folder, options.dtype, device)
        n_vocab = len(self.lm.get_input_embeddings().weight)
        self._frame = FramedTokens(options, folder, n_vocab, device, allowed)
        self.space, self.n_sites = self._frame.space, self._frame.n_sites
        self.n_values = self.space.n_values
        check_length(self.lm, options.length, str(folder), self._frame.around)
        words = tokenizer.require(self._frame.words, folder, 'model.kind = "masked-lm"')
        self._mask = words.id_of("mask_token", "[MASK]")
        hf_folder.check_tokens([self._mask], n_vocab, words, "model.path")
        sites = hf_folder.predicted_sites(options, self.n_sites)
        self._sites = torch.tensor(sites, device=device)
        special = special_tokens(self.lm, words)
        self._trial = trial_inputs(special, self._frame.every_id, self.n_sites)
        self._head_at_masks, self._packed = False, self.lm
        try:
            for x in self._trial:
                self.output(x)
            self._head_at_masks = self._may_head_be_at_masks()
        except ForeignError as error:
            raise UserError(
                f"model.path = {folder}: this {type(self.lm).__name__} cannot evaluate every input "
                f"of {options.length} tokens: {error}"
            ) from None
        self._packed = packed_if_same(
            self.lm, lambda lm: [self._output(lm, x) for x in self._trial]
        )

    @torch.no_grad()
    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of x, int64 [W, D]."""
        return self._output(self._packed, x)

    def _output(self, lm: Any, x: torch.Tensor) -> torch.Tensor:
        target = self._frame.ids_of(x[:, self._sites])
        z = torch.zeros(len(x), device=x.device)
        for tokens, at, w, s in self._masked(x):
            z.index_add_(0, w, -self._rows(lm, tokens, at).gather(1, target[w, s, None])[:, 0])
        return z / len(self._sites)

    def output_and_gradient(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W] and dz/d one_hot(x), float32 [W, D, n_values]."""
        z, e, (rows,) = self.output_and_factors(x)
        return z, (e @ self.embedding.T).add_(rows)

    @cached_property
    def without_gradient(self) -> str:
        """Why the model has no gradient; "" if it has one. Tried at the first access."""

        def embedded(x: torch.Tensor) -> torch.Tensor:
            return torch.cat([tokens for tokens, *_ in self._masked(x)])

        return gradient_problem(self, self._trial, embedded)

    @cached_property
    def embedding(self) -> torch.Tensor:
        """Float32 [n_values, E]."""
        return table_of(self.lm, self._frame.every_id)

    def output_and_factors(
        self, x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor]]:
        """Return z [W]; e, float32 [W, D, E]; and the target part t, float32 [W, D, n_values]."""
        n, target = len(self._sites), self._frame.ids_of(x[:, self._sites])
        z, e = torch.zeros(len(x), device=x.device), None
        t = torch.zeros((*x.shape, self.n_values), device=x.device)
        begin, end = self._frame.before, self._frame.before + self.n_sites
        for tokens, at, w, s in self._masked(x):
            with torch.enable_grad(), EmbeddingLeaf(self.lm) as embedded:
                log_p = self._rows(self.lm, tokens, at)  # [n, all tokens]
                loss = -log_p.gather(1, target[w, s, None])[:, 0] / n
                g = embedded.gradient(loss.sum()).float()
            g[torch.arange(len(g), device=x.device), at] = 0.0  # the mask stood there
            e = g.new_zeros((*x.shape, g.shape[2])) if e is None else e
            e.index_add_(0, w, g[:, begin:end])
            z.index_add_(0, w, loss.detach())
            t[w, self._sites[s]] = log_p.detach()[:, self._frame.every_id] / -n
        assert e is not None
        return z, e, (t,)

    def target_rows(self, rest: tuple[torch.Tensor], site: torch.Tensor) -> torch.Tensor:
        """Return t of one site per walker, float32 [W, n_values]."""
        return rest[0][torch.arange(len(site), device=site.device), site]

    def render(self, x: torch.Tensor) -> list[str]:
        """Return the text of each input with the tokens around it."""
        return self._frame.text.render(x.cpu().numpy())

    @property
    def packed_bytes(self) -> int:
        """Memory of packed weights, besides the model's own, in bytes."""
        return packed_bytes(self._packed)

    def _masked(self, x: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
        """Yield the inputs with one site masked, in batches of one number of tokens.

        A batch is its tokens [n, T], the masked positions [n], and the indices [n] of the input and
        of the site among those predicted.
        """
        tokens, n = self._frame.tokens(x), len(self._sites)
        every = torch.arange(len(x) * n, device=x.device)
        for w_s in every.split(max(1, AT_ONCE // tokens.shape[1])):
            w, s = w_s // n, w_s % n
            some, at = tokens[w], self._frame.before + self._sites[s]
            some[torch.arange(len(some), device=x.device), at] = self._mask
            yield some, at, w, s

    @torch.no_grad()
    def _may_head_be_at_masks(self) -> bool:
        """Return whether the network's head gives the same if it gets only the masked positions."""
        if self.lm.base_model is self.lm:
            return False
        for tokens, at, *_ in (batch for x in self._trial for batch in self._masked(x)):
            self._head_at_masks, whole = False, self._rows(self.lm, tokens, at)
            self._head_at_masks = True
            try:
                same = as_close(self._rows(self.lm, tokens, at), whole, self.lm.dtype)
            except ForeignError:
                same = False
            if not same:
                return False
        return True

    def _rows(self, lm: Any, tokens: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities of all tokens at one position of each text, float32 [n, V]."""
        row = torch.arange(len(tokens), device=tokens.device)

        def only_masks(layer: torch.nn.Module, inputs: Any, output: Any) -> Any:
            hidden = output[0][row, at][:, None]
            if isinstance(output, tuple):
                return (hidden, *output[1:])
            output["last_hidden_state"] = hidden
            return output

        hook = None
        if self._head_at_masks:
            hook = lm.base_model.register_forward_hook(only_masks)
        try:
            with foreign_code():
                logits = lm(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits
        finally:
            if hook is not None:
                hook.remove()
        logits = logits[:, 0] if self._head_at_masks else logits[row, at]
        log_p: torch.Tensor = logits.float().log_softmax(dim=1)
        return log_p


def build(options: Options, device: str, allowed: Allowed = None) -> MaskedLm:
    """Load a masked language model (see `models.table.build`)."""
    return MaskedLm(options, device, allowed)
