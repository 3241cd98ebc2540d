"""Recorded evaluations: replayed on a tape that knows addresses only, as a CUDA graph does.

The tape keeps every operation with the tensors it was given and does them again, without any of
the code that called them: what that code would have decided anew stays as it was recorded.
"""

import contextlib
from unittest import mock

import pytest
import torch
from kv_cache_moves import moves_of
from language_folders import DECODERS, save_decoder
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import masking_utils

from omniinput_hpc.config import CausalLm
from omniinput_hpc.models.language import causal_lm, cuda_graphs
from omniinput_hpc.models.language.cuda_graphs import GraphCache
from omniinput_hpc.models.language.hf_decoder import HfDecoder
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

    @contextlib.contextmanager
    def graph(self, tape, pool, capture_error_mode):
        """Record on a tape, and say so to who asks: transformers does."""
        assert (pool, capture_error_mode) == ("pool", "thread_local")
        with mock.patch("torch.cuda.is_current_stream_capturing", lambda: True), tape:
            yield

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
    kv_cache._run_positions = GraphCache(
        kv_cache._work, room, gpu=Gpu(), written=kv_cache._keys_and_values
    )
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


class Attention:
    """Notes what kind of mask scaled_dot_product_attention is given, captured or not."""

    def __init__(self, monkeypatch):
        self.kinds = {False: [], True: []}
        self._attend = torch.nn.functional.scaled_dot_product_attention
        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", self)

    def __call__(self, *args, attn_mask=None, is_causal=False, **kwargs):
        kind = None if attn_mask is None else (attn_mask.dtype, attn_mask.shape[-2:])
        self.kinds[torch.cuda.is_current_stream_capturing()].append((kind, is_causal))
        return self._attend(*args, attn_mask=attn_mask, is_causal=is_causal, **kwargs)


def ignored_unless_captured(monkeypatch):
    """Make transformers choose a mask as its versions 5.13 to 5.17 did."""
    ignored = masking_utils._ignore_causal_mask_sdpa

    def ignores(*args, **kwargs):
        return not torch.cuda.is_current_stream_capturing() and ignored(*args, **kwargs)

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(masking_utils, "_ignore_causal_mask_sdpa", ignores)


@pytest.mark.parametrize("span", [(0, D - 1), (3, 1), (2, D - 3)], ids=["all", "one", "some"])
@pytest.mark.parametrize("own_masks", [True, False])
@pytest.mark.parametrize("kind", sorted(set(DECODERS) - {"gpt2"}))
def test_captured_passes_attend_as_eager_ones_do(monkeypatch, kind, own_masks, span):
    ignored_unless_captured(monkeypatch)
    lm = DECODERS[kind]().eval().requires_grad_(False)
    with torch.no_grad():
        decoder = HfDecoder(lm, D - 1, own_masks)
    none = torch.zeros(0, dtype=torch.int64)
    kv_cache = KVCache(decoder, torch.arange(lm.config.vocab_size), none, D, W)
    room = torch.zeros((D - 1, W), dtype=torch.int64)
    graphs = GraphCache(kv_cache._work, room, gpu=Gpu())
    attention, (begin, n) = Attention(monkeypatch), span
    with torch.inference_mode():
        for _ in range(2):
            graphs(room[:n], begin)
    eager, captured = (set(attention.kinds[capturing]) for capturing in (False, True))
    assert len(eager) == len(captured) == 1
    if own_masks:
        assert eager == captured == {((torch.float32, torch.Size([n, begin + n])), False)}
    else:  # the model's own: of several positions behind others there is always one
        assert (eager == captured) == (span == (2, D - 3))


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


def test_a_model_that_waits_for_the_device_is_not_recorded():
    def decide(tokens):
        return int(tokens.max()) % 3

    work, room = counted_work(decide)
    graphs = GraphCache(work, torch.zeros((4, W), dtype=torch.int64), gpu=Gpu())
    evaluate_often(graphs, room, decide)
    assert not graphs._graphs
    assert graphs._gpu.streams_set == 1
    assert graphs.refusal == "called a synchronizing operation"


