"""[output]: its tables, how mistakes are reported, and what a stored input keeps."""

import pytest
import tomli_w

from omniinput_hpc.cli.common import to_toml
from omniinput_hpc.config import input_file, stored
from omniinput_hpc.config.output import models_of, roughest
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.table import side_of, with_side, z_label

GOOD = {
    "run": {"output": "a.h5", "seed": 1, "rounds": 2},
    "model": {"kind": "causal-lm", "path": "m", "length": 8, "prefix": "a", "tokens": "no-special"},
    "sampler": {"method": "parallel-tempering", "walkers": 4, "steps": 2, "exchanges": 1},
    "ladder": {"betas": [0.0]},
    "bins": {"lower": 0.0, "upper": 1.0, "width": 0.5},
    "samples": {"every": 1},
}
OTHER = {"kind": "causal-lm", "path": "o"}
OUTPUTS = {
    "next": {"targets": [" yes", 7], "after": "\nAnswer:", "against": [3], "aggregate": "max"},
    "text": {"text": [3, 4]},
    "difference": {"other": {**OTHER, "length": 8, "dtype": "bfloat16"}},
    "classifier": {"path": "judge", "class": 1},
    "python": {"function": "module:function"},
}


def read(**tables):
    return input_file.checked({**GOOD, **tables}, "here")


def output(name, **keys):
    return {"name": name, **keys}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_is_stored_with_its_keys(name):
    """Also one named `class`, which is a word of Python."""
    config = read(output=output(name, **OUTPUTS[name]))
    again = stored.parse(to_toml(config))
    assert again == config and again.output.name == name
    kept = again.output.model_dump(exclude_unset=True)
    assert {k: v for k, v in kept.items() if k != "other"}.items() >= {
        k: v for k, v in OUTPUTS[name].items() if k != "other"
    }.items()
    assert config.predicted_from is None and read().predicted_from == 0


def test_an_input_without_the_table_does_not_mention_it():
    assert "output" not in to_toml(read()).replace('output = "a.h5"', "")
    assert models_of(read().output, read().model) == [read().model]


def test_the_other_model_has_the_same_inputs_unless_it_says_otherwise():
    other = read(output=output("difference", other=OTHER)).output.other
    assert (other.length, other.prefix, other.tokens, other.path) == (8, "a", "no-special", "o")
    other = read(output=output("difference", other={**OTHER, "length": 9, "prefix": "b"})).output
    assert (other.other.length, other.other.prefix) == (9, "b")
    python = {"kind": "python", "factory": "a:b"}
    assert read(output=output("difference", other=python)).output.other.factory == "a:b"


def test_weights_of_all_models_that_z_is_made_of_round_it():
    config = read(output=output("difference", **OUTPUTS["difference"]))
    assert config.rounded_as == "bfloat16" == roughest(models_of(config.output, config.model))
    half = {**GOOD["model"], "dtype": "float16"}
    for name in ("classifier", "python"):  # z has other weights, or none
        assert read(model=half, output=output(name, **OUTPUTS[name])).rounded_as == "float32"
    assert read(model=half, output=output("next", **OUTPUTS["next"])).rounded_as == "float16"


MISTAKES = [
    ({"name": "nexts", "targets": [1]}, "output.name: expected one of next, text, difference"),
    ({"targets": [1]}, "output.name: missing"),
    (output("next"), "output.targets: missing"),
    (output("next", targets=[]), "output.targets: expected a list that is not empty"),
    (output("next", targets=[1.5]), "output.targets: expected texts of one token, or token ids"),
    (output("next", targets=[-1]), "output.targets: expected texts of one token, or token ids"),
    (output("next", targets=["a"], against=[""]), "output.against: expected texts of one token"),
    (output("next", targets=["a"], after=7), "output.after: expected a text or a list of token"),
    (output("next", targets=["a"], aggregate="mean"), "output.aggregate: expected"),
    (output("next", targets=["a"], text="b"), "output.text: unknown key"),
    (output("text", text=""), "output.text: expected a text or a list of token ids, found ''"),
    (output("difference"), "output.other: missing"),
    (output("difference", other={"kind": "causal-lm"}), "output.other.path: missing"),
    (output("difference", other={"kind": "lm"}), "output.other.kind: expected one of"),
    (output("classifier", path="p"), "output.class: missing"),
    (output("classifier", **{"path": "p", "class": -1}), "output.class: expected a number of at"),
    (output("classifier", path="p", clas=1), 'did you mean "class"?'),
    (output("python", function="f"), 'output.function: expected "module:function"'),
]


@pytest.mark.parametrize("table, words", MISTAKES)
def test_mistakes_name_the_key(table, words):
    with pytest.raises(UserError) as error:
        read(output=table)
    assert words in str(error.value)


KINDS = [
    ("sequence-classifier", {"path": "p", "length": 8, "target": 1}),
    ("python", {"factory": "a:b"}),
    ("image-classifier", {"path": "p"}),
]


@pytest.mark.parametrize("kind, keys", KINDS)
@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_that_does_not_fit_the_kind_is_refused(kind, keys, name):
    fits = name in ("difference", "python") or (name, kind) == ("classifier", "python")
    tables = {"model": {"kind": kind, **keys}, "output": output(name, **OUTPUTS[name])}
    if fits:
        assert read(**tables).output.name == name
        return
    words = f'output.name = "{name}" is for model.kind = "causal-lm".*, not "{kind}"'
    with pytest.raises(UserError, match=words):
        read(**tables)


def test_paths_in_the_table_are_expanded(monkeypatch):
    monkeypatch.setenv("JUDGES", "/judges")
    table = output("classifier", **{"path": "$JUDGES/one", "class": 1})
    assert read(output=table).output.path == "$JUDGES/one"  # the program's own text
    found = input_file.checked({**GOOD, "output": table}, "here", stored=False)
    assert found.output.path == "/judges/one"
    other = output("difference", other={**OTHER, "path": "$JUDGES/lm"})
    found = input_file.checked({**GOOD, "output": other}, "here", stored=False)
    assert found.output.other.path == "/judges/lm"


def test_an_output_of_another_version_is_kept():
    tables = {**GOOD, "output": {"name": "mood", "of": "all"}}
    found = stored.parse(tomli_w.dumps(tables))
    assert (found.output.name, found.predicted_from) == ("mood", None)
    assert "own unit" in z_label(found) and side_of(found).assumed
    assert with_side(found).analysis is None or with_side(found).analysis.side is None
    broken = stored.parse(tomli_w.dumps({**GOOD, "output": {"name": "next", "targets": 3}}))
    assert broken.output.name == "next" and "own unit" in z_label(broken)
    assert stored.parse(tomli_w.dumps({**GOOD, "output": {"name": 3}})).output.name == ""
