"""Parts that the trainings share: an optimizer step, learning-rate schedules, a small GPT-2."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import torch
from tqdm import tqdm

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel


def build_gpt2(dropout: float, **config: Any) -> GPT2LMHeadModel:
    """Return an untrained GPT-2; `config` holds further arguments of transformers' GPT2Config."""
    from transformers import GPT2Config, GPT2LMHeadModel

    rates: Any = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    settings = GPT2Config(activation_function="gelu_pytorch_tanh", **rates, **config)
    return GPT2LMHeadModel(settings)


def cosine_rate(step: int, steps: int, warm_up: int) -> float:
    """Return the learning rate of a step: 2e-3, times a linear warm-up, times a cosine to zero."""
    return 2e-3 * min(1.0, (step + 1) / warm_up) * 0.5 * (1 + math.cos(math.pi * step / steps))


def descend(loss: torch.Tensor, optimizer: torch.optim.Optimizer, max_norm: float = 1.0) -> None:
    """Take one step of the optimizer, with the norm of the gradient clipped to `max_norm`."""
    optimizer.zero_grad()
    loss.backward()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    optimizer.step()


class OneCycle:
    """AdamW with a one-cycle schedule and a progress bar (in a log file, one line per minute).

    Parameters
    ----------
    rate, decay : largest learning rate, weight decay
    steps : total number of steps
    name : label of the progress bar
    schedule : further arguments of torch's OneCycleLR
    """

    def __init__(
        self, model: Any, rate: float, steps: int, name: str, decay: float, **schedule: Any
    ) -> None:
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
        self._schedule = torch.optim.lr_scheduler.OneCycleLR(
            self._optimizer, rate, total_steps=steps, **schedule
        )
        quiet = not sys.stderr.isatty()
        self.bar = tqdm(total=steps, desc=name, mininterval=60 if quiet else 0.2, leave=not quiet)

    def step(self, loss: torch.Tensor, max_norm: float, /, **shown: str) -> None:
        """Take one step, and show the numbers `shown` next to the bar."""
        descend(loss, self._optimizer, max_norm)
        self._schedule.step()
        self.bar.update()
        self.bar.set_postfix(shown, refresh=False)
