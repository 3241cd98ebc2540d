"""CUDA graphs: capture a forward pass at its second use and replay it.

A small forward pass is a few hundred GPU kernels of some microseconds each, and launching each
takes as long. A graph holds them all; replaying it is one call. A graph records addresses, so that
all tensors must stay where they are: a `KVCache`'s do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from omniinput_hpc.text import first_line

Work = Callable[[torch.Tensor, int], torch.Tensor]
Written = Callable[[int, int], torch.Tensor]


class GraphCache:
    """Forward passes over spans of positions, each span captured at its second use.

    A span is its first position and its length; moves of D sites have 2 D spans. Each graph's
    first replay is compared with the eager pass, bit for bit, because a resumed run begins with
    eager passes. If one differs, or synchronizes with the device as mixtures of experts do, the
    fallback is to run all passes eagerly. Memory that does not suffice is raised, not fallen back
    from.

    Parameters
    ----------
    work : the forward pass of tokens, int64 [n, W], from a position on; writes to static buffers,
        and returns what it wrote
    tokens : int64 [T, W], static input buffer
    gpu : torch.cuda, which captures and replays
    written : returns what else the pass of a span writes, its keys and values, as a view whose
        last axis is contiguous

    Attributes
    ----------
    refusal : why all passes run eagerly; "" while graphs are recorded
    """

    def __init__(
        self,
        work: Work,
        tokens: torch.Tensor,
        gpu: Any = torch.cuda,
        written: Written | None = None,
    ) -> None:
        self._work, self._tokens, self._gpu = work, tokens, gpu
        self._written, self.refusal = written, ""
        self._graphs: dict[tuple[int, int], Any] = {}
        self._seen: set[tuple[int, int]] = set()
        self._pool = gpu.graph_pool_handle()  # graphs run one after the other, so they can share it

    def __call__(self, tokens: torch.Tensor, begin: int) -> None:
        """Run the forward pass of tokens, int64 [n, W], at positions from `begin` on."""
        span = (begin, len(tokens))
        inputs = self._tokens[: len(tokens)].copy_(tokens)
        if span in self._graphs:
            self._graphs[span].replay()
        elif not self.refusal and span in self._seen:
            self._capture(span, inputs)
        else:
            self._work(inputs, begin)
            self._seen.add(span)

    def _capture(self, span: tuple[int, int], inputs: torch.Tensor) -> None:
        """Run a forward pass eagerly, capture it, and check its first replay."""
        stream = self._gpu.current_stream()
        graph = self._gpu.CUDAGraph()
        try:
            outputs = [self._run_without_sync(inputs, span[0])]
            if self._written is not None:
                outputs.append(self._written(*span))
            # of keys and values a sum for each token is enough, and takes little memory
            expected = [outputs[0].clone(), *map(sums_of_bits, outputs[1:])]
            # other threads (MPI's) may use the device meanwhile
            with self._gpu.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                self._work(inputs, span[0])
            for written in outputs:
                written.zero_()
            graph.replay()
            found = [outputs[0], *map(sums_of_bits, outputs[1:])]
            if all(map(torch.equal, found, expected)):
                self._graphs[span] = graph
                return
            reason = "replayed, it finds other bits"
        # CUDA and torch raise this where a pass cannot be captured. No other fault is hidden: the
        # pass runs again below, eagerly, and raises it.
        except RuntimeError as error:
            self._gpu.set_stream(stream)
            raise_out_of_memory(error)
            reason = first_line(error)
        self.refusal = reason
        self._graphs.clear()
        self._work(inputs, span[0])

    def _run_without_sync(self, inputs: torch.Tensor, begin: int) -> torch.Tensor:
        """Run a forward pass; raise RuntimeError where it synchronizes with the device."""
        before = self._gpu.get_sync_debug_mode()
        self._gpu.set_sync_debug_mode("error")
        try:
            return self._work(inputs, begin)
        finally:
            self._gpu.set_sync_debug_mode(before)


def sums_of_bits(values: torch.Tensor) -> torch.Tensor:
    """Return the sums of the last axis' bits as whole numbers, int64 [...]: no rounding hides any.

    A copy that a replay leaves out shows, since what it should write was zeroed.
    """
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    return values.view(bits).sum(-1, dtype=torch.int64)


def raise_out_of_memory(error: BaseException) -> None:
    """Raise what an error came from, if that was memory that did not suffice.

    Where memory ends while a graph is captured, ending the capture fails, too.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.OutOfMemoryError):
            raise cause
        cause = cause.__cause__ or cause.__context__
