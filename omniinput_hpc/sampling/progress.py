"""Progress of a run: a bar on a terminal, occasional lines in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from omniinput_hpc.text import duration

log = logging.getLogger("omniinput_hpc")

SECONDS_BETWEEN_LINES = 5.0
"""The shortest time between two lines of a log; see `Progress._due`."""
MOST_BETWEEN_LINES = 60.0
SHARE_BETWEEN_LINES = 0.2
"""The time between two lines, as a share of the time since the start."""
LONGEST_ROUND = 300.0
"""Rounds of more seconds cause a warning: a stop or a kill loses the round in progress."""


class Progress:
    """Reports progress on rank 0.

    This process runs the rounds `first` (negative in burn-in) to `last` - 1. In each round all
    walkers of all rungs together make `moves_per_round` moves.
    """

    def __init__(
        self,
        first: int,
        last: int,
        burn_in: int,
        moves_per_round: int,
        shown: bool,
        exchanges: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first, self._last, self._burn_in = first, last, burn_in
        self._moves, self._shown = moves_per_round, shown
        self._exchanges, self._clock = exchanges, clock
        self._begin = self._last_line = clock()
        self._any_committed = False
        terminal = shown and sys.stderr.isatty()
        self._bar = (
            tqdm(total=last + burn_in, initial=first + burn_in, unit="round") if terminal else None
        )

    def exchanged(self, done: int) -> None:
        """Report the number of exchanges done, until the first round is in the file.

        A round may take minutes, and the user should see that the run makes progress.
        """
        if not self._shown or self._any_committed or done >= self._exchanges:
            return
        now = self._clock()
        if now - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        left = duration((now - self._begin) / done * (self._exchanges - done))
        text = f"exchange {done} of {self._exchanges}; the first round will be written in {left}"
        if self._bar is not None:
            self._bar.set_postfix_str(text)
        else:
            log.info("%s", text)

    def committed(self, round_: int, swap_rate_p: NDArray[np.float64]) -> None:
        """Report that a round is in the file.

        `swap_rate_p`, float64, is the acceptance of each pair tried in this round; it may be empty.
        """
        if not self._shown:
            return
        self._any_committed = True
        now = self._clock()
        done = round_ + 1 - self._first
        seconds_per_round = (now - self._begin) / done
        if done == 1 and (advice := shorter_rounds(seconds_per_round, self._exchanges)):
            log.warning("warning: %s", advice)
        rate = self._moves / seconds_per_round
        speed = f"{rate:,.0f} moves/s"
        if swap_rate_p.size:
            lowest, mean = np.min(swap_rate_p), np.mean(swap_rate_p)
            speed += f", swaps lowest {lowest:.0%}, mean {mean:.0%}"
        if self._bar is not None:
            self._bar.update(1)
            phase = "burn-in, " if round_ < 0 else ""
            self._bar.set_postfix_str(f"{phase}{speed}")
        elif self._due(round_, now):
            self._last_line = now
            name = (
                f"burn-in round {round_ + self._burn_in + 1} of {self._burn_in}"
                if round_ < 0
                else f"round {round_ + 1} of {self._last}"
            )
            share = (round_ + 1 + self._burn_in) / (self._last + self._burn_in)
            left = duration((self._last - round_ - 1) * seconds_per_round)
            text = f"{name} ({share:.0%}), {speed}, {left} left"
            log.info("%s", text)

    def _due(self, round_: int, now: float) -> bool:
        """Return whether a round gets a line in the log.

        The gap between lines is a fifth of the time since the start, but 5 s to 60 s. The first
        round of this process, the last of burn-in and the last of the run always get a line.
        """
        if round_ in (self._first, -1, self._last - 1):
            return True
        gap = SHARE_BETWEEN_LINES * (now - self._begin)
        gap = min(max(gap, SECONDS_BETWEEN_LINES), MOST_BETWEEN_LINES)
        return now - self._last_line >= gap

    def close(self) -> None:
        """Close the progress bar."""
        if self._bar is not None:
            self._bar.close()


def shorter_rounds(seconds: float, exchanges: int) -> str | None:
    """Return advice if a round of `seconds` is too long to lose, else None."""
    if seconds <= LONGEST_ROUND:
        return None
    words = f"a round takes {duration(seconds)}, and every stop or kill loses as much; "
    fewer = int(exchanges * LONGEST_ROUND / seconds)
    if fewer < 1:
        steps = "" if exchanges == 1 else "sampler.exchanges = 1 and "
        words += f"set {steps}a smaller sampler.steps"
    else:
        words += f"set sampler.exchanges = {fewer} instead of {exchanges}"
    return f"{words} (and more run.rounds) in a new run"
