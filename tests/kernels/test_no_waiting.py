"""Segments of moves on a device that computes nothing: shapes, types and devices only.

Tensors on torch's "meta" device have no numbers. Who asks for one, and would wait for a GPU, gets
an exception, and so does who mixes devices. What a GPU computes is not seen here.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from language_folders import DECODERS, save_classifier
from torch.overrides import TorchFunctionMode

from omniinput_hpc import kernels, rng
from omniinput_hpc.config import CausalLm, SequenceClassifier, WangLandau
from omniinput_hpc.config import kernels as config_kernels
from omniinput_hpc.config.kernels import (
    DiscreteLangevin,
    FromLaw,
    GibbsWithGradients,
    LmConditional,
    Metropolis,
    Mixture,
)
from omniinput_hpc.kernels import DeviceStream
from omniinput_hpc.kernels.independent import UniformSampler
from omniinput_hpc.kernels.look_ahead.continuations import Continuations
from omniinput_hpc.kernels.parts.constrained import UniformInside
from omniinput_hpc.kernels.parts.law import Law
from omniinput_hpc.kernels.wang_landau import WangLandauEnsemble
from omniinput_hpc.models.checked import CheckedModel
from omniinput_hpc.models.constraint import Automaton
from omniinput_hpc.models.language import causal_lm, hf_decoder, sequence_classifier
from omniinput_hpc.sampling import walkers
from omniinput_hpc.sampling.walkers import Recording, Walkers
from omniinput_hpc.tempering.ensembles import Canonical, Gaussian

D, W, STEPS, EVERY = 7, 4, 3, 3  # lm-conditional redraws a site, a suffix and a block
META = torch.device("meta")
KERNELS = {
    "metropolis": Metropolis(name="metropolis"),
    "two sites": Metropolis(name="metropolis", sites=2),
    "gwg": GibbsWithGradients(name="gibbs-with-gradients"),
    "dlp": DiscreteLangevin(name="discrete-langevin"),
    "lm-conditional": LmConditional(name="lm-conditional"),
}
PARTS = [{"name": "metropolis", "weight": 1.0}, {"name": "lm-conditional", "weight": 1.0}]
KERNELS["looking ahead"] = LmConditional(name="lm-conditional", look_ahead=True)
KERNELS["from-law"] = FromLaw(name="from-law")
KERNELS["inside"] = FromLaw(name="from-law")
KERNELS["some inside"] = Mixture(
    name="mixture", parts=[{"name": n} for n in ("from-law", "metropolis", "discrete-langevin")]
)
KERNELS["mixture"] = Mixture(name="mixture", parts=PARTS)
ONE = np.ones(1)
TABLE = Continuations(
    1.5,
    -0.5,
    np.array([[-1, -1, 2, 3]]),
    -ONE,
    ONE,
    0 * ONE,
    np.array([0]),
    np.array([3]),
    -ONE,
    ONE,
)
EDGES = np.linspace(0.0, 10.0, 101)


@pytest.fixture
def model(request, monkeypatch, tmp_path):
    """A language model whose weights are on the device; one of Llama's kind runs as any decoder."""
    kind = getattr(request, "param", "gpt2")

    def load(wanted, folder, dtype, device):
        return DECODERS[kind]().eval().requires_grad_(False).to(device)

    monkeypatch.setattr(causal_lm, "load", load)
    monkeypatch.setattr(causal_lm, "check_length", lambda *_, **__: None)  # needs numbers
    monkeypatch.setattr(hf_decoder, "try_out", lambda *_: None)  # compares numbers
    options = CausalLm(kind="causal-lm", path=str(tmp_path), length=D)
    return causal_lm.build(options, str(META))


def inside(model):
    """Inputs with an even number of value 0, and without value 1 at the first site."""
    next_qv = np.array([[0], [1], [2]], dtype=np.int32).repeat(model.n_values, axis=1)
    next_qv[:2, 0] = [1, 0]
    allowed_iv = np.ones((model.n_sites, model.n_values), dtype=bool)
    allowed_iv[0, 1] = False
    even = np.array([True, False, False])
    return UniformInside(Automaton(next_qv, even, allowed_iv, model.n_sites), str(META))


