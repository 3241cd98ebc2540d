"""Speed on a GPU: moves per second, the host's share, and shares of the measured matrix peak."""

import time
from functools import cache

import pytest
import torch
from gpu_models import (
    DEVICE,
    HAS_GPU,
    LENGTH,
    TINY,
    MatrixWork,
    free_memory,
    n_graphs,
    random_model,
    synchronize,
    timed,
)

from omniinput_hpc import kernels, rng
from omniinput_hpc.config.kernels import LmConditional, Metropolis
from omniinput_hpc.kernels import DeviceStream, SearchBudget, Target
from omniinput_hpc.kernels.independent import AutoregressiveSampler
from omniinput_hpc.kernels.state import State
from omniinput_hpc.models.checked import CheckedModel
from omniinput_hpc.tempering.ensembles import Canonical

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(400)]

SHAPES = [("olmo-7b", "bfloat16"), ("olmo-1b", "bfloat16"), ("gpt2-small", "float32")]
WALKERS = (4, 8) if TINY else (64, 256)
WARM, MOVES = (2, 4) if TINY else (60, 100)
KERNELS = {
    "lm-conditional": LmConditional(name="lm-conditional"),
    "look_ahead": LmConditional(name="lm-conditional", look_ahead=True),
    "metropolis": Metropolis(),
}
BEYOND = 31.0 / 24.0
"""The coldest beta of inputs/olmo7b.toml, in units of m."""
MOST_OF_PEAK = 2.0 if TINY else 1.05
"""A share above it says that operations are counted wrongly."""


@cache
def matrix_peak(dtype):
    """Return operations per second of a large product of matrices of random numbers."""
    n = 256 if TINY else 8192
    a, b = (torch.randn(n, n, device=DEVICE, dtype=getattr(torch, dtype)) for _ in range(2))
    return 2.0 * n**3 / timed(lambda: a @ b, repeats=9)[0]


def test_ceilings(measure):
    for dtype in ("bfloat16", "float32"):
        measure("product of large matrices", matrix_peak(dtype) / 1e12, "Tflop/s", dtype=dtype)
    x = torch.empty(1 << (20 if TINY else 30), dtype=torch.bfloat16, device=DEVICE).normal_()
    y = torch.empty_like(x)
    rate = 2 * x.nbytes / timed(lambda: y.copy_(x))[0]
    measure("copy, read and written", rate / 1e12, "TB/s")
    weights = torch.rand(64, 300 if TINY else 50304, dtype=torch.float64, device=DEVICE)
    seconds, _ = timed(lambda: weights.cumsum(1))
    measure("cumsum of 64 x 50,304 doubles", 1e3 * seconds, "ms")
    assert torch.equal(weights.cumsum(1), weights.cumsum(1))
    free_memory()


@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
def test_moves(measure, shape, dtype):
    model = random_model(shape, dtype)
    for n_walkers in WALKERS:
        work = MatrixWork(model, model.kv_cache(n_walkers))
        pieces(measure, model, n_walkers, {"shape": shape, "dtype": dtype, "walkers": n_walkers})
        about = {"shape": shape, "dtype": dtype, "walkers": n_walkers}
        for name, options in KERNELS.items():
            kernel = kernels.build(options, CheckedModel(model, "m"), n_walkers)
            if options.learns_ahead:
                search(measure, model, kernel, about)
            moves(measure, model, kernel, work, {**about, "kernel": name})
        if HAS_GPU:
            assert n_graphs(model.kv_cache(n_walkers)) > LENGTH
    del model
    free_memory()


