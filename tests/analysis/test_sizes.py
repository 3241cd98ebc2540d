"""Sizes of 0 and 1 everywhere: one rung, walker, round, bin, site, sample, and all of them at once.

Every verb gives its result (exit code 0), or one plain sentence that says why there is none (2):
never a traceback, a warning of numpy's, or a number that is nan or infinite.
"""

import re
import shlex
import warnings

import numpy as np
import pandas
import pytest

import omniinput_hpc
from omniinput_hpc.cli import omniinput
from omniinput_hpc.cli.omniinput import VERBS
from omniinput_hpc.parallel import signals
from omniinput_hpc.parallel.comm import World

INPUT = """
[run]
output = "{output}"
seed = {seed}
rounds = {rounds}
burn_in = {burn_in}
device = "cpu"
{run}
[model]
kind = "python"
factory = "small_models:make"
options = {{ kind = "{model}", sites = {sites}, values = {values}, name = "{name}" }}
[sampler]
method = "{method}"
walkers = {walkers}
steps = {steps}
exchanges = {exchanges}
blocks = {blocks}
{ladder}
[bins]
lower = {lower}
upper = {upper}
width = {width}
[samples]
every = {every}
{more}
"""
USUAL = {
    "rounds": 3, "burn_in": 2, "run": "", "model": "sums", "sites": 8, "values": 2,
    "method": "parallel-tempering", "walkers": 4, "steps": 4, "exchanges": 2, "blocks": 1,
    "betas": "[0.0, 0.5]", "lower": -0.5, "upper": 16.5, "width": 1.0, "every": 1, "more": "",
    "seed": 1, "name": "",
}  # fmt: skip
FLAT = {"method": "wang-landau", "betas": None, "burn_in": 6}
ONE_BIN = {"width": 17.0}
CHAIN = {"model": "chain", "sites": 4, "values": 3, "lower": 0.0, "upper": 3.0, "width": 0.125}
ONCE = {"walkers": 1, "rounds": 1, "steps": 1, "exchanges": 1, "burn_in": 0}
WIDE = {"lower": -0.25, "upper": 12.25, "width": 0.5, "sites": 6, "values": 3}
CASES = {
    "one rung": {"betas": "[0.0]"},
    "one window": FLAT,
    "one walker": {"walkers": 1},
    "everything one": {"betas": "[0.0]", **ONCE, **ONE_BIN, "sites": 1},
    "one rung, not at 0": {"betas": "[1.0]"},
    "one move, not at 0": {"betas": "[1.0]", **ONCE},
    "one rung below 0, blocks": {"betas": "[-1.0]", "blocks": 4},
    "one window, gradients": {
        **FLAT, "walkers": 1, "more": '[kernel]\nname = "gibbs-with-gradients"',
    },
    "one window, one bin, one step": {**FLAT, **ONE_BIN, "steps": 1, "exchanges": 1},
    "two windows": {**FLAT, "more": "[wang_landau]\nwindows = 2"},
    "one round": {"rounds": 1},
    "one bin": ONE_BIN,
    "one site": {"sites": 1, "values": 4},
    "one sample a round": {"every": 8},
    "one sample": {"every": 8, "walkers": 1, "rounds": 1, "width": 8.5},
    "no burn-in, one step, one exchange": {"burn_in": 0, "steps": 1, "exchanges": 1},
    "tuned, one of each": {
        "walkers": 1, "steps": 1, "exchanges": 1, "tune": True, "betas": "[0.0, 0.5, 1.0]",
        "burn_in": 6, "rounds": 20,
    },
    "one rung, tuned": {"betas": "[0.0]", "tune": True},
    "one block of rounds": {"run": "histogram_blocks = 1"},
    "one langevin site": {
        "betas": "[0.5]", "walkers": 1, "sites": 1, "values": 3,
        "more": '[kernel]\nname = "discrete-langevin"',
    },
    "one ancestral rung": {**CHAIN, "method": "ancestral", "betas": "[0.0]"},
    "one ancestral draw": {**CHAIN, **ONCE, "method": "ancestral", "betas": "[4.0]", "width": 3.0},
    "two annealed rungs, one walker": {
        **CHAIN, **ONCE, "method": "annealed", "betas": "[4.0, 6.0]",
    },
    "one conditional rung": {
        **CHAIN, "betas": "[4.0]", "more": '[kernel]\nname = "lm-conditional"',
    },
    "constant": {**WIDE, "model": "constant", "betas": "[0.0]", "rounds": 20, "walkers": 16},
    "constant in one window": {**WIDE, **FLAT, "model": "constant"},
    "constant, one rung not at 0": {**WIDE, "model": "constant", "betas": "[1.0]"},
    "two values": {**WIDE, "model": "two", "rounds": 20, "walkers": 16},
    "two values, one of them outside": {
        **WIDE, "model": "two", "lower": 1.25, "betas": "[0.0]", "rounds": 20, "walkers": 16,
    },
}  # fmt: skip
QUICK = ("one window", "everything one")
"""Cases that the quick tests have."""
COMMON = ("everything one", "two annealed rungs, one walker")
"""Cases that every verb is tried on in each test run; on the others only before a release."""
LIKE_ANOTHER = {
    "one rung, not at 0",
    "one window, gradients",
    "two windows",
    "one site",
    "one sample a round",
    "one rung, tuned",
    "constant, one rung not at 0",
    "two values",
}
"""Cases whose sizes another one has, too: what they give is looked at only before a release."""
LOOSE = "--fewest-inputs 1 --fewest-lanes 1"
RULE = "--rule small_models:first_is_one"
MUST_WORK = (
    "verify a.h5", "reweight a.h5", "diagnose a.h5", f"precision-recall a.h5 {RULE} {LOOSE}",
    "representatives a.h5",
)  # fmt: skip
"""What every run gives, as soon as a round is committed."""
NO_CURVE = "no curve can be drawn: the run has not equilibrated"
"""But for a curve where populations are not worth anything."""
CALLS = (
    "enumerate a.toml --rule small_models:first_is_one --output exact.csv",
    *MUST_WORK,
    "verify a.h5 --rescore 5",
    "reweight a.h5 --exact exact.csv", "reweight a.h5 again.h5", "reweight a.h5 --unbinned",
    "reweight a.h5 --certified", "reweight a.h5 --bins 0.0:20.0:20.0",
    f"precision-recall a.h5 {RULE}",
    f"precision-recall a.h5 {RULE} {LOOSE} --side high --exact exact.csv",
    f"precision-recall a.h5 --rule small_models:nothing {LOOSE}",
    f"precision-recall a.h5 --rule small_models:everything {LOOSE}",
    f"precision-recall a.h5+again.h5 {RULE} {LOOSE}",
    "representatives a.h5 --render --per-bin 1",
    "overlay a.h5 again.h5 --output overlay.png",
    f"report a.h5 again.h5 {RULE} {LOOSE}", "report a.h5",
    f"export a.h5 --to every-eval-ever {RULE} {LOOSE}", "export a.h5 --to datasets",
    "average a.h5 --observable distinct", "joint a.h5 --observable distinct --cells 3",
    "observe a.h5 --add distinct", "average a.h5 --observable distinct --width {width}",
    "compare a.h5 again.h5",
    "choose a.h5 --width {width} --range {lower} {end} --per-bin 2 --output t.tasks.jsonl",
    "judge t.tasks.jsonl --judge small_models:first_is_one",
    "judge t.tasks.jsonl --judge small_models:nothing",
    "scores t.tasks.jsonl --export csv",
    "precision-recall a.h5 --scores {one} " + LOOSE,
    "report a.h5 --scores {one} " + LOOSE,
    "agreement a.h5 --scores {one} {two}",
    "annotators a.h5 --scores {one} {two} " + LOOSE,
    "next-scores a.h5 --scores {one} " + LOOSE,
    "bank a.h5 --bank bank.jsonl --scores {one}",
    "precision-recall a.h5 --bank bank.jsonl " + LOOSE,
    "rescore a.h5 other.toml", "rescore other.h5 a.toml", "verify a.h5",
    "normalize a.h5 other.h5 --range {lower} {end}",
    f"compare a.h5 other.h5 {RULE} {LOOSE}",
    "difference a.h5 other.h5",
    f"changes a.h5 a.rescored.other.h5 {RULE}",
    "salvage a.h5 saved.h5", "verify saved.h5", "reweight saved.h5",
    "check a.toml",
    "run a.toml --set run.rounds={longer}",
    *MUST_WORK,
)  # fmt: skip
NOT_CALLED = {
    "init", "example", "doctor", "census", "test-sets", "benchmark", "annotate", "explore",
}  # fmt: skip
"""Verbs that read no run file, and those that serve a page."""
NO_NUMBER = re.compile(r"(?<![a-z_])[+-]?(nan|inf)(?![a-z_])")


