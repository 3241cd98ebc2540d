"""What a GPU is told to do, recorded once and replayed: CUDA graphs.

A small evaluation is a few hundred kernels of some microseconds each, and telling the GPU of each
takes as long. A graph holds them all; replaying it is one call. What is recorded are addresses, so
that everything must lie where it lay: a `KVCache`'s room does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from omniinput_hpc.text import first_line

log = logging.getLogger("omniinput_hpc")

Work = Callable[[torch.Tensor, int], torch.Tensor]


class GraphCache:
    """Evaluations of some positions, each kind recorded when it comes for the second time.

    A kind is where an evaluation begins and how long it is; of D sites, moves have 2 D of them.
    Whether a replay finds what the evaluation itself finds, to the bit, is looked at once for each
    kind, because a resumed run evaluates before it replays. If one does not,
    or waits for the device meanwhile as mixtures of experts do, all are evaluated as ever.

    Parameters
    ----------
    work : takes tokens, int64 [n, W], and the position of the first; writes into room that it
        finds at the same addresses every time, and returns what it wrote of it
    tokens : int64 [T, W], room for those it is given
    gpu : what records: torch.cuda
    """

    def __init__(self, work: Work, tokens: torch.Tensor, gpu: Any = torch.cuda) -> None:
        self._work, self._tokens, self._gpu = work, tokens, gpu
        self._graphs: dict[tuple[int, int], Any] = {}
        self._seen: set[tuple[int, int]] = set()
        self._pool = gpu.graph_pool_handle()  # they run one after the other: one for all
        self._usable = True

    def __call__(self, tokens: torch.Tensor, begin: int) -> None:
        """Evaluate tokens, int64 [n, W], at positions from `begin` on."""
        kind = (begin, len(tokens))
        given = self._tokens[: len(tokens)].copy_(tokens)
        if kind in self._graphs:
            self._graphs[kind].replay()
        elif self._usable and kind in self._seen:
            self._record(kind, given)
        else:
            self._work(given, begin)
            self._seen.add(kind)

    def _record(self, kind: tuple[int, int], given: torch.Tensor) -> None:
        """Do a kind of work, and record it."""
        stream = self._gpu.current_stream()
        graph = self._gpu.CUDAGraph()
        try:
            found = self._work_without_waiting(given, kind[0])
            expected = found.clone()
            # other threads (MPI's) may use the device meanwhile
            with self._gpu.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                self._work(given, kind[0])
            found.zero_()
            graph.replay()
            if torch.equal(found, expected):
                self._graphs[kind] = graph
                return
            reason = "replayed, it finds other bits"
        # What CUDA and torch say of all that cannot be recorded. Nothing is hidden by it: the work
        # is done once more below, unrecorded, and what is wrong with the work itself is raised.
        except RuntimeError as error:
            self._gpu.set_stream(stream)
            reason = first_line(error)
        log.info("the model is evaluated without CUDA graphs: %s", reason)
        self._usable = False
        self._graphs.clear()
        self._work(given, kind[0])

    def _work_without_waiting(self, given: torch.Tensor, begin: int) -> torch.Tensor:
        """Work; raise RuntimeError where the host would wait for the device."""
        before = self._gpu.get_sync_debug_mode()
        self._gpu.set_sync_debug_mode("error")
        try:
            return self._work(given, begin)
        finally:
            self._gpu.set_sync_debug_mode(before)
