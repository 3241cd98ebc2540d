"""Recorded evaluations: replayed on a tape that knows addresses only, as a CUDA graph does.

The tape keeps every operation with the tensors it was given and does them again, without any of
the code that called them: what that code would have decided anew stays as it was recorded.
"""

import logging

import pytest
import torch
from kv_cache_moves import moves_of
from language_folders import DECODERS, save_decoder
from torch.utils._python_dispatch import TorchDispatchMode

from omniinput_hpc.config import CausalLm
from omniinput_hpc.models.language import causal_lm
from omniinput_hpc.models.language.cuda_graphs import GraphCache
from omniinput_hpc.models.language.kv_cache import KVCache

D, W = 7, 5


class Tape(TorchDispatchMode):
    """Stands for a CUDA graph while it is recorded, and when it is replayed."""

    def __init__(self):
        super().__init__()
        self.operations, self.replays = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, found))
        return found

    def replay(self):
        self.replays += 1
        for func, args, kwargs, found in self.operations:
            again = func(*args, **kwargs)
            for old, new in zip(tensors_in(found), tensors_in(again), strict=True):
                if old.data_ptr() != new.data_ptr():  # not a view, nor what was written over
                    old.copy_(new)


def tensors_in(found):
    return [found] if isinstance(found, torch.Tensor) else list(found)


class NoWaiting(TorchDispatchMode):
    """Stands for torch.cuda's sync debug mode "error"."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("called a synchronizing operation")
        return func(*args, **(kwargs or {}))


class Gpu:
    """Stands for torch.cuda."""

    CUDAGraph = Tape

    def __init__(self):
        self._watch, self.streams_set = None, 0

    def graph_pool_handle(self):
        return "pool"

    def graph(self, tape, pool, capture_error_mode):
        assert (pool, capture_error_mode) == ("pool", "thread_local")
        return tape

    def current_stream(self):
        return "stream"

    def set_stream(self, stream):
        assert stream == "stream"
        self.streams_set += 1

    def get_sync_debug_mode(self):
        return 0

    def set_sync_debug_mode(self, mode):
        if mode == "error":
            self._watch = NoWaiting()
            self._watch.__enter__()
        else:
            self._watch.__exit__(None, None, None)


def recorded(model):
    """Return a KV cache whose evaluations are recorded, and what records them."""
    kv_cache = KVCache(model._decoder, model.token_ids, model._before, D, W)
    room = torch.zeros(kv_cache._proposed[1].shape[:2], dtype=torch.int64)
    kv_cache._run_positions = GraphCache(kv_cache._work, room, gpu=Gpu())
    return kv_cache, kv_cache._run_positions


@pytest.mark.slow
@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("keys", [{}, {"prefix": [3, 7, 2]}], ids=str)
def test_replays_find_what_evaluations_find(tmp_path, kind, keys):
    folder = save_decoder(kind, tmp_path)
    model = causal_lm.build(CausalLm(kind="causal-lm", path=str(folder), length=D, **keys), "cpu")
    plain = KVCache(model._decoder, model.token_ids, model._before, D, W)
    kv_cache, graphs = recorded(model)
    expected, found = moves_of(plain, model, 60), moves_of(kv_cache, model, 60)
    assert len(expected) == len(found)
    for a, b in zip(expected, found, strict=True):
        assert torch.equal(a, b)
    replays = [tape.replays for tape in graphs._graphs.values()]
    assert len(replays) > D
    assert sum(replays) > 100  # of about 150 evaluations
    again = moves_of(kv_cache, model, 60)  # nothing but replays
    assert sum(tape.replays for tape in graphs._graphs.values()) > sum(replays) + 100
    assert all(torch.equal(a, b) for a, b in zip(expected, again, strict=True))


def counted_work(decide):
    """Return work that adds `decide(tokens)` to tokens, and the room that it writes into."""
    room = torch.zeros((4, W), dtype=torch.int64)

    def work(tokens, begin):
        some = room[begin : begin + len(tokens)]
        return some.copy_(tokens + decide(tokens))

    return work, room


def evaluate_often(graphs, room, decide):
    """Evaluate other tokens each time; assert that what was found is right."""
    for call in range(6):
        tokens = torch.arange(2 * W).view(2, W) + call
        graphs(tokens, 1)
        assert torch.equal(room[1:3], tokens + decide(tokens)), call


def test_a_model_that_waits_for_the_device_is_not_recorded(caplog):
    def decide(tokens):
        return int(tokens.max()) % 3

    work, room = counted_work(decide)
    graphs = GraphCache(work, torch.zeros((4, W), dtype=torch.int64), gpu=Gpu())
    with caplog.at_level(logging.INFO, "omniinput_hpc"):
        evaluate_often(graphs, room, decide)
    assert not graphs._graphs
    assert graphs._gpu.streams_set == 1
    assert [r.getMessage() for r in caplog.records] == [
        "the model is evaluated without CUDA graphs: called a synchronizing operation"
    ]


def test_work_that_decides_anew_is_caught(caplog):
    calls = []

    def decide(tokens):
        calls.append(1)
        return len(calls)

    work, room = counted_work(decide)
    graphs = GraphCache(work, torch.zeros((4, W), dtype=torch.int64), gpu=Gpu())
    with caplog.at_level(logging.INFO, "omniinput_hpc"):
        for call in range(5):
            tokens = torch.full((2, W), call)
            graphs(tokens, 0)
            assert torch.equal(room[:2], tokens + len(calls))
    assert not graphs._graphs
    assert "replayed, it finds other bits" in caplog.text


def test_what_can_be_recorded_is(caplog):
    def decide(tokens):
        return tokens.sum(0)

    work, room = counted_work(decide)
    graphs = GraphCache(work, torch.zeros((4, W), dtype=torch.int64), gpu=Gpu())
    evaluate_often(graphs, room, decide)
    (tape,) = graphs._graphs.values()
    assert tape.replays == 5  # one to see that it finds the same, and 4 in the place of the work
    assert not caplog.text