def text_of(case, output, **more):
    """Return an input file."""
    keys = {**USUAL, **CASES[case], **more}
    ladder = "" if keys["betas"] is None else f"[ladder]\nbetas = {keys['betas']}"
    if keys.get("tune"):
        ladder += "\ntune = true"
    return INPUT.format(output=output, ladder=ladder, **keys)


@pytest.fixture
def call(tmp_path, monkeypatch, capsys, undrawn):
    """Return a way to call a verb in this process: exit code, and all that it said."""
    monkeypatch.chdir(tmp_path)
    for name in ("install", "ignore"):
        monkeypatch.setattr(signals.request, name, lambda: None)

    def abort(_, error):
        raise error

    monkeypatch.setattr(World, "abort", abort)

    def one(words):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            code = omniinput.main(shlex.split(words), "python -m omniinput_hpc")
        said = capsys.readouterr()
        return code, said.out, said.err

    return one


SAMPLED = (("a", 1, ""), ("again", 2, ""), ("other", 3, "other"))
"""A run, a second one with another seed, and one of another model: its name, seed and model."""


def sample(call, tmp_path, case, runs=SAMPLED):
    """Sample some runs of a case."""
    for name, seed, other in runs:
        text = text_of(case, f"{name}.h5", seed=seed, name=other)
        (tmp_path / f"{name}.toml").write_text(text)
        code, _, err = call(f"run {name}.toml")
        assert code == 0 and not NO_NUMBER.search(err), err