def test_work_that_decides_anew_is_caught():
    calls = []

    def decide(tokens):
        calls.append(1)
        return len(calls)

    work, room = counted_work(decide)
    graphs = GraphCache(work, torch.zeros((4, W), dtype=torch.int64), gpu=Gpu())
    for call in range(5):
        tokens = torch.full((2, W), call)
        graphs(tokens, 0)
        assert torch.equal(room[:2], tokens + len(calls))
    assert not graphs._graphs
    assert graphs.refusal == "replayed, it finds other bits"


def test_what_can_be_recorded_is():
    def decide(tokens):
        return tokens.sum(0)

    work, room = counted_work(decide)
    graphs = GraphCache(work, torch.zeros((4, W), dtype=torch.int64), gpu=Gpu())
    evaluate_often(graphs, room, decide)
    (tape,) = graphs._graphs.values()
    assert tape.replays == 5  # one to see that it finds the same, and 4 in the place of the work
    assert graphs.refusal == ""


class Forgetful(Gpu):
    """A GPU whose graphs lose every copy but those into what a pass returns."""

    class CUDAGraph(Tape):
        kept = None

        def replay(self):
            self.operations = [
                o
                for o in self.operations
                if o[0] is not torch.ops.aten.copy_.default or o[1][0].data_ptr() == self.kept
            ]
            super().replay()


@pytest.mark.parametrize(("watched", "refused"), [(True, True), (False, False)])
def test_a_replay_that_loses_keys_and_values_is_caught(watched, refused):
    hidden, kv = torch.zeros((4, W)), torch.zeros((2, 1, 4, W))

    def work(tokens, begin):
        kv[:, :, begin : begin + len(tokens)].copy_(tokens.float())
        return hidden[begin : begin + len(tokens)].copy_(2.0 * tokens)

    def written(begin, n):
        return kv.narrow(2, begin, n)

    Forgetful.CUDAGraph.kept = hidden.data_ptr()
    graphs = GraphCache(
        work,
        torch.zeros((4, W), dtype=torch.int64),
        gpu=Forgetful(),
        written=written if watched else None,
    )
    for call in range(1, 4):
        graphs(torch.full((2, W), call), 0)
    assert bool(graphs.refusal) == refused
    right = bool((kv[:, :, :2] == 3.0).all())
    assert right == watched  # without the comparison the run would go on with lost values


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_any_bit_of_keys_and_values_counts(dtype):
    values = torch.randn(2, 3, 4, 8, generator=torch.Generator().manual_seed(1)).to(dtype)
    other = values.clone()
    bits = other.view({2: torch.int16, 4: torch.int32}[dtype.itemsize])
    bits[1, 2, 3, 4] ^= 1
    assert other[1, 2, 3, 4] != values[1, 2, 3, 4]
    different = cuda_graphs.sums_of_bits(values) != cuda_graphs.sums_of_bits(other)
    assert different.nonzero().tolist() == [[1, 2, 3]]


class Full(Gpu):
    """A GPU whose memory ends while a pass is captured; then ending the capture fails, too."""

    def graph(self, tape, pool, capture_error_mode):
        return self

    def __enter__(self):
        raise torch.OutOfMemoryError("tried to allocate")

    def __exit__(self, *_):
        pass


class FullAtTheEnd(Full):
    def __enter__(self):
        pass

    def __exit__(self, *_):
        try:
            raise torch.OutOfMemoryError("tried to allocate")
        except RuntimeError:
            raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904


@pytest.mark.parametrize("gpu", [Full, FullAtTheEnd])
def test_out_of_memory_is_raised_as_what_it_is(gpu):
    work, _ = counted_work(lambda tokens: tokens)
    graphs = GraphCache(work, torch.zeros((4, W), dtype=torch.int64), gpu=gpu())
    tokens = torch.ones((2, W), dtype=torch.int64)
    graphs(tokens, 0)
    with pytest.raises(torch.OutOfMemoryError, match="tried to allocate"):
        graphs(tokens, 0)
    assert graphs.refusal == ""
    assert graphs._gpu.streams_set == 1
