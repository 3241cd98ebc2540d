"""Language models: any decoder that Hugging Face's AutoModelForCausalLM loads from a folder.

z is the mean negative log-likelihood, in nats, of tokens 1 to D - 1 given those before them; the
first token is not predicted (``predicted_from = 1``), as in Hugging Face's own loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.utils import logging as hf_logging

from omniinput_hpc.config import CausalLm
from omniinput_hpc.errors import UserError

TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model", "vocab.txt")


@dataclass
class Prefixes:
    """A batch of prefixes of one length, with their keys and values.

    Attributes
    ----------
    cache : of n prefixes
    log_p : float32 [n, n_values], log-probabilities of the next token
    """

    cache: DynamicCache
    log_p: torch.Tensor


class CausalLanguageModel:
    """See the module's docstring; `omniinput_hpc.models.Model` says what the methods are."""

    predicted_from = 1

    def __init__(self, options: CausalLm, device: str) -> None:
        hf_logging.set_verbosity_error()
        hf_logging.disable_progress_bar()
        try:
            self.lm = AutoModelForCausalLM.from_pretrained(
                options.path,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
            )
        except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise UserError(f"model.path = {options.path}: cannot be loaded: {first}") from None
        self.lm.eval().requires_grad_(False).to(device)
        self.device = torch.device(device)
        self.n_sites = options.length
        self.n_values = int(self.lm.get_output_embeddings().weight.shape[0])
        self._path = Path(options.path)
        # Without its files transformers would make up an empty tokenizer.
        self._has_tokenizer = any((self._path / name).is_file() for name in TOKENIZER_FILES)
        self._tokenizer: Any = None

    @torch.no_grad()
    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean NLL, float32 [W], of x, int64 [W, D]."""
        # A decoder's last position predicts what is not in x: it is never evaluated.
        logits = self.lm(input_ids=x[:, :-1], use_cache=False).logits.float()  # [W, D-1, V]
        log_norm = logits.logsumexp(dim=-1)  # [W, D-1]
        chosen = logits.gather(2, x[:, 1:, None]).squeeze(2)  # [W, D-1]
        z: torch.Tensor = (log_norm - chosen).mean(dim=1)
        return z

    @torch.no_grad()
    def conditional_logits(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W] and the log-probabilities of every value at every site [W, D, V].

        Site 0 is not predicted; its row is zero.
        """
        log_p = self.lm(input_ids=x[:, :-1], use_cache=False).logits.float().log_softmax(-1)
        z = -log_p.gather(2, x[:, 1:, None]).squeeze(2).mean(dim=1)
        return z, torch.cat([torch.zeros_like(log_p[:, :1]), log_p], dim=1)

    @torch.no_grad()
    def begin(self, prefix: torch.Tensor) -> Prefixes:
        """Evaluate prefixes, int64 [n, t], keeping their keys and values."""
        cache = DynamicCache(config=self.lm.config)
        return self._advance(cache, prefix)

    @torch.no_grad()
    def extend(self, prefixes: Prefixes, values: torch.Tensor) -> Prefixes:
        """Append one token, int64 [n], to each prefix; `prefixes` is used up."""
        return self._advance(prefixes.cache, values[:, None])

    @torch.no_grad()
    def branch(self, prefixes: Prefixes) -> Prefixes:
        """Append every value to each prefix: n * n_values prefixes, the value running fastest."""
        cache = DynamicCache(config=self.lm.config)
        for index, layer in enumerate(prefixes.cache.layers):
            kept: Any = layer
            keys, values = (t.repeat_interleave(self.n_values, 0) for t in (kept.keys, kept.values))
            cache.update(keys, values, index)
        n = prefixes.log_p.shape[0]
        return self._advance(
            cache, torch.arange(self.n_values, device=self.device).repeat(n)[:, None]
        )

    def _advance(self, cache: DynamicCache, tokens: torch.Tensor) -> Prefixes:
        logits = self.lm(input_ids=tokens, past_key_values=cache, use_cache=True).logits[:, -1]
        return Prefixes(cache, logits.float().log_softmax(-1))

    def render(self, x: torch.Tensor) -> list[str]:
        """Return the text of each input; the token ids where the folder has no tokenizer."""
        if self._tokenizer is None and self._has_tokenizer:
            self._tokenizer = AutoTokenizer.from_pretrained(
                self._path, local_files_only=True, trust_remote_code=False
            )
        if self._tokenizer is None:
            return [" ".join(map(str, row)) for row in x.tolist()]
        return [self._tokenizer.decode(row) for row in x.tolist()]


def build(options: CausalLm, device: str) -> CausalLanguageModel:
    """Load a language model (see `omniinput_hpc.models.build`)."""
    return CausalLanguageModel(options, device)