def problem(words, code, out, err):
    """Return what is wrong with what a verb said; "" if nothing."""
    if code not in (0, 2) or (code == 2 and words in MUST_WORK and NO_CURVE not in err):
        return f"exit code {code}"
    if code == 2 and not re.fullmatch(r"(error|omniinput_hpc): [^\n]+\n", err):
        return "not one plain sentence"
    found = NO_NUMBER.search(out + err)
    return f"{found[0]} as a number" if found else ""


def check(call, tmp_path, case, calls):
    """Make calls; collect what is wrong."""
    keys = {**USUAL, **CASES[case]}
    n_bins = round((keys["upper"] - keys["lower"]) / keys["width"])
    wide = max(1, n_bins // 8)
    places = {
        "lower": keys["lower"], "width": wide * keys["width"], "longer": keys["rounds"] + 2,
        "end": keys["lower"] + n_bins // wide * wide * keys["width"],
        "one": "t.judge-scores.first_is_one.jsonl", "two": "t.judge-scores.nothing.jsonl",
    }  # fmt: skip
    wrong = []
    for words in calls:
        found = call(words.format(**places))
        if what := problem(words, *found):
            wrong.append(f"{words}: {what}: {found[2][-300:] or found[1][-600:]}")
    assert not wrong, "\n".join(wrong)


def test_every_verb_is_called():
    called = {words.partition(" ")[0] for words in CALLS}
    assert called == set(VERBS) - NOT_CALLED


def slow_unless_quick(case):
    """What every verb is tried on needs no second test, unless a quick one."""
    marks = [] if case in QUICK else [pytest.mark.slow]
    return pytest.param(case, marks=[*marks, *[pytest.mark.release] * (case in LIKE_ANOTHER)])


def marked(case):
    return case if case in COMMON else pytest.param(case, marks=pytest.mark.release)


@pytest.mark.parametrize(
    "case", [slow_unless_quick(case) for case in CASES if case in QUICK or case not in COMMON]
)
def test_what_every_run_gives(call, tmp_path, case):
    sample(call, tmp_path, case, SAMPLED[:1])
    check(call, tmp_path, case, MUST_WORK)


@pytest.mark.slow
@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_every_verb_on_every_size(call, tmp_path, case):
    sample(call, tmp_path, case)
    check(call, tmp_path, case, CALLS)


@pytest.mark.parametrize(
    ("case", "changes", "sentence"),
    [
        ("one rung", {"every": 9}, "samples.every = 9 is more than the 8 moves of a round"),
        ("one rung", {"values": 1}, "n_values must be a whole number of at least 2, found 1"),
        ("one rung", {"sites": 0}, "n_sites must be a whole number of at least 1, found 0"),
        ("one rung", {"rounds": 0}, "run.rounds"),
        ("one rung", {"walkers": 0}, "sampler.walkers"),
        ("one rung", {"steps": 0}, "sampler.steps"),
        ("one rung", {"exchanges": 0}, "sampler.exchanges"),
        ("one rung", {"betas": "[]"}, "ladder.betas"),
        ("one rung", {"upper": -0.5}, "lower = -0.5 must be below upper = -0.5"),
        ("one window", {"burn_in": 0}, "Wang-Landau learns S(z) in burn-in"),
        ("two annealed rungs, one walker", {"betas": "[4.0]"}, "give at least two"),
    ],
)  # fmt: skip
def test_sizes_that_no_run_has(call, tmp_path, case, changes, sentence):
    (tmp_path / "a.toml").write_text(text_of(case, "a.h5", **changes))
    code, _, err = call("run a.toml")
    assert code == 2 and sentence in err, err
    assert [path.name for path in tmp_path.iterdir()] == ["a.toml"]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["one walker", "everything one"])