def pieces(measure, model, n_walkers, about):
    """Measure evaluations of one position, of half and of all, beside the eager one."""
    kv_cache, last = model.kv_cache(n_walkers), LENGTH - 1
    x = torch.randint(model.n_values, (n_walkers, LENGTH), device=DEVICE)
    kv_cache.load(x)

    def evaluate(begin, n):
        kv_cache.begin(begin)
        kv_cache._run(kv_cache._tokens(x[:, begin : begin + n]))

    for n in (1, last // 2, last):
        begin = 0 if n == last else last // 3
        seconds, host = timed(lambda begin=begin, n=n: evaluate(begin, n))
        measure(f"evaluation of {n} positions", 1e3 * seconds, "ms", host_ms=1e3 * host, **about)
    tokens, begin = kv_cache._tokens(x[:, 1:2]), 1
    kv_cache.begin(begin)
    with torch.inference_mode():
        seconds, host = timed(lambda: kv_cache._work(tokens, begin))
    measure("one position, eager", 1e3 * seconds, "ms", host_ms=1e3 * host, **about)
    seconds, host = timed(kv_cache.row)
    measure("a row of logits", 1e3 * seconds, "ms", host_ms=1e3 * host, **about)


def search(measure, model, kernel, about):
    """Measure the search of a rung beyond m, and let the kernel learn from what it finds."""
    ensemble, n_walkers = Canonical(BEYOND * (LENGTH - 1)), about["walkers"]
    stream = DeviceStream(rng.generator(5, "moves"), torch.device(DEVICE), 1 << 16)
    like = torch.zeros((n_walkers, LENGTH), dtype=torch.int64, device=DEVICE)
    first_values = torch.randperm(model.n_values, generator=torch.Generator().manual_seed(1))
    learner = kernel.learner(ensemble)
    for n_batches in (1, 5):  # the difference is what four batches cost
        budget = SearchBudget(n_batches, first_values.numpy(), 0.05)
        synchronize()
        begin = time.perf_counter()
        texts = learner.search(Target(ensemble, kernel.tuned, budget), like, stream)
        seconds = time.perf_counter() - begin
        measure("seconds of a search", seconds, "s", batches=n_batches, **about)
    begin = time.perf_counter()
    learner.learn(ensemble, texts)
    measure("seconds to learn from it", time.perf_counter() - begin, "s", **about)


def moves(measure, model, kernel, work, about):
    """Measure moves per second, the host's share of the time, and the share of the peak."""
    n_walkers = about["walkers"]
    own, shared = (rng.generator(3, purpose) for purpose in ("moves", "choices"))
    stream = DeviceStream(own, torch.device(DEVICE), 1 << 16, shared)
    x = torch.randint(model.n_values, (n_walkers, LENGTH), device=DEVICE)
    beta = (BEYOND if about["kernel"] == "look_ahead" else 1.0) * (LENGTH - 1)
    state, ensemble = kernel.start(x, model.output(x)), Canonical(beta)
    for _ in range(WARM):  # until what is common is recorded
        state, _ = kernel.step(state, ensemble, stream)
    work.done = 0.0
    synchronize()
    begin = time.perf_counter()
    for _ in range(MOVES):
        state, _ = kernel.step(state, ensemble, stream)
    host = time.perf_counter() - begin
    synchronize()
    seconds = time.perf_counter() - begin
    share = work.done / seconds / matrix_peak(about["dtype"])
    measure(
        "moves of walkers", n_walkers * MOVES / seconds, "1/s", ms=1e3 * seconds / MOVES, **about
    )
    measure("the host's share", host / seconds, "", **about)
    measure("share of the matrix peak", share, "", **about)
    assert state.z.isfinite().all()
    assert 0 < share < MOST_OF_PEAK


@pytest.mark.parametrize(("shape", "dtype"), SHAPES[:1])
def test_draws_from_the_model_itself(measure, shape, dtype):
    """What a rung at beta = m does before every exchange, beside ten moves (`test_moves`)."""
    n_walkers = WALKERS[0]
    sampler = AutoregressiveSampler(CheckedModel(random_model(shape, dtype), "m"), n_walkers)
    stream = DeviceStream(rng.generator(1, "moves"), torch.device(DEVICE), 1 << 16)
    x = torch.zeros((n_walkers, LENGTH), dtype=torch.int64, device=DEVICE)
    state = State(x, torch.zeros(n_walkers, device=DEVICE))
    seconds, host = timed(
        lambda: sampler.step(state, Canonical(LENGTH - 1.0), stream), repeats=3, warm=3
    )
    about = {"shape": shape, "dtype": dtype, "walkers": n_walkers}
    measure("a draw of all walkers", 1e3 * seconds, "ms", host_ms=1e3 * host, **about)
    drawn, _ = sampler.step(state, Canonical(LENGTH - 1.0), stream)
    assert drawn.z.isfinite().all()
    assert len(drawn.x.unique(dim=0)) == n_walkers


@pytest.mark.parametrize(
    ("shape", "dtype", "name"),
    [(*SHAPES[0], "metropolis"), (*SHAPES[2], "metropolis"), (*SHAPES[0], "look_ahead")],
)
def test_profile(results_folder, measure, shape, dtype, name):
    """Write which kernels a move of 64 walkers spends its time in: profile-SHAPE-KERNEL.txt."""
    from torch.profiler import ProfilerActivity, profile

    model = random_model(shape, dtype)
    kernel = kernels.build(KERNELS[name], CheckedModel(model, "m"), WALKERS[0])
    if KERNELS[name].learns_ahead:
        search(measure, model, kernel, {"shape": shape, "dtype": dtype, "walkers": WALKERS[0]})
    own, shared = (rng.generator(3, purpose) for purpose in ("moves", "choices"))
    stream = DeviceStream(own, torch.device(DEVICE), 1 << 16, shared)
    x = torch.randint(model.n_values, (WALKERS[0], LENGTH), device=DEVICE)
    beta = (BEYOND if name == "look_ahead" else 1.0) * (LENGTH - 1)
    state, ensemble = kernel.start(x, model.output(x)), Canonical(beta)
    for _ in range(WARM):
        state, _ = kernel.step(state, ensemble, stream)
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if HAS_GPU else [])]
    with profile(activities=kinds) as seen:
        for _ in range(5):
            state, _ = kernel.step(state, ensemble, stream)
        synchronize()
    order = "cuda_time_total" if HAS_GPU else "cpu_time_total"
    text = seen.key_averages().table(sort_by=order, row_limit=40, max_name_column_width=80)
    (results_folder / f"profile-{shape}-{name}.txt").write_text(text, encoding="utf-8")
    assert state.z.isfinite().all()
    assert "Self CPU" in text
