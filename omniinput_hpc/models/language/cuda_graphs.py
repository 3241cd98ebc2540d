"""CUDA graphs: capture a forward pass at its second use and replay it.

A small forward pass is a few hundred GPU kernels of some microseconds each, and launching each
takes as long. A graph holds them all and is replayed by one call. It records addresses, so all
tensors must keep theirs, as those of a `KVCache` do.
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

    A span is a first position and a length; moves of D sites have 2 D spans. The first replay of
    each graph is compared with the eager pass, bit for bit, because a resumed run begins with eager
    passes. If one differs, or if the pass synchronizes with the device as mixtures of experts do,
    all passes run eagerly from then on. Running out of memory is raised as an error instead.

    Parameters
    ----------
    work : runs the forward pass of tokens, int64 [n, W], from a position on; writes to static
        buffers, and returns the part that it wrote
    tokens : int64 [T, W], static input buffer
    gpu : torch.cuda, which captures and replays
    written : returns the other part that the pass of a span writes, its keys and values, as a view
        whose last axis is contiguous

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
        self._pool = gpu.graph_pool_handle()  # shared, because graphs run one after the other

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
            # a sum per token is enough for keys and values, and takes little memory
            expected = [outputs[0].clone(), *map(sums_of_bits, outputs[1:])]
            # other threads, such as MPI's, may use the device meanwhile
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
        # CUDA and torch raise this if a pass cannot be captured. No other fault is hidden: it
        # recurs when the pass runs eagerly below.
        except RuntimeError as error:
            self._gpu.set_stream(stream)
            raise_out_of_memory(error)
            reason = first_line(error)
        self.refusal = reason
        self._graphs.clear()
        self._work(inputs, span[0])

    def _run_without_sync(self, inputs: torch.Tensor, begin: int) -> torch.Tensor:
        """Run a forward pass; raise RuntimeError if it synchronizes with the device."""
        before = self._gpu.get_sync_debug_mode()
        self._gpu.set_sync_debug_mode("error")
        try:
            return self._work(inputs, begin)
        finally:
            self._gpu.set_sync_debug_mode(before)


def sums_of_bits(values: torch.Tensor) -> torch.Tensor:
    """Return sums over the last axis of the bit patterns, int64 [...]; nothing is rounded.

    A copy that a replay leaves out is detected, because its destination was zeroed.
    """
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    return values.view(bits).sum(-1, dtype=torch.int64)


def raise_out_of_memory(error: BaseException) -> None:
    """Raise the OutOfMemoryError that caused an error, if there is one.

    If memory runs out while a graph is captured, ending the capture fails, too, with another error.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.OutOfMemoryError):
            raise cause
        cause = cause.__cause__ or cause.__context__
