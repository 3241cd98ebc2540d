"""Text classifiers and reward models that AutoModelForSequenceClassification loads from a folder.

The sites are between the tokens that the folder's tokenizer puts around a text, such as [CLS] and
[SEP], or those of ``model.prefix`` and ``model.suffix``. Every entry of the vocabulary is an
allowed value, including [PAD] (see ``model.tokens``), and no token is masked: each counts. The
model is given token ids, because some classifiers give another output for embeddings (RoBERTa finds
padding in the ids to number positions), or none.
"""

from __future__ import annotations

import logging
from functools import cached_property, partial
from typing import Any

import torch
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification

from omniinput_hpc.config import Allowed
from omniinput_hpc.config import SequenceClassifier as Options
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import class_output
from omniinput_hpc.models.language import hf_checks, hf_folder, openvino_engine
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
from omniinput_hpc.models.language.openvino_engine import Evaluate
from omniinput_hpc.models.language.packed import packed_bytes, packed_if_same
from omniinput_hpc.models.language.trial import check_length

log = logging.getLogger("omniinput_hpc")


class SequenceClassifier:
    """A text classifier: see the module's docstring, and `models.protocol` for the methods.

    Attributes
    ----------
    packed_bytes : memory of packed weights, besides the model's own
    """

    def __init__(self, options: Options, device: str, allowed: Allowed = None) -> None:
        folder = hf_folder.resolve(options.path)
        self.lm = load(AutoModelForSequenceClassification, folder, options.dtype, device)
        keys, n_classes = ("model.output", "model.target"), int(self.lm.config.num_labels)
        hf_checks.check_class(options.output, options.target, n_classes, keys, folder)
        settings = self.lm.config.get_text_config()
        if settings.pad_token_id is None:
            # A decoder's head refuses batches without a padding token. No token has this id, so
            # the head reads the last token, as for a single input.
            settings.pad_token_id = -1
        self._options, self._device = options, torch.device(device)
        n_vocab = len(self.lm.get_input_embeddings().weight)
        self._frame = FramedTokens(options, folder, n_vocab, device, allowed)
        self.space, self.n_sites = self._frame.space, self._frame.n_sites
        self.n_values = self.space.n_values
        check_length(self.lm, options.length, str(folder), self._frame.around)
        self._mask_needed = self._one_by_one = False
        self._special = special_tokens(self.lm, self._frame.words)
        where = f"model.path = {folder}"
        self._try_out(where)
        trial = [self._frame.tokens(x) for x in self._trial()]
        if options.engine == "openvino":
            network = openvino_engine.Network(self.lm, self._with_mask)
            program = openvino_engine.compiled(network, trial, device, where)
            self._fastest: Evaluate = program
            self.packed_bytes = program.n_bytes
        else:
            packed = packed_if_same(
                self.lm, lambda lm: [self._logits(x, partial(self._evaluate, lm)) for x in trial]
            )
            self._fastest = partial(self._evaluate, packed)
            self.packed_bytes = packed_bytes(packed)

    @torch.no_grad()
    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of x, int64 [W, D]."""
        return self._z(self._logits(self._frame.tokens(x), self._fastest))

    def output_and_gradient(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W] and dz/d one_hot(x), float32 [W, D, n_values]."""
        z, e, _ = self.output_and_factors(x)
        return z, e @ self.embedding.T

    @cached_property
    def without_gradient(self) -> str:
        """Why the model has no gradient; "" if it has one. Tried at the first access."""
        return gradient_problem(self, self._trial(), self._frame.tokens)

    @cached_property
    def embedding(self) -> torch.Tensor:
        """Float32 [n_values, E]."""
        return table_of(self.lm, self._frame.every_id)

    def output_and_factors(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, tuple[()]]:
        """Return z [W] and e, float32 [W, D, E]; there is no target part."""
        with torch.enable_grad(), EmbeddingLeaf(self.lm) as embedded:
            tokens = self._frame.tokens(x)
            z = self._z(self._logits(tokens, partial(self._evaluate, self.lm)))
            e = embedded.gradient(z.sum())
        return z.detach(), e[:, self._frame.before :][:, : self.n_sites].float(), ()

    def target_rows(self, rest: tuple[()], site: torch.Tensor) -> torch.Tensor:
        """Return zeros, float32 [W, n_values]."""
        return torch.zeros((len(site), self.n_values), device=site.device)

    def render(self, x: torch.Tensor) -> list[str]:
        """Return the text of each input with the tokens around it."""
        return self._frame.text.render(x.cpu().numpy())

    def classes(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the class with the largest logit of each input x [n, D], int64 [n]."""
        return class_output.likeliest(
            lambda part: self._logits(self._frame.tokens(part), self._fastest), x
        )

    def _logits(self, tokens: torch.Tensor, evaluate: Evaluate) -> torch.Tensor:
        """Return the logits of all classes, float32 [W, C]."""
        if self._one_by_one:
            return torch.cat([evaluate(one[None]) for one in tokens])
        return evaluate(tokens)

    def _evaluate(self, lm: Any, tokens: torch.Tensor) -> torch.Tensor:
        # transformers checks whether a mask is all ones, which synchronizes
        mask: dict[str, Any] = {}
        if self._mask_needed:
            mask = {"attention_mask": torch.ones_like(tokens)}
        with foreign_code():
            logits: torch.Tensor = lm(input_ids=tokens, **mask).logits
        return logits.float()

    def _with_mask(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.lm(tokens, attention_mask=torch.ones_like(tokens)).logits
        return logits.float()

    def _z(self, logits: torch.Tensor) -> torch.Tensor:
        options = self._options
        return options.sign * class_output.of(logits, options.output, options.target)

    def _trial(self) -> list[torch.Tensor]:
        return trial_inputs(self._special, self._frame.every_id, self.n_sites)

    @torch.no_grad()
    def _try_out(self, where: str) -> None:
        """Find out how to evaluate the model, on inputs that together hold every special token.

        The reference is each input evaluated by itself, with a mask of ones. The mask is omitted,
        and whole batches are evaluated, if outputs stay the same. Raises `UserError` if it cannot
        evaluate an input.
        """
        self._mask_needed, why = True, ""
        evaluate = partial(self._evaluate, self.lm)
        trial = [self._frame.tokens(x) for x in self._trial()]
        try:
            alone = [torch.cat([evaluate(one[None]) for one in x]) for x in trial]
        except ForeignError as error:
            raise UserError(
                f"{where}: this {type(self.lm).__name__} cannot evaluate every input of "
                f"{self._options.length} tokens: {error}"
            ) from None
        try:
            together = [evaluate(x) for x in trial]
            same = (as_close(*two, self.lm.dtype) for two in zip(together, alone, strict=True))
            if not all(same):
                why = "in a batch its outputs depend on the other inputs"
        except ForeignError as error:
            why = f"it does not accept every batch ({error})"
        if why:
            self._one_by_one = True
            what = type(self.lm).__name__
            log.warning("%s: inputs are evaluated one by one, which is slower: %s", what, why)
        with_mask = [self._logits(x, evaluate) for x in trial]
        self._mask_needed = False
        try:
            without = [self._logits(x, evaluate) for x in trial]
            self._mask_needed = not all(map(torch.equal, without, with_mask))
        except ForeignError:
            self._mask_needed = True


def build(options: Options, device: str, allowed: Allowed = None) -> SequenceClassifier:
    """Load a text classifier (see `models.table.build`)."""
    return SequenceClassifier(options, device, allowed)
