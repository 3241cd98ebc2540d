"""Outputs on a GPU: those of the CPU within rounding, the same bits twice, graphs or none.

The English model has real weights: one of GPT-2's kind, by our own decoder and by Hugging Face's.
"""

import pytest
import torch
from gpu_models import DEVICE, HAS_GPU, NO_GPU, TINY, n_graphs, random_model
from kv_cache_moves import moves_of
from run_tools import ROOT

from omniinput_hpc import rng
from omniinput_hpc.config import CausalLm
from omniinput_hpc.kernels import DeviceStream
from omniinput_hpc.kernels.independent import AutoregressiveSampler
from omniinput_hpc.kernels.state import State
from omniinput_hpc.models.language import causal_lm, hf_decoder
from omniinput_hpc.models.language.cuda_graphs import GraphCache
from omniinput_hpc.models.language.kv_cache import KVCache
from omniinput_hpc.tempering.ensembles import Canonical

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(300)]
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason=NO_GPU)

D, W = 25, 8 if TINY else 64
FLOAT32_ROUNDING = 1e-4
"""z differs by so much at most; 24 sums of 2,000 logits in another order give about 1e-6."""
BFLOAT16_ROUNDING = 0.02
"""Standard deviation of z against float32's; 0.0025 was seen on a CPU."""


def english(dtype, device):
    path = str(ROOT / "inputs/models/english")
    return causal_lm.build(CausalLm(kind="causal-lm", path=path, length=D, dtype=dtype), device)


@pytest.fixture(scope="module")
def reference():
    """Inputs, half of them uniform and half drawn from the model, and z on the CPU in float32."""
    model = english("float32", "cpu")
    stream = DeviceStream(rng.generator(1, "moves"), torch.device("cpu"), W * D)
    sampler = AutoregressiveSampler(model, W)
    zero = State(torch.zeros((W, D), dtype=torch.int64), torch.zeros(W))
    drawn = sampler.step(zero, Canonical(24.0), stream)[0].x
    x = drawn.clone()
    x[::2] = torch.randint(model.n_values, (W, D), generator=torch.Generator().manual_seed(1))[::2]
    return x, model.output(x).double()


def new_cache(model, decoder):
    """Return a KV cache, of our own decoder or of Hugging Face's."""
    found = model._decoder if decoder == "own" else hf_decoder.make(model.lm, D - 1)
    return KVCache(found, model.token_ids, model._before, D, W)


def by_token(kv_cache, x):
    """Return z by evaluating one token after the other."""
    kv_cache.load(x)
    kv_cache.begin(0)
    for site in range(D - 1):
        kv_cache.extend(x[:, site])
    kv_cache._score(x, 0)
    return kv_cache._z()


@pytest.mark.parametrize("decoder", ["own", "transformers"])
def test_z_is_the_cpus(reference, measure, decoder):
    x, z = reference
    model = english("float32", DEVICE)
    kv_cache = new_cache(model, decoder)
    whole = kv_cache.output(x.to(DEVICE)).cpu().double()
    token = by_token(kv_cache, x.to(DEVICE)).cpu().double()
    about = {"dtype": "float32", "decoder": decoder}
    measure("largest |z - the CPU's|", float((whole - z).abs().max()), "nats", **about)
    measure("largest |z by token - whole|", float((token - whole).abs().max()), "nats", **about)
    torch.testing.assert_close(whole, z, rtol=0, atol=FLOAT32_ROUNDING)
    torch.testing.assert_close(token, whole, rtol=0, atol=FLOAT32_ROUNDING)


@pytest.mark.parametrize("decoder", ["own", "transformers"])
def test_bfloat16_is_near_float32_and_not_as_near_as_float32_is(reference, measure, decoder):
    x, z = reference
    kv_cache = new_cache(english("bfloat16", DEVICE), decoder)
    whole = kv_cache.output(x.to(DEVICE)).cpu().double()
    token = by_token(kv_cache, x.to(DEVICE)).cpu().double()
    about = {"dtype": "bfloat16", "decoder": decoder}
    measure("sd of z - float32's", float((whole - z).std()), "nats", **about)
    measure("mean of z - float32's", float((whole - z).mean()), "nats", **about)
    measure("sd of z by token - whole", float((token - whole).std()), "nats", **about)
    assert float((whole - z).std()) < BFLOAT16_ROUNDING
    assert float((token - whole).std()) < BFLOAT16_ROUNDING
    assert float((whole - z).abs().max()) > FLOAT32_ROUNDING  # else the test above says nothing


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_same_bits_twice(dtype):
    model = english(dtype, DEVICE)
    first, again = (moves_of(new_cache(model, "own"), model, 20) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    other = moves_of(new_cache(english(dtype, DEVICE), "own"), model, 20)
    assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@needs_gpu
@pytest.mark.parametrize(
    ("shape", "dtype"), [("gpt2-small", "float32"), ("olmo-1b", "float32"), ("olmo-1b", "bfloat16")]
)
def test_graphs_find_the_bits_of_eager_passes(measure, shape, dtype):
    model = random_model(shape, dtype, length=D)
    eager = KVCache(model._decoder, model.token_ids, model._before, D, W)
    eager._run_positions = eager._work
    recorded = KVCache(model._decoder, model.token_ids, model._before, D, W)
    expected = moves_of(eager, model, 60)
    found = moves_of(recorded, model, 60)
    about = {"shape": shape, "dtype": dtype}
    measure("spans recorded as graphs", n_graphs(recorded), "", **about)
    assert n_graphs(recorded) > D
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    again = moves_of(recorded, model, 60)  # hardly anything but replays
    assert all(torch.equal(a, b) for a, b in zip(expected, again, strict=True))


@needs_gpu
def test_work_that_decides_anew_is_not_replayed():
    """The wrong variant: a graph keeps what the host decided when it was recorded."""
    buffer, calls = torch.zeros((4, W), dtype=torch.int64, device=DEVICE), []

    def work(tokens, begin):
        calls.append(1)
        return buffer[begin : begin + len(tokens)].copy_(tokens + len(calls))

    graphs = GraphCache(work, torch.zeros_like(buffer))
    for call in range(6):
        tokens = torch.full((2, W), call, device=DEVICE)
        graphs(tokens, 0)
        assert torch.equal(buffer[:2], tokens + len(calls)), call
    assert not graphs._graphs
