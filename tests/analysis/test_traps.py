"""Results that once misled: each of these analyses gave a number to believe, and no warning."""

import json

import numpy as np
import pytest
from lattice import ENERGY_V, MODEL
from run_files import EDGES, write_run

from omniinput_hpc.estimators.precision_recall.curves import accumulate, area

RULES = (
    "def first_is_three(x):\n    return (x[:, 0] == 3) * 1.0\n"
    "def first_is_zero(x):\n    return (x[:, 0] == 0) * 1.0\n"
)
CLASSIFIER = 'kind = "image-classifier"\npath = "none"\n'


def exact_aupr(side, edges=EDGES):
    """Return the AUPR of "the first value is 3", of energy 3: right inputs are those of high z."""
    rest = np.ones(1)
    for _ in range(MODEL.n_sites - 1):
        rest = np.convolve(rest, np.bincount(ENERGY_V))
    right_l = np.pad(rest, (3, len(MODEL.z_l()) - len(rest) - 3))
    g_b, right_b = (MODEL.bin_sums(edges, value_l) for value_l in (MODEL.count_l(), right_l))
    seen = g_b > 0
    return area(*accumulate(np.log(g_b[seen]), right_b[seen] / g_b[seen], side))


def aupr_of(folder, name):
    """Return the AUPR and its standard error, as the latest analysis of a run recorded them."""
    entries = json.loads((folder / f"{name}.results.json").read_text())["analyses"]
    found = entries[-1]["values"][f"{name}: AUPR"]
    return found["value"], found["error"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my_rules.py").write_text(RULES)
    return tmp_path


def curve_of(inside, name, *arguments, rule="first_is_three"):
    options = ("--fewest-inputs", 1, "--fewest-lanes", 1)  # all bins, as the exact curve has them
    call = ("precision_recall.py", name, "--rule", f"my_rules:{rule}", *options, *arguments)
    code, out, err = inside(*call)
    assert (code, err) == (0, ""), err
    return out


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_classifier_is_counted_from_its_confident_side(folder, inside):
    """The wrong-side trap: without --side the curve began with what the model is sure is wrong."""
    for name, sign in (("a.h5", ""), ("b.h5", "sign = -1\n")):
        write_run(folder / name, walkers=16, model=CLASSIFIER + sign)
    out = curve_of(inside, "a.h5")
    a = aupr, error = aupr_of(folder, "a")
    right, wrong = exact_aupr("high"), exact_aupr("low")
    assert abs(aupr - right) < 4 * error and abs(aupr - wrong) > 20 * error
    assert 'side: high (high outputs are the confident ones; the default of model.kind = "im' in out
    assert "rises the wrong way" not in out
    # of minus the logit low outputs are the confident ones, and here that is the wrong way
    out = curve_of(inside, "b.h5")
    aupr, error = aupr_of(folder, "b")
    assert abs(aupr - wrong) < 4 * error
    assert "r(z) rises the wrong way" in out and "give --side high" in out
    given = curve_of(inside, "b.h5", "--side", "high")
    assert aupr_of(folder, "b") == a and "as --side says" in given


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_missing_mass_is_a_verdict_with_the_bound_to_set(folder, inside):
    """The missing-mass trap: two of five inputs outside the bins, and "converged: yes"."""
    write_run(folder / "cut.h5", walkers=16, rounds=24, edges=EDGES[8:])
    code, out, err = inside("reweight.py", "cut.h5")
    assert (code, err) == (0, "") and "converged: no" in out
    (line,) = [line for line in out.splitlines() if "of all inputs lie" in line]
    z_l, share_l = MODEL.z_l(), MODEL.count_l() / MODEL.count_l().sum()
    true = share_l[z_l < EDGES[8]].sum()
    found = 0.01 * float(line.split("not converged: ")[1].split(" %")[0])
    assert found == pytest.approx(true, abs=0.02) and "lie below the bins" in line
    bound = float(line.split("set bins.lower to about ")[1].split()[0])
    assert -MODEL.unit <= bound <= EDGES[1]  # the lowest level is 0, seen in one draw of 65,536
    assert "of all inputs lie" in curve_of(inside, "cut.h5")


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_test_data_that_the_curve_does_not_reach_is_said(folder, inside):
    """The trap of the unreached test set: positives beyond the bins were passed over in silence."""
    write_run(folder / "a.h5", walkers=16, model=CLASSIFIER)
    rows = [("mine:1", "positive", z) for z in (9.0, 8.5, 3.0, 2.0)]
    rows += [("mine:0", "negative", z) for z in (1.0, 2.0, 3.0, -4.0)]
    text = "\n".join(["set,role,z", *(",".join(map(str, row)) for row in rows)])
    (folder / "sets.csv").write_text(text + "\n")
    chosen = ("--threshold", 3, "--threshold", "mine:1:0.25", "--test-sets", "sets.csv")
    out = curve_of(inside, "a.h5", *chosen)
    lines = out.splitlines()
    warnings = [line for line in lines if line.startswith("warning: ")]
    assert len(warnings) == 2
    assert "50.0% of the 4 outputs of mine:1" in warnings[0] and "confident end" in warnings[0]
    assert "25.0% of the 4 outputs of mine:0" in warnings[1] and "far end" in warnings[1]
    assert sum(line.startswith("at z >= ") for line in lines) == 2
    assert "warning" not in curve_of(inside, "a.h5", "--threshold", 3)
    for words, message in (
        (["--threshold", "x"], "expected an output, or SET:Q"),
        (["--threshold", "mine:1:1.5", "--test-sets", "sets.csv"], "expected an output, or SET:Q"),
        (["--threshold", "theirs:0.5", "--test-sets", "sets.csv"], "no test set theirs"),
        (["--threshold", "mine:0.5"], "give the file with --test-sets"),
        (["--threshold", "99"], "the curve covers only"),
        (["--recall-range", "1:99"], "has no AUPR over this range"),
    ):
        call = ("precision_recall.py", "a.h5", "--rule", "my_rules:first_is_three", *words)
        code, _, err = inside(*call)
        assert code == 2 and message in err and len(err.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_recall_range_makes_an_aupr_that_compares(folder, inside):
    write_run(folder / "a.h5", walkers=16)
    out = curve_of(inside, "a.h5", "--recall-range", "10^2:10^4", rule="first_is_zero")
    assert "over recall 10^2.00 to 10^4.00 inputs (set by --recall-range)" in out
    aupr, error = aupr_of(folder, "a")
    g_b, right_b = (MODEL.bin_sums(EDGES, v) for v in (MODEL.count_l(), MODEL.right_l()))
    seen = g_b > 0
    exact = area(
        *accumulate(np.log(g_b[seen]), right_b[seen] / g_b[seen], "low"), *np.log([1e2, 1e4])
    )
    assert abs(aupr - exact) < 4 * error


@pytest.mark.slow
def test_nothing_overwrites_another_analysis(folder, inside):
    """The overwritten-output trap: a second rule, or side, wrote over the first one's files."""
    write_run(folder / "a.h5", walkers=16, moves=10)
    first = curve_of(inside, "a.h5").splitlines()[-3:]
    assert first == ["a.pr.csv", "a.pr.png", "a.roc.png"]
    before = {name: (folder / name).read_bytes() for name in first}
    other = curve_of(inside, "a.h5", rule="first_is_zero").splitlines()[-3:]
    assert other == [f"a.{end[2:-4]}.my_rules.first_is_zero{end[-4:]}" for end in first]
    turned = curve_of(inside, "a.h5", "--side", "high").splitlines()[-3:]
    assert turned[0] == "a.pr.my_rules.first_is_three-side=high.csv"
    assert {name: (folder / name).read_bytes() for name in first} == before
    again = curve_of(inside, "a.h5", "--side", "low").splitlines()[-3:]  # as without it
    assert again == first and (folder / first[0]).read_bytes() == before[first[0]]
