"""The input file: every mistake is listed, with its key, what was expected, and a hint."""

import tomllib

import numpy as np
import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from run_tools import ROOT

from omniinput_hpc import models
from omniinput_hpc.cli import common
from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError

GOOD = {
    "run": {"output": "runs/a.h5", "seed": 1, "rounds": 10},
    "model": {"kind": "causal-lm", "path": "inputs/models/toy", "length": 8},
    "sampler": {"walkers": 4, "steps": 5, "exchanges": 2},
    "ladder": {"betas": [0.0, 1.0]},
    "bins": {"lower": 0.0, "upper": 12.0, "width": 0.02},
    "samples": {"every": 5},
}


def changed(path, value):
    """Return the good input with one key set, or removed when value is None."""
    tree = tomllib.loads(tomli_w.dumps(GOOD))
    *tables, key = path.split(".")
    place = tree
    for table in tables:
        place = place.setdefault(table, {})
    if value is None:
        del place[key]
    else:
        place[key] = value
    return tomli_w.dumps(tree)


def message(text):
    with pytest.raises(UserError) as caught:
        input_file.parse(text, "a.toml")
    return str(caught.value)


def test_defaults_and_derived_numbers():
    config = input_file.parse(tomli_w.dumps(GOOD), "a.toml")
    assert config.run.burn_in == 0
    assert config.run.threads == 1
    assert config.kernel.name == "metropolis"
    assert len(config.bins.edges) == 601
    assert config.bins.edges[150] == 0.0 + 150 * 0.02
    closed = config.bins.model_copy(update={"lower": -0.16, "upper": 1.0, "width": 0.02})
    assert closed.lower + 58 * closed.width < 1.0 == closed.edges[-1]  # rounded
    assert config.samples_per_round == 4 * (5 * 2 // 5)


def test_analysis_may_be_left_out_or_empty():
    assert input_file.parse(tomli_w.dumps(GOOD), "a.toml").analysis is None
    for table in ({}, {"side": "high"}):
        config = input_file.parse(changed("analysis", table), "a.toml")
        assert config.analysis.side == table.get("side")


def test_the_stored_input_is_read_back_as_the_same():
    config = input_file.parse(tomli_w.dumps(GOOD), "a.toml")
    assert input_file.parse(common.to_toml(config), "stored") == config


def test_tf32_is_for_float32_and_is_compared_as_float16():
    tree = tomli_w.dumps({**GOOD, "run": {**GOOD["run"], "precision": "tf32"}})
    config = input_file.parse(tree, "a.toml")
    plain = input_file.parse(tomli_w.dumps(GOOD), "a.toml")
    assert (plain.run.precision, plain.rounded_as, config.rounded_as) == (
        "highest", "float32", "float16",
    )  # fmt: skip
    assert models.rounding(config) > models.rounding(plain)
    assert models.closeness(config, 1.0) > models.closeness(plain, 1.0)
    with pytest.raises(UserError, match=r'"tf32" is for float32, but model\.dtype'):
        input_file.parse(tree, "a.toml", ["model.dtype=bfloat16"])


def mixture(**part):
    return {"name": "mixture", "parts": [{"name": "metropolis", **part}]}


IMAGES = {"kind": "image-classifier", "path": "inputs/models/digits-mlp"}
CUSTOM = {**IMAGES, "path": "a.safetensors", "factory": "a:b", "shape": [8, 8], "n_values": 17}
MISTAKES = [
    ("model", {**IMAGES, "label": -1}, "model.label: expected a number of at least 0"),
    ("model", {**IMAGES, "sign": 0}, "model.sign: expected -1 or 1, found 0"),
    ("model", {**IMAGES, "target": "logits"}, 'did you mean "logit"?'),
    ("model", {**IMAGES, "lable": 0}, 'model.lable: unknown key (did you mean "label"?)'),
    ("model", {**IMAGES, "options": {"a": 1}}, "model: options: only with a factory"),
    ("model", {**IMAGES, "factory": "a b"}, 'model.factory: expected "module:function"'),
    ("model", {**CUSTOM, "shape": [8]}, "model.shape"),
    ("model", {**CUSTOM, "n_values": 1}, "model.n_values: expected a number of at least 2"),
    ("model", {**IMAGES, "factory": "a:b"}, "a factory also requires shape"),
    ("model", {**CUSTOM, "path": "a.pt2"}, "model.path: torch.export programs (.pt2) are not"),
    ("run.rounds", 0, "run.rounds: expected a number of at least 1"),
    ("run.rounds", 2.5, "run.rounds: expected a whole number, found 2.5"),
    ("run.rounds", True, "run.rounds: expected a whole number, found true"),
    ("run.rounds", "ten", "run.rounds: expected a whole number, found 'ten'"),
    ("run.rounds", None, "run.rounds: missing"),
    ("run.seed", -1, "run.seed: expected a number of at least 0"),
    ("run.seed", 2**32, "run.seed: expected a number of at most 4294967295"),
    ("run.burn_in", -1, "run.burn_in: expected a number of at least 0"),
    ("run.threads", 0, "run.threads: expected a number of at least 1"),
    ("run.rond", 3, 'run.rond: unknown key (did you mean "rounds"?)'),
    ("run.output", "", "run.output"),
    ("run.output", "runs/a.csv", "run.output: expected a file name that ends with"),
    ("run.output", 3, "run.output: expected a string"),
    ("run.device", "gpu", "run.device: expected auto or cpu or cuda, found 'gpu'"),
    ("run.precision", "high", "run.precision: expected highest or tf32, found 'high'"),
    ("run.writer", "hdf5", "run.writer"),
    ("run", None, "run: missing"),
    ("run", 3, "run: expected a table"),
    ("model.kind", "causal_lm", 'did you mean "causal-lm"?'),
    ("model.kind", None, "model.kind: missing"),
    ("model.kind", 3, "model.kind"),
    ("model.length", 1, "model.length: expected a number of at least 2"),
    ("model.path", None, "model.path: missing"),
    ("model.dtype", "float8", "model.dtype: expected float32"),
    ("model.prefix", "", "model.prefix"),
    ("model.prefix", [], "model.prefix"),
    ("model.prefix", [-1], "model.prefix"),
    ("model.tokens", "some", "model.tokens: expected all"),
    ("model.pth", "x", 'model.pth: unknown key (did you mean "path"?)'),
    ("model.factory", "a:b", "model.factory: unknown key"),
    ("sampler.walkers", 0, "sampler.walkers"),
    ("sampler.walkers", None, "sampler.walkers: missing"),
    ("sampler.steps", 0, "sampler.steps"),
    ("sampler.exchanges", 0, "sampler.exchanges"),
    ("sampler.method", "tempering", "sampler.method: expected parallel-tempering"),
    ("ladder.betas", [], "ladder.betas"),
    ("ladder.betas", [1.0, 0.0], "ascending order"),
    ("ladder.betas", [0.0, 0.0], "ascending order"),
    ("ladder.betas", [0.0, float("inf")], "ladder.betas[1]: expected a finite number"),
    ("ladder.betas", ["a"], "ladder.betas[0]: expected a number"),
    ("ladder.betas", 1.0, "ladder.betas: expected a list"),
    ("ladder.lowest", 0.0, "give either betas or lowest"),
    ("ladder", {}, "give betas, or all of"),
    ("ladder", {"lowest": 0.0, "highest": 1.0}, "missing rungs, spacing"),
    (
        "ladder",
        {"lowest": 1.0, "highest": 0.0, "rungs": 3, "spacing": "linear"},
        "must be below highest",
    ),
    (
        "ladder",
        {"lowest": 0.0, "highest": 8.0, "rungs": 4, "spacing": "geometric"},
        "first, the smallest positive beta",
    ),
    (
        "ladder",
        {"lowest": -1.0, "highest": 8.0, "rungs": 4, "spacing": "geometric"},
        "lowest >= 0",
    ),
    ("ladder.beta", 1.0, 'ladder.beta: unknown key (did you mean "betas"?)'),
    ("kernel.name", "metropols", 'did you mean "metropolis"?'),
    ("kernel.sites", 0, "kernel.sites"),
    ("kernel.site", 1, 'kernel.site: unknown key (did you mean "sites"?)'),
    ("kernel", {"name": "mixture", "parts": []}, "kernel.parts: expected a list that is not empty"),
    ("kernel", {"name": "mixture"}, "kernel.parts: missing"),
    ("kernel", mixture(weight=0.0), "kernel.parts[0].weight: expected a number above 0"),
    ("kernel", mixture(name="metropols"), "kernel.parts[0].name: expected"),
    ("kernel", mixture(sit=1), 'kernel.parts[0].sit: unknown key (did you mean "sites"?)'),
    ("kernel.weight", 2.0, "kernel.weight: unknown key"),
    ("bins.width", 0.0, "bins.width: expected a number above 0"),
    ("bins.width", 0.023, "not a whole number of bins"),
    ("bins.width", 1e-9, "too many"),
    ("bins.upper", -1.0, "must be below upper"),
    ("bins.lower", float("nan"), "bins.lower: expected a finite number"),
    ("bins.width", None, "bins.width: missing"),
    ("samples.every", 0, "samples.every"),
    ("samples.every", 11, "samples.every = 11 is more than the 10 moves of a round"),
    ("analysis.side", "hi", "analysis.side: expected low or high, found 'hi'"),
    ("analysis.rule", "a b", 'analysis.rule: expected "module:function"'),
    ("analysis.test_data", 3, "analysis.test_data: expected a string"),
    ("analysis.sid", "low", 'analysis.sid: unknown key (did you mean "side"?)'),
    ("sample.every", 3, 'sample: unknown key (did you mean "samples"?)'),
]


@pytest.mark.parametrize(("path", "value", "expected"), MISTAKES)
def test_mistakes(path, value, expected):
    found = message(changed(path, value))
    assert expected in found
    assert found.startswith("a.toml: ")
    assert "pydantic" not in found


def test_all_mistakes_are_listed_at_once():
    text = changed("run.rounds", "x").replace("walkers = 4", "walkers = 0") + "\n[extra]\na = 1\n"
    found = message(text)
    assert found.startswith("a.toml: 3 mistakes")
    for key in ("run.rounds", "sampler.walkers", "extra"):
        assert key in found


@pytest.mark.parametrize("text", ["[run", "a = 1\na = 2", "\x00", "run = {", "[run]\nseed = 01"])
def test_broken_toml(text):
    assert "not valid TOML" in message(text)


def test_spaced_ladders():
    for table, expected in [
        ({"lowest": -2.0, "highest": 2.0, "rungs": 5, "spacing": "linear"}, [-2, -1, 0, 1, 2]),
        ({"lowest": 1.0, "highest": 8.0, "rungs": 4, "spacing": "geometric"}, [1, 2, 4, 8]),
        (
            {"lowest": 0.0, "first": 2.0, "highest": 8.0, "rungs": 4, "spacing": "geometric"},
            [0, 2, 4, 8],
        ),
    ]:
        config = input_file.parse(changed("ladder", table), "a.toml")
        np.testing.assert_allclose(config.ladder.beta_k, expected, rtol=1e-15)


@pytest.mark.parametrize(("lowest", "highest", "rungs", "whole"), [
    (-2.0, 4.3, 64, {0.0: 20, 1.0: 30, 4.0: 60}),  # linspace: -2.2e-16, 1 + 2.2e-16, 4 - 8.9e-16
    (-3.3, 24.0, 92, {0.0: 11, 6.0: 31, 24.0: 91}),  # linspace: 6 - 8.9e-16
])  # fmt: skip
def test_whole_betas_of_a_spaced_ladder_are_exact(lowest, highest, rungs, whole):
    table = {"lowest": lowest, "highest": highest, "rungs": rungs, "spacing": "linear"}
    found = input_file.parse(changed("ladder", table), "a.toml").ladder.beta_k
    by_rule = np.linspace(lowest, highest, rungs)
    assert not np.isin(list(whole), by_rule).all(), "the spacing by itself is exact"
    assert {beta: int(np.flatnonzero(found == beta)[0]) for beta in whole} == whole
    assert not np.signbit(found[found == 0.0]).any()
    np.testing.assert_allclose(found, by_rule, rtol=0, atol=1e-14)
    assert (found[np.abs(by_rule - np.rint(by_rule)) > 1e-3] != 0).all()


@pytest.mark.parametrize(("betas", "expected"), [
    ([-1.0, -2.220446049250313e-16, 7.999999999999999], [-1.0, 0.0, 8.0]),  # listed by a program
    ([0.0, 1e-15, 1.0], [0.0, 1e-15, 1.0]),  # close on purpose
    ([1e-14, 2e-14], [1e-14, 2e-14]),
    ([0.1, 0.3, 0.7], [0.1, 0.3, 0.7]),
])  # fmt: skip
def test_listed_betas_lose_rounding_alone(betas, expected):
    config = input_file.parse(changed("ladder", {"betas": betas}), "a.toml")
    assert config.beta_k.tolist() == expected


@pytest.mark.parametrize(
    ("assignment", "check"),
    [
        ("run.rounds=20", lambda c: c.run.rounds == 20),
        ("run.output=runs/b.h5", lambda c: c.run.output == "runs/b.h5"),
        ("run.output='runs/b.h5'", lambda c: c.run.output == "runs/b.h5"),
        ("ladder.betas=[0.0, 2.0, 3.0]", lambda c: len(c.ladder.beta_k) == 3),
        ("kernel.sites=2", lambda c: c.kernel.sites == 2),
    ],
)
def test_assignments(assignment, check):
    assert check(input_file.parse(tomli_w.dumps(GOOD), "a.toml", [assignment]))


@pytest.mark.parametrize("assignment", ["rounds=3", "run.rounds", "=3", "run.=3", "run.seed.x=3"])
def test_wrong_assignments(assignment):
    with pytest.raises(UserError, match="--set"):
        input_file.parse(tomli_w.dumps(GOOD), "a.toml", [assignment])


@pytest.mark.parametrize("value", [" b.h5", "b.h5 ", " b.h5 "])
def test_a_text_keeps_its_blanks(value):
    with pytest.raises(UserError, match=f"--set 'run.output=\"{value}\"'$"):
        input_file.parse(tomli_w.dumps(GOOD), "a.toml", [f"run.output ={value}"])
    config = input_file.parse(tomli_w.dumps(GOOD), "a.toml", ["model.prefix = ' a'"])
    assert config.model.prefix == " a"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
PATHS = st.sampled_from([f"{t}.{k}" for t, table in GOOD.items() for k in table] + [*GOOD])


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(PATHS, VALUES)
def test_any_value_anywhere_is_taken_or_refused_in_words(path, value):
    tree = tomllib.loads(tomli_w.dumps(GOOD))
    *tables, key = path.split(".")
    place = tree
    for table in tables:
        place = place[table]
    place[key] = value
    try:
        text = tomli_w.dumps(tree)
    except (TypeError, ValueError):
        return  # TOML has no null
    try:
        input_file.parse(text, "a.toml")
    except UserError as error:
        assert path.split(".")[0] in str(error) or "TOML" in str(error)


def test_a_file_that_the_system_does_not_give_is_said_as_such(tmp_path):
    def refusal(path):
        with pytest.raises(UserError) as caught:
            input_file.load(path)
        return str(caught.value)

    assert refusal(tmp_path / ("a" * 300)).endswith("cannot be read: File name too long")
    assert "no such input file" in refusal(tmp_path / "none.toml")
    assert "no such input file" in refusal(tmp_path / "none.toml" / "a.toml")
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    assert "Too many levels of symbolic links" in refusal(tmp_path / "loop.toml")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_file_that_an_editor_has_saved_is_read_as_the_same(tmp_path, encoding, end):
    text = (ROOT / "inputs/toy.toml").read_text(encoding="utf-8")
    path = tmp_path / "toy.toml"
    path.write_bytes(text.replace("\n", end).encode(encoding))
    assert input_file.load(path) == input_file.load(ROOT / "inputs/toy.toml")
    path.write_bytes(b"[run]\n# Gr\xfc\xdfe\n")
    with pytest.raises(UserError, match=r"line 2: not a text file \(UTF-8"):
        input_file.load(path)
