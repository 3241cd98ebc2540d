"""CUDA graphs: capture a forward pass at its second use and replay it.

A small forward pass is a few hundred GPU kernels of some microseconds each, and launching each
takes as long. A graph holds them all; replaying it is one call. A graph records addresses, so that
all tensors must stay where they are: a `KVCache`'s do.
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
    """Forward passes over some positions, each kind captured at its second use.

    A kind is where a pass begins and how long it is; moves of D sites have 2 D kinds. Each graph's
    first replay is compared with the pass itself, bit for bit, because a resumed run evaluates
    before it replays. If one differs, or synchronizes with the device as mixtures of experts do,
    none are replayed and all passes run as usual.

    Parameters
    ----------
    work : takes tokens, int64 [n, W], and the position of the first; writes into tensors that
        stay at the same addresses, and returns what it wrote
    tokens : int64 [T, W], buffer for the tokens of a pass
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
        """Run a pass, and capture it."""
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
