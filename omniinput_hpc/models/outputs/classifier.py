"""``classifier``: the logit that a text classifier gives to the text of an input.

The classifier's own tokenizer adds its special tokens, and cuts texts that are too long for the
classifier. In a batch, shorter texts are padded, and the padding is masked.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification

from omniinput_hpc.config import Config
from omniinput_hpc.config.output import Classifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import hf_folder, tokenizer
from omniinput_hpc.models.language.foreign_code import ForeignError, as_close, foreign_code
from omniinput_hpc.models.language.loading import load
from omniinput_hpc.models.language.trial import longest_within
from omniinput_hpc.models.outputs.checks import PATH, named_as
from omniinput_hpc.models.outputs.of_base import OfBase, texts_of
from omniinput_hpc.models.protocol import Model

log = logging.getLogger("omniinput_hpc")

MAX_TOKENS = 1024
"""The longest text in the classifier's tokens, if it takes more."""
TRIAL = ("a", "the end", "one two three four five six seven", "?")
"""Texts of several lengths: do they have the same outputs in a batch as alone?"""


class JudgedTexts(OfBase):
    """A model's inputs with a classifier's logit of their texts as output, float32."""

    def __init__(self, config: Config, base: Model, device: str) -> None:
        super().__init__(base)
        assert isinstance(config.output, Classifier)
        folder = hf_folder.resolve(config.output.path, PATH)
        self._texts, self._class = texts_of(config, base, PATH), getattr(config.output, "class")
        with named_as("output"):
            self._lm = load(AutoModelForSequenceClassification, folder, "float32", device)
        n_classes = int(self._lm.config.num_labels)
        if self._class >= n_classes:
            raise UserError(
                f"output.class = {self._class}: {folder} has {n_classes} classes, counted from 0"
            )
        self._tokenizer, self._device = tokenizer.of_transformers(folder), device
        self._longest = self._longest_text()
        log.info(
            "%s = %s: texts of more than %d tokens are cut to them", PATH, folder, self._longest
        )
        self._one_by_one = self._tokenizer.pad_token_id is None
        settings = self._lm.config.get_text_config()
        if settings.pad_token_id is None:  # a decoder's head looks for it to find the last token
            settings.pad_token_id = -1 if self._one_by_one else self._tokenizer.pad_token_id
        self._try_out(folder)

    @torch.no_grad()
    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of x, int64 [W, D]; NaN for texts without a token."""
        return self._judge(self._texts(x))

    def _judge(self, texts: list[str]) -> torch.Tensor:
        if self._one_by_one:
            return torch.cat([self._evaluate([text]) for text in texts])
        return self._evaluate(texts)

    def _evaluate(self, texts: list[str]) -> torch.Tensor:
        given: Any = self._tokenizer(
            texts,
            truncation=True,
            max_length=self._longest,
            padding=not self._one_by_one,
            padding_side="right",
            return_tensors="pt",
        )
        if not given["input_ids"].shape[1]:
            return torch.full((len(texts),), torch.nan, device=self._device)
        with foreign_code():
            logits: torch.Tensor = self._lm(**given.to(self._device)).logits  # [n, C]
        z, mask = logits[:, self._class].float(), given.get("attention_mask")
        return z if mask is None else z.masked_fill(~mask.any(dim=1), torch.nan)

    def _longest_text(self) -> int:
        """Return the number of tokens that the classifier takes at most, `MAX_TOKENS` or fewer."""
        settings = self._lm.config.get_text_config()
        stated = getattr(settings, "max_position_embeddings", None)
        limits = [MAX_TOKENS, self._tokenizer.model_max_length, stated]
        return longest_within(self._lm, int(min(n for n in limits if type(n) is int and n > 0)))

    @torch.no_grad()
    def _try_out(self, folder: Path) -> None:
        """Evaluate texts one by one from now on if in a batch they give other outputs."""
        no_padding, self._one_by_one = self._one_by_one, True
        try:
            alone = self._judge(list(TRIAL))
        except ForeignError as error:
            raise UserError(f"{PATH} = {folder}: cannot evaluate texts: {error}") from None
        if no_padding:
            return
        self._one_by_one = False
        try:
            why = "in a batch its outputs depend on the other texts"
            if as_close(self._judge(list(TRIAL)), alone, torch.float32):
                return
        except ForeignError as error:
            why = f"it does not accept every batch ({error})"
        self._one_by_one = True
        what = type(self._lm).__name__
        log.warning("%s: texts are evaluated one by one, which is slower: %s", what, why)


build = JudgedTexts