def test_the_errors_of_one_lane_are_not_known(call, tmp_path, case):
    """Not zero: nothing was compared with anything."""
    sample(call, tmp_path, case, SAMPLED[:2])
    _, out, _ = call("reweight a.h5")
    assert "converged: no" in out and "errors are not known" in out
    assert np.isinf(pandas.read_csv("a.density.csv")["log_g_error"]).all()
    code, out, _ = call("compare a.h5 again.h5")
    assert "agree" not in out and (code == 2 or "not known" in out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "n_bins"), [("constant", 1), ("two values", 2), ("constant in one window", 1)]
)
def test_a_constant_output_has_converged(call, tmp_path, case, n_bins):
    """Its errors are rounding, by lanes and by blocks of rounds: they agree."""
    more = {"rounds": 60} if n_bins == 2 else {"rounds": 20}
    (tmp_path / "a.toml").write_text(text_of(case, "a.h5", **more))
    assert call("run a.toml")[0] == 0 and call("enumerate a.toml --output exact.csv")[0] == 0
    _, out, _ = call("reweight a.h5 --exact exact.csv")
    assert "converged: yes" in out and "stays correlated" not in out, out
    assert f"truth >= 1 inputs: {n_bins} bins compared, largest |delta log_g| 0.0" in out


@pytest.mark.slow
@pytest.mark.parametrize("case", ["one rung", "one window", "one walker", "everything one"])
def test_the_python_interface(call, tmp_path, case):
    sample(call, tmp_path, case, SAMPLED[:1])
    with warnings.catch_warnings(), omniinput_hpc.open("a.h5") as run:
        warnings.simplefilter("error", RuntimeWarning)
        rule = "small_models:first_is_one"
        curve = run.precision_recall(rule, fewest_inputs=1, fewest_lanes=1)
        for found in (run.density(), run.diagnose(), curve):  # a table has inf, as its file has
            said = "\n".join([repr(run), *found.lines()])
            assert not NO_NUMBER.search(said), said
