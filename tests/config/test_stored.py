"""Inputs of run files that this version would refuse: unknown keys, names and checks of another."""

import pytest
import tomli_w

from omniinput_hpc.config import CausalLm, Config, input_file, stored
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.table import display, side_of, z_label

GOOD = {
    "run": {"output": "a.h5", "seed": 3, "rounds": 5, "burn_in": 2},
    "model": {"kind": "causal-lm", "path": "none", "length": 8, "tokens": "no-special"},
    "space": {"allowed": "tokenizer"},
    "sampler": {"method": "ancestral", "walkers": 4, "steps": 5, "exchanges": 3},
    "ladder": {"betas": [0.0, 7.0]},
    "kernel": {"name": "metropolis", "sites": 2},
    "bins": {"lower": 0.0, "upper": 8.0, "width": 0.5},
    "samples": {"every": 1},
    "analysis": {"side": "high"},
}
OTHER = {  # by name, what another version might have stored
    "a key of a table": {"run": {"patience": 3}},
    "a key of the kernel": {"kernel": {"speed": 3}},
    "a table": {"weather": {"is": "fine"}},
    "a value that is refused today": {"samples": {"every": 5}},
    "a type": {"run": {"threads": "all"}},
    "a number out of bounds": {"run": {"threads": 10**6}},
}


def changed(tables):
    """Return GOOD with other keys in some tables."""
    names = {**GOOD, **tables}
    return {name: {**GOOD.get(name, {}), **tables.get(name, {})} for name in names}


def read(tables):
    return stored.parse(tomli_w.dumps(tables))


def test_an_input_of_this_version_is_read_as_ever():
    assert read(GOOD) == Config.model_validate(GOOD)
    assert type(read(GOOD).model) is CausalLm


@pytest.mark.parametrize("name", OTHER)
def test_what_another_version_stored_hides_nothing_else(name):
    with pytest.raises(UserError):
        input_file.parse(tomli_w.dumps(changed(OTHER[name])), "stored")
    found, good = read(changed(OTHER[name])), Config.model_validate(GOOD)
    assert (found.seed, found.exchanges, found.run.burn_in) == (3, 3, 2)
    assert found.sampler == good.sampler and found.model == good.model
    assert found.ladder == good.ladder and found.allowed == "tokenizer"
    assert found.predicted_from == 1 and not found.every_token and not found.annealed
    assert found.kernel.name == "metropolis"
    assert z_label(found) == z_label(good) and side_of(found) == side_of(good)


def test_a_model_that_is_refused_keeps_its_keys():
    """Its output has its label and its side; its inputs are not shown by wrong options."""
    model = {"kind": "image-classifier", "path": "p", "target": "log-softmax", "label": 3}
    found = read({**GOOD, "model": {**model, "sign": -1, "glow": 2, "noise": True}})
    assert "log-softmax of class 3" in z_label(found) and z_label(found).endswith("with noise")
    assert side_of(found).end == "high" and found.model_name == "p"
    of_any = read({**GOOD, "model": {**model, "target": "log-odds", "label": "any"}})
    assert "largest log-odds of all classes" in z_label(of_any)
    with pytest.raises(UserError, match=r"model\.glow: Extra inputs"):
        display(found)
    language = read({**GOOD, "space": {}, "model": {"kind": "causal-lm", "prefix": "a", "glow": 2}})
    assert language.predicted_from == 0 and language.every_token


def test_names_of_another_version_are_kept():
    tables = changed({"kernel": {"name": "swim"}, "sampler": {"method": "census"}})
    found = read({**tables, "model": {"kind": "music"}})
    assert (found.kernel.name, found.sampler.method) == ("swim", "census")
    assert found.model.kind == "music" and found.predicted_from is None
    with pytest.raises(UserError, match="music"):
        display(found)


def test_a_name_that_is_not_a_text_is_left_out():
    found = read(changed({"sampler": {"method": 3}, "kernel": {"name": 3}, "weather": {}}))
    assert (found.sampler.method, found.kernel.name) == ("parallel-tempering", "metropolis")


def test_what_is_missing_is_none():
    found = read({"run": {}})
    assert (found.seed, found.exchanges, found.sampler.steps, found.run.burn_in) == (None,) * 3 + (
        0,
    )
    assert (found.model.kind, found.model_name, found.ladder, found.allowed) == ("", "", None, None)


@pytest.mark.parametrize("text", [
    "a = 1", "run = 3\nmodel = 4", "[run]\nburn_in = 'x'", "[run]\nburn_in = -1",
    "[run]\n[[model]]", "[run]\n[model]\nkind = 'causal-lm'\npath = 3", "[run]\n[sampler",
    "sampler = 1\n[run]",
    "[run]\n[analysis]\nside = 'left'",
])  # fmt: skip
def test_no_input_of_any_version(text):
    with pytest.raises(ValueError):
        stored.parse(text)
