"""Recorded inputs on request: those of a bin, those whose text holds some words, the extremes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from omniinput_hpc.annotation.drawing import samples_of_bins
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import BoolArray, FloatArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.samples import RecordedSamples, extreme_inputs, samples_in_bins
from omniinput_hpc.histogram import bin_of
from omniinput_hpc.report.page import visible
from omniinput_hpc.results.redact import mask
from omniinput_hpc.results.representatives import how_to_show
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import counted, tens

PAGE = 20
"""Different inputs of an answer at most."""
SECONDS = 2.0
"""Time after which a search answers with what it has found so far."""
CHUNK = 500
"""Samples whose texts are held at once."""
EVERY_Z = np.array([np.finfo(np.float32).min, np.finfo(np.float32).max], dtype=np.float64)


@dataclass(frozen=True)
class Found:
    """An answer, as the page gets it.

    Attributes
    ----------
    said : what was looked at, in words
    inputs : for each input "z", "shown" (its text, or its picture as a data URI) and "note"
    kind : "text" or "image"
    next : the sample at which the next page starts; None after the last page
    """

    said: str
    inputs: list[dict[str, str]]
    kind: str
    next: int | None = None


@dataclass
class _Hit:
    """An input of an answer: the first of its samples, and how many there were."""

    some: RecordedSamples
    j: int
    times: int = 0


class Recorded:
    """The recorded inputs of an open run, of which a page is read at a time.

    Samples are numbered from 0 in the order of rounds, rungs and moves. Texts are masked if
    `masked`; `render` is as in `representatives.how_to_show`.
    """

    def __init__(
        self, run: RunReader, density: Density, masked: bool = False, render: bool = False
    ) -> None:
        self._run, self._density, self._how = run.data, density, how_to_show(run.config, render)
        self._masked = masked and self._how.kind == "text"
        self._count_b = samples_of_bins(run.data, density.edges)
        self._per_round = len(run.data.beta_k) * run.samples_per_round
        # the weights are those of all moves, of which only some were recorded
        self._log_thinned = np.log(run.data.moves_k.sum() / (run.data.rounds * self._per_round))

    def of_bin(self, z: float, start: int = 0) -> Found:
        """Return inputs of the bin nearest to z that has samples; a UserError if none has."""
        edges, held = self._density.edges, np.flatnonzero(self._count_b)
        if not held.size or not np.isfinite(z):
            raise UserError("no recorded inputs lie inside the bins, or z is not a number")
        b = int(held[np.abs(held - bin_of(np.array([z]), edges)).argmin()])

        def holds(round_: int) -> bool:
            return bool((bin_of(self._run.z_of(round_).ravel(), edges) == b).any())

        rounds = filter(holds, self._rounds(start))
        found, then = self._scan(edges, rounds, start, lambda some: some.bin_i == b)
        n = counted(int(self._count_b[b]), "recorded sample")
        said = f"z from {edges[b]:.6g} to {edges[b + 1]:.6g}: {n}"
        return Found(said, found, self._how.kind, then)

    def search(self, words: str, start: int = 0) -> Found:
        """Return inputs whose text holds words, in any case; a UserError for pictures."""
        if self._how.kind != "text" or not words:
            raise UserError("give words to search for" if not words else "pictures have no text")
        lower = words.lower()

        def hold(some: RecordedSamples) -> BoolArray:
            return np.array([lower in text.lower() for text in self._texts(some.x_id)])

        found, then = self._scan(EVERY_Z, self._rounds(start), start, hold)
        total = self._per_round * self._run.rounds
        end = total if then is None else min(then, total)
        said = f"{end:,} of {total:,} recorded samples searched"
        return Found(said, found, self._how.kind, then)

    def extremes(self, end: str) -> Found:
        """Return the recorded inputs of lowest z, or of highest for the `end` "high"."""
        x_nd, z_n = extreme_inputs(self._run, PAGE, -1.0 if end == "high" else 1.0)
        rows = zip(z_n, self._shown(x_nd), strict=True)
        inputs = [{"z": f"{z:.6g}", "shown": shown, "note": ""} for z, shown in rows]
        said = f"The recorded inputs of {'highest' if end == 'high' else 'lowest'} z"
        return Found(said, inputs, self._how.kind)

    def _rounds(self, start: int) -> range:
        return range(start // self._per_round, self._run.rounds)

    def _scan(
        self,
        edges: FloatArray,
        rounds: Iterable[int],
        start: int,
        keep: Callable[[RecordedSamples], BoolArray],
    ) -> tuple[list[dict[str, str]], int | None]:
        """Return the first different inputs from a sample on that are kept, and where to go on."""
        hits: dict[bytes, _Hit] = {}
        deadline = time.monotonic() + SECONDS
        for some, first in self._chunks(edges, rounds, start):
            for j in np.flatnonzero(keep(some)).tolist():
                x = some.x_id[j].tobytes()
                if x not in hits and len(hits) == PAGE:
                    return self._lines(hits), first + int(some.index_i[j])
                hits.setdefault(x, _Hit(some, j)).times += 1
            if time.monotonic() > deadline:
                return self._lines(hits), first + int(some.index_i[-1]) + 1
        return self._lines(hits), None

    def _chunks(
        self, edges: FloatArray, rounds: Iterable[int], start: int
    ) -> Iterator[tuple[RecordedSamples, int]]:
        """Yield samples from `start` on, and the number of the first sample of their rung."""
        for part in samples_in_bins(self._run, edges, rounds=rounds):
            first = part.round_ * self._per_round + part.rung * self._run.samples_per_round
            later = np.flatnonzero(first + part.index_i >= start)
            for i in range(0, len(later), CHUNK):
                yield part.where(later[i : i + CHUNK]), first

    def _lines(self, hits: dict[bytes, _Hit]) -> list[dict[str, str]]:
        """Return inputs for the page, with weight, number of recordings, round and rung."""
        found = list(hits.values())
        shown = self._shown(np.stack([one.some.x_id[one.j] for one in found])) if found else []
        return [
            {"z": f"{one.some.z_i[one.j]:.6g}", "shown": words, "note": self._note(one)}
            for one, words in zip(found, shown, strict=True)
        ]

    def _note(self, hit: _Hit) -> str:
        some, one = hit.some, slice(hit.j, hit.j + 1)
        log_q_1k = None if some.log_q_ik is None else some.log_q_ik[one]
        log_w = self._log_thinned - float(self._density.log_mixture(some.z_i[one], log_q_1k)[0])
        stands = f"stands for {tens(log_w)}{self._density.words.of or ' inputs'}"
        weight = stands if self._density.absolute else f"relative weight {tens(log_w)}"
        said = [weight] if np.isfinite(log_w) else []
        said += [f"{hit.times} times here"] if hit.times > 1 else []
        return ", ".join([*said, f"round {some.round_}, rung {some.rung}"])

    def _shown(self, x_nd: Any) -> list[str]:
        """Return inputs as the page gets them."""
        shown = self._texts(x_nd)
        return [visible(text) for text in shown] if self._how.kind == "text" else shown

    def _texts(self, x_nd: Any) -> list[str]:
        """Return texts, masked if that is asked for, or pictures as data URIs."""
        texts = list(self._how.show(np.asarray(x_nd, dtype=np.int64)))
        return [mask(text) for text in texts] if self._masked else texts
