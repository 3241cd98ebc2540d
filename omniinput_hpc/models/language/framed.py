"""The fixed tokens around the sites of a text model, and the tokens that values stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from omniinput_hpc.config import Allowed, MaskedLm, SequenceClassifier
from omniinput_hpc.models.language import hf_folder, tokenizer


class FramedTokens:
    """The sites of a text model stand between the tokens that its tokenizer puts around a text.

    ``model.prefix`` and ``model.suffix`` replace these tokens.

    Attributes
    ----------
    space : which values exist
    n_sites : D
    around : the ids before and after the sites
    before : how many ids stand before them
    words : the folder's vocabulary
    text : shows inputs with the tokens around them
    """

    def __init__(
        self,
        options: SequenceClassifier | MaskedLm,
        folder: Path,
        n_vocab: int,
        device: str,
        allowed: Allowed,
    ) -> None:
        self.words = words = tokenizer.read(folder)
        self.space = hf_folder.space_of(options, folder, n_vocab, words, allowed)
        self.around = hf_folder.frame_of(options, folder, n_vocab, words)
        self.n_sites, self.before = (
            hf_folder.sites_within(options, self.around),
            len(self.around[0]),
        )
        every = hf_folder.tokens_of(options, folder, n_vocab, words)
        tokens = every[self.space.to_ids(np.arange(self.space.n_values))]
        self.text = tokenizer.Text(words, tokens, *self.around)
        self._fixed = [torch.tensor(ids, device=device).long() for ids in self.around]
        identical = np.array_equal(tokens, np.arange(n_vocab))
        self._ids = None if identical else torch.from_numpy(tokens).to(device)
        self.every_id = torch.from_numpy(tokens).to(device)

    def ids_of(self, x: torch.Tensor) -> torch.Tensor:
        """Return the token ids of values, int64 of any shape."""
        return x if self._ids is None else self._ids[x]

    def tokens(self, x: torch.Tensor) -> torch.Tensor:
        """Return the token ids of whole texts, int64 [W, T], of inputs x, int64 [W, D]."""
        before, after = (ids.expand(len(x), -1) for ids in self._fixed)
        return torch.cat([before, self.ids_of(x), after], dim=1)
