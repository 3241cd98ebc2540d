"""The first look at a model: what cannot be sampled is bad input, with --check and without."""

import re

import pytest
import torch
from language_folders import save_decoder
from run_tools import ROOT
from runs_in_progress import WORLD, config_of
from safetensors.torch import load_file, save_file

from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.sampling import auto_walkers, build, first_look, forecast

MODELS = """
import torch
class Model:
    n_sites, n_values = 6, 3
    def __init__(self, kind): self.kind = kind
    def output(self, x):
        if self.kind == "sorts":
            x.copy_(x.sort(1).values)
        if self.kind == "counts":
            x += 1
        z = x.float().sum(1)
        return torch.where(x[:, 0] == 1, float(self.kind), z) if self.kind in ("nan", "inf") else z
    def output_and_gradient(self, x):
        if self.kind == "gradient":
            x[:, 0] = 0
        return self.output(x), torch.zeros(*x.shape, 3)
def make(device, kind): return Model(kind)
"""


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Return what builds a run with one of `MODELS`."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "my_first_models", raising=False)
    (tmp_path / "my_first_models.py").write_text(MODELS)

    def make(kind, *changes):
        options = f"model.options={{kind = '{kind}'}}"
        factory = "model.factory=my_first_models:make"
        return build.build(WORLD, config_of(tmp_path, factory, options, *changes), None)

    return make


@pytest.mark.parametrize(("kind", "message"), [
    ("sorts", r"output\(x\) must not write into x; let it change a copy"),
    ("counts", r"output\(x\) must not write into x"),
    ("gradient", r"output_and_gradient\(x\) must not write into x"),
    ("nan", r"returned a z that is not finite for the input in slot"),
    ("inf", r"returned a z that is not finite for the input in slot"),
])  # fmt: skip
@pytest.mark.parametrize("noise", [False, True])
def test_what_cannot_be_sampled_is_bad_input(built, kind, message, noise):
    """Also where outputs may differ, and so are not compared."""
    with pytest.raises(UserError, match=message):
        run = built(kind, f"model.noise={str(noise).lower()}")  # some zeros show already
        run.check_is_function()
        run.probe()


def test_a_usable_model_passes_and_is_probed(built):
    run = built("")
    run.check_is_function()
    assert len(run.probe()) == first_look.N_PROBES


def test_an_output_that_only_moves_show_is_bad_input_for_check(built, monkeypatch):
    run = built("nan")
    with pytest.raises(UserError, match="not finite"):
        forecast.tried(WORLD, run, 0.5)
    with pytest.raises(UserError, match="not finite"):
        auto_walkers.memory_of_moves(WORLD, run)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_float16_that_overflows_names_the_type_to_take(tmp_path, dtype):
    """All weights fit: it is products of them that do not."""
    save_decoder("gpt2", tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    weights["transformer.h.0.mlp.c_fc.weight"] *= (
        3e4 / weights["transformer.h.0.mlp.c_fc.weight"].abs().max()
    )
    save_file(weights, file, metadata={"format": "pt"})
    words = [
        f"run.output={tmp_path}/run.h5", f"model.path={tmp_path}", "model.length=5",
        f"model.dtype={dtype}", "kernel.name=metropolis", "ladder.betas=[0.0, 2.0]",
        "ladder.tune=false", "sampler.walkers=8",
    ]  # fmt: skip
    text = (ROOT / "inputs/toy.toml").read_text()
    for key in ("lowest", "highest", "rungs", "spacing", "first"):
        text = re.sub(rf"(?m)^{key} = .*$", "", text)
    config = input_file.parse(text, "toy.toml", words)

    def look():
        run = build.build(WORLD, config, None)
        run.check_is_function()
        assert torch.tensor(run.probe()).isfinite().all()

    if dtype == "float16":
        with pytest.raises(UserError, match=r'model\.dtype = "float16".* "bfloat16"'):
            look()
    else:
        look()
