"""`python`: a function of inputs, and of their texts; what it must return."""

import sys

import pytest
import torch
from language_folders import save_decoder
from output_cases import built, inputs

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.checked import check_keeps_inputs, try_out
from omniinput_hpc.models.protocol import offers_of

MODULE = """
import numpy as np
import torch

def firsts(x): return x[:, 0].float()
def scaled(x, scale=2.0): return scale * x[:, 0].float()
def letters(x, texts): return np.array([text.count("a") for text in texts], dtype=np.float32)
def length(x, texts): return torch.tensor([float(len(text)) for text in texts])
def doubles(x): return x[:, 0].double()
def short(x): return x[1:, 0].float()
def words(x): return ["a"] * len(x)
def nothing(): return 0.0
def three(x, texts, z): return z
def sorting(x):
    x.copy_(x.sort(1).values)
    return x[:, 0].float()
def graded(x):
    return (torch.nn.Parameter(torch.arange(40.0))[x[:, 0]])
number = 3
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_outputs.py").write_text(MODULE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_decoder("gpt2", tmp_path_factory.mktemp("gpt2"))


def made(folder, function, output="my_outputs", **keys):
    space = keys.pop("space", {})
    model = {"path": str(folder), "length": 5, **keys}
    return built(model, {"name": "python", "function": f"{output}:{function}"}, space=space)


def test_a_function_gets_the_values_that_a_run_file_holds(folder):
    plain = made(folder, "firsts")
    x = inputs(plain)
    assert torch.equal(plain.output(x), x[:, 0].float())
    assert torch.equal(made(folder, "scaled").output(x), 2.0 * x[:, 0])
    some = made(folder, "firsts", space={"allowed": "tokenizer"})
    x = inputs(some)
    ids = torch.from_numpy(some.space.to_ids(x.numpy()))
    assert torch.equal(some.output(x), ids[:, 0].float()) and some.n_values < 29


def test_a_function_gets_the_texts_with_the_prefix(folder):
    model = made(folder, "letters", prefix="aba")
    x = inputs(model)
    assert model.output(x).tolist() == [t.count("a") for t in model.render(x)]
    assert (model.output(x) >= 2.0).all() and model.output(x).dtype == torch.float32
    assert made(folder, "length").output(x).tolist() == [
        len(t) for t in made(folder, "length").render(x)
    ]


def test_texts_may_come_from_a_model_of_ones_own():
    sums = {"kind": "python", "factory": "small_models:make"}
    model = built(sums, {"name": "python", "function": "my_outputs:length"})
    assert model.output(torch.zeros((2, 8), dtype=torch.int64)).tolist() == [15.0, 15.0]
    none = {"kind": "python", "factory": "toy_models:coupled"}
    with pytest.raises(UserError, match=r"output.function = my_outputs:length reads texts, but"):
        built(none, {"name": "python", "function": "my_outputs:length"})


def test_texts_need_a_tokenizer(tmp_path, folder):
    save_decoder("gpt2", tmp_path / "bare")
    (tmp_path / "bare/tokenizer.json").unlink()
    made(tmp_path / "bare", "firsts")
    with pytest.raises(UserError, match=r"my_outputs:letters needs a tokenizer in"):
        made(tmp_path / "bare", "letters")


WRONG = {
    "doubles": r"it must return float32 \[4\] for 4 inputs, found float64 \[4\]",
    "short": r"found float32 \[3\]",
    "words": "found list",
}


@pytest.mark.parametrize("function", WRONG)
def test_what_is_not_z_is_refused(folder, function):
    model = made(folder, function)
    with pytest.raises(
        UserError, match=rf"output.function = my_outputs:{function}: .*{WRONG[function]}"
    ):
        try_out(model, torch.zeros((4, 5), dtype=torch.int64), "it")


def test_a_function_must_take_inputs(folder):
    for function in ("nothing", "three"):
        with pytest.raises(UserError, match="it must take x, or x and texts"):
            made(folder, function)
    with pytest.raises(UserError, match="my_outputs has no function number"):
        made(folder, "number")
    with pytest.raises(UserError, match=r"output.function = nowhere:f: no module nowhere"):
        made(folder, "f", output="nowhere")


def test_a_function_that_writes_into_its_inputs_is_found(folder):
    with pytest.raises(UserError, match="must not write into x"):
        check_keeps_inputs(made(folder, "sorting"), (8, 5), "it", "cpu", own=True)


def test_nothing_else_is_offered_and_z_has_no_gradient(folder):
    model = made(folder, "graded")
    offers = offers_of(model)
    assert not model.output(inputs(model)).requires_grad
    assert (offers.output_and_gradient, offers.kv_cache, offers.conditional_logits) == (None,) * 3