class NothingIsCopied(TorchFunctionMode):
    """Notices a tensor of the host that is copied to the device: a GPU would be waited for."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if (
            func in (torch.Tensor.to, torch.tensor, torch.as_tensor)
            and found.numel()
            and found.device == META
        ):
            from_host = func is not torch.Tensor.to or args[0].device != META
            assert not from_host, "the host's numbers are copied to the device in a move"
        return found


class BlockStream(DeviceStream):
    """Random numbers are copied in blocks, which is not what is looked for."""

    def uniform(self, *shape):
        with torch._C.DisableTorchFunction():
            return super().uniform(*shape)


@pytest.fixture(autouse=True)
def blocks(monkeypatch):
    monkeypatch.setattr(walkers, "DeviceStream", BlockStream)


def segment(model, kernel, ensemble, exact_sampler=None, every_move=False):
    """Move walkers for a segment, as a rung does between two exchanges."""
    checked = CheckedModel(model, "model", (2e-5, 3e-6))
    recording = Recording(STEPS, EVERY, np.dtype(np.uint8))
    batch = Walkers(kernel, checked, ensemble, META, recording)
    batch.set_ensemble(ensemble, exact_sampler, every_move)
    batch.place(np.zeros((W, D), dtype=np.uint8), np.zeros(W, dtype=np.float32))
    own, shared = (rng.generator(1, purpose, 0) for purpose in ("moves", "choices"))
    moves = batch.begin_segment(own, shared, 0)
    with NothingIsCopied():
        for _ in range(STEPS):
            moves.step()
    return batch.state, moves


ENSEMBLES = {
    "canonical": lambda: Canonical(3.0),
    "hot": lambda: Canonical(-1.0),
    "gaussian": lambda: Gaussian(1.0, 0.5, 3.0),
    "flat": lambda: WangLandauEnsemble(EDGES, (0, 100), WangLandau(), META, W),
}


def test_every_kernel_of_the_table_is_moved_here():
    assert set(config_kernels.KERNELS) <= {type(options) for options in KERNELS.values()}


def cases():
    """Yield what is moved: llama's cache is another's, but ensembles do not look at the model."""
    for model, ensemble in product(("gpt2", "llama"), ENSEMBLES):
        again = model == "llama" and ensemble != "canonical"
        yield pytest.param(model, ensemble, marks=[pytest.mark.release] if again else [])


@pytest.mark.slow
@pytest.mark.parametrize(("model", "ensemble"), cases(), indirect=["model"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_moves_do_not_wait_for_the_device(model, kernel, ensemble):
    assert model._decoder is not None
    if kernel == "from-law":
        model.law = Law(model, gives_z=True)
    if "inside" in kernel:
        model.law = inside(model)
    built = kernels.build(KERNELS[kernel], model, W)
    if kernel == "looking ahead":
        built.tuned = TABLE.numbers()
    state, moves = segment(model, built, ENSEMBLES[ensemble]())
    assert moves.z_tw.device == META
    assert (state.x.device, state.z.dtype) == (META, torch.float32)
    with pytest.raises(RuntimeError, match="meta tensor"):  # the one place where the host waits
        moves.recorded()


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["metropolis", "gwg", "dlp"])
def test_moves_on_a_text_classifier_do_not_wait(monkeypatch, tmp_path, kernel):
    folder, load = save_classifier(tmp_path), sequence_classifier.load
    monkeypatch.setattr(sequence_classifier, "load", lambda *args: load(*args[:3], "cpu").to(META))
    monkeypatch.setattr(sequence_classifier, "check_length", lambda *_, **__: None)
    options = {"kind": "sequence-classifier", "path": str(folder), "length": D + 2, "target": 1}
    model = sequence_classifier.build(SequenceClassifier.model_validate(options), str(META))
    state, _ = segment(model, kernels.build(KERNELS[kernel], model, W), Canonical(3.0))
    assert state.z.device == META


def test_the_anchor_at_beta_0_does_not_wait(model):
    kernel = kernels.build(KERNELS["lm-conditional"], model, W)
    state, _ = segment(model, kernel, Canonical(0.0), UniformSampler(model, W), every_move=True)
    assert state.x.device == META


class Asking:
    """A kernel that looks at its state."""

    def __init__(self, kernel):
        self._kernel, self.parts = kernel, kernel.parts
        self.start, self.uniforms_per_move = kernel.start, kernel.uniforms_per_move

    def step(self, state, ensemble, stream):
        assert float(state.z.mean()) < 1e9
        return self._kernel.step(state, ensemble, stream)


class Copying(Asking):
    """A kernel that makes a tensor on the host and copies it."""

    def step(self, state, ensemble, stream):
        log_q = torch.zeros(W, dtype=torch.float64).to(state.z.device)
        moved, info = self._kernel.step(state, ensemble, stream)
        return moved, replace(info, log_q=log_q)


def test_a_kernel_that_copies_from_the_host_is_caught(model):
    with pytest.raises(AssertionError, match="copied to the device in a move"):
        segment(model, Copying(kernels.build(KERNELS["metropolis"], model, W)), Canonical(3.0))


def test_a_kernel_that_asks_is_caught(model):
    with pytest.raises(RuntimeError, match="meta tensor"):
        segment(model, Asking(kernels.build(KERNELS["metropolis"], model, W)), Canonical(3.0))
