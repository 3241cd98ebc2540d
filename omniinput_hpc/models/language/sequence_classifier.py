"""Classifiers of texts: any encoder that AutoModelForSequenceClassification loads from a folder.

The sites are between a fixed [CLS] and [SEP]. Every entry of the vocabulary is an allowed value,
[PAD] too (see ``space.allowed``), and there is no attention mask: each token counts.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification

from omniinput_hpc.config import Allowed
from omniinput_hpc.config import SequenceClassifier as Options
from omniinput_hpc.models.language import hf_folder, tokenizer
from omniinput_hpc.models.language.loading import load
from omniinput_hpc.models.language.trial import check_length


class SequenceClassifier:
    """A text classifier: see the module's docstring, and `models.protocol` for the methods."""

    def __init__(self, options: Options, device: str, allowed: Allowed = None) -> None:
        folder = hf_folder.resolve(options.path)
        self.lm = load(AutoModelForSequenceClassification, folder, options.dtype, device)
        hf_folder.check_class(options, int(self.lm.config.num_labels), folder)
        settings = self.lm.config.get_text_config()
        if settings.pad_token_id is None:
            # A decoder's head refuses batches without one; of embeddings it looks at none.
            settings.pad_token_id = 0
        self._options = options
        self.n_sites = options.length - 2
        self._table = self.lm.get_input_embeddings().weight  # [V, E]
        words = tokenizer.read(folder)
        self.space = hf_folder.space_of(options, folder, len(self._table), words, allowed)
        self.n_values = self.space.n_values
        tokens = self.space.to_ids(np.arange(self.n_values))
        self._token_ids = None if allowed is None else torch.from_numpy(tokens).to(device)
        first, last = hf_folder.fixed_ids(folder, len(self._table), words)
        check_length(self.lm, options.length, str(folder), (first, last))
        self._first = torch.tensor([first], device=device)
        self._last = torch.tensor([last], device=device)
        self._text = tokenizer.Text(words, tokens, [first], [last])

    @torch.no_grad()
    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of x, int64 [W, D]."""
        return self._z(self._embed(x))

    def output_and_gradient(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W] and dz/d one_hot(x), float32 [W, D, n_values]."""
        z, e, _ = self.output_and_factors(x)
        return z, e @ self.embedding.T

    @cached_property
    def embedding(self) -> torch.Tensor:
        """Float32 [n_values, E]."""
        ids = self._token_ids
        table: torch.Tensor = (self._table if ids is None else self._table[ids]).float()
        return table

    def output_and_factors(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, tuple[()]]:
        """Return z [W] and e, float32 [W, D, E]: there is no target part."""
        with torch.enable_grad():
            embedded = self._embed(x).requires_grad_()
            z = self._z(embedded)
            (e,) = torch.autograd.grad(z.sum(), embedded)
        return z.detach(), e[:, 1:-1].float(), ()

    def target_rows(self, rest: tuple[()], site: torch.Tensor) -> torch.Tensor:
        """Return zeros, float32 [W, n_values]."""
        return torch.zeros((len(site), self.n_values), device=site.device)

    def render(self, x: torch.Tensor) -> list[str]:
        """Return the text of each input with [CLS] and [SEP]."""
        return self._text.render(x.cpu().numpy())

    def _embed(self, x: torch.Tensor) -> torch.Tensor:
        n = len(x)
        x = x if self._token_ids is None else self._token_ids[x]
        tokens = torch.cat([self._first.expand(n, 1), x, self._last.expand(n, 1)], dim=1)
        embedded: torch.Tensor = self.lm.get_input_embeddings()(tokens)
        return embedded.detach()

    def _z(self, embedded: torch.Tensor) -> torch.Tensor:
        # No mask is a mask of ones, which transformers would look at, and so wait for the device
        logits = self.lm(inputs_embeds=embedded).logits.float()  # [W, C]
        target = self._options.target
        if self._options.output == "log-softmax":
            logits = logits.log_softmax(-1)
        elif self._options.output == "difference":
            logits = logits - logits.flip(1)
        z: torch.Tensor = self._options.sign * logits[:, target]
        return z


def build(options: Options, device: str, allowed: Allowed = None) -> SequenceClassifier:
    """Load a classifier of texts (see `models.table.build`)."""
    return SequenceClassifier(options, device, allowed)
