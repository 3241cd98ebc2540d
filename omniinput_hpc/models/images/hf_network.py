"""Image classifiers that AutoModelForImageClassification loads, as functions of grey levels."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForImageClassification

from omniinput_hpc.models.images import hf_processor
from omniinput_hpc.models.language.loading import load


class ProcessedPictures(nn.Module):
    """A network with its processor: from pictures in [0, 1], [W, 1 or 3, h, w], to logits."""

    def __init__(self, folder: Path, device: str) -> None:
        super().__init__()
        self._steps = steps = hf_processor.read(folder)
        self._lm = load(AutoModelForImageClassification, folder, "float32", device)
        self._mean, self._std = (
            torch.tensor(row, device=device).view(1, -1, 1, 1) for row in (steps.mean, steps.std)
        )

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Return float32 [W, n_classes]."""
        steps = self._steps
        picture = picture.expand(-1, steps.n_channels, -1, -1)
        if steps.flipped:
            picture = picture.flip(1)
        if steps.size and steps.resampling and picture.shape[2:] != steps.size:
            smooth = steps.resampling != "nearest-exact"
            picture = nn.functional.interpolate(
                picture, steps.size, mode=steps.resampling, antialias=smooth
            ).clamp(0, 1)  # bicubic ones overshoot
        logits: torch.Tensor = self._lm(
            pixel_values=(steps.scale * picture - self._mean) / self._std
        ).logits
        return logits
