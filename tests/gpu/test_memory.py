"""Memory of a GPU: what does not fit is said as what it is, and what is not used is given back."""

import gc
import time
import weakref

import pytest
import torch
from gpu_models import DEVICE, HAS_GPU, LENGTH, NO_GPU, TINY, free_memory, n_graphs, random_model

from omniinput_hpc.errors import UserError
from omniinput_hpc.models import device as devices
from omniinput_hpc.models.language.cuda_graphs import GraphCache

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(300)]
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason=NO_GPU)
SMALL, LARGE = (4, 8) if TINY else (64, 256)


@pytest.fixture
def a_full_gpu():
    """Leave 2 GB of the device free."""
    block = torch.empty(int(free_memory() - 2e9), dtype=torch.uint8, device=DEVICE)
    yield
    del block
    free_memory()


@needs_gpu
def test_walkers_that_do_not_fit_are_bad_input(a_full_gpu):
    model = random_model("gpt2-small", "float32")
    with pytest.raises(UserError, match=r"do not fit on cuda:0 .* sampler\.walkers"):
        model.kv_cache(1 << 14)


@needs_gpu
def test_out_of_memory_while_recording_is_raised_as_what_it_is(caplog):
    buffer, calls = torch.zeros((4, 8), dtype=torch.int64, device=DEVICE), []

    def work(tokens, begin):
        calls.append(1)
        if len(calls) > 1:
            torch.empty(1 << 50, dtype=torch.uint8, device=DEVICE)
        return buffer[begin : begin + len(tokens)].copy_(tokens)

    graphs = GraphCache(work, torch.zeros_like(buffer))
    graphs(buffer[:2], 0)
    with pytest.raises(torch.OutOfMemoryError):
        graphs(buffer[:2], 0)
    assert "without CUDA graphs" not in caplog.text


def test_a_cache_of_another_number_of_walkers_gives_its_memory_back(measure):
    model = random_model("olmo-1b", "bfloat16")

    def used(n_walkers):
        kv_cache = model.kv_cache(n_walkers)
        kv_cache.load(torch.zeros((n_walkers, LENGTH), dtype=torch.int64, device=DEVICE))
        return kv_cache.n_bytes

    first = used(SMALL)
    former = weakref.ref(model.kv_cache(SMALL))
    before, held = free_memory(), devices.held_bytes(DEVICE)
    said = used(LARGE)
    gc.collect()
    assert said > first
    assert former() is None
    taken = before - free_memory()
    used(SMALL)
    left, still_held = before - free_memory(), devices.held_bytes(DEVICE) - held
    measure("GB that the cache says it takes", 1e-9 * (said - first), "GB", walkers=LARGE)
    measure("GB that the driver says it takes", 1e-9 * taken, "GB", walkers=LARGE)
    measure("GB of it left when it is replaced", 1e-9 * left, "GB", torch=1e-9 * still_held)
    assert left <= 0.1 * max(taken, 0) + 64e6  # what the allocator rounds up
    assert not HAS_GPU or still_held <= 1e6


@pytest.mark.parametrize(("shape", "dtype"), [("gpt2-small", "float32"), ("olmo-7b", "bfloat16")])
def test_what_graphs_take(measure, shape, dtype):
    """All spans of a run: seconds to record them, and memory outside torch's allocator."""
    model = random_model(shape, dtype)
    kv_cache = model.kv_cache(SMALL)
    x = torch.randint(model.n_values, (SMALL, LENGTH), device=DEVICE)
    last = LENGTH - 1
    spans = {(b, n) for b in range(last) for n in (1, last - b)}

    def run_all():
        for begin, n in sorted(spans):
            kv_cache.begin(begin)
            kv_cache._run(kv_cache._tokens(x[:, begin : begin + n]))

    kv_cache.load(x)
    run_all()
    before, held = free_memory(), devices.held_bytes(DEVICE)
    start = time.perf_counter()
    run_all()
    seconds = time.perf_counter() - start
    about = {"shape": shape, "dtype": dtype, "walkers": SMALL, "spans": len(spans)}
    measure("graphs recorded", n_graphs(kv_cache), **about)
    measure("seconds to record them", seconds, "s", **about)
    measure("GB that they take", 1e-9 * (before - free_memory()), "GB", **about)
    measure("GB of it torch's", 1e-9 * (devices.held_bytes(DEVICE) - held), "GB", **about)
    if HAS_GPU:
        assert n_graphs(kv_cache) == len(spans)
