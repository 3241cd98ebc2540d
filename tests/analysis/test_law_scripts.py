"""Every verb under a law of inputs: probabilities in place of numbers, in results and in words."""

import json
import shutil
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from configs import config_with
from law_runs import (
    BETA_K,
    EDGES,
    LAW,
    UNIFORM,
    Q,
    X,
    bin_masses,
    ends_low,
    outputs,
    write_law_run,
)
from script_tools import about, is_plain
from two_outputs import put_rescored

from omniinput_hpc.annotation.drawing import choose, draw_independently
from omniinput_hpc.cli import enumerate as enumerate_
from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density import facts
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.equal_visits import unequal_visits
from omniinput_hpc.estimators.samples import inputs_of_bins
from omniinput_hpc.models import input_space
from omniinput_hpc.plots import overlay, style
from omniinput_hpc.results.density import DensityResult
from omniinput_hpc.results.tables import read_table
from omniinput_hpc.runfile.reader import open_run

pytestmark = pytest.mark.slow

RULE = "law_runs:ends_low"
Z = outputs()
OTHERS = {
    "again": {"seed": 2},
    "other": {"seed": 3, "below": 1},
    "warm": {"seed": 4, "words": LAW + "\ntemperature = 2.0"},
    "count": {"seed": 5, "words": "", "weight": UNIFORM},
}


def copy_with_attributes(path, copy, attributes):
    """Copy a run file, with more attributes."""
    shutil.copy(path, copy)
    with h5py.File(copy, "r+") as file:
        file.attrs.update(attributes)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder with a run under the law, and with others to set beside it."""
    folder = tmp_path_factory.mktemp("law")
    write_law_run(folder / "a.h5")
    for name, options in OTHERS.items():
        write_law_run(folder / f"{name}.h5", **options)
    return folder


@pytest.fixture
def called(runs, inside, undrawn, monkeypatch):
    """Return a way to call a script in the runs' folder: what it prints, if all is well."""
    monkeypatch.chdir(runs)

    def call(script, *arguments):
        code, out, err = inside(f"{script}.py", *arguments)
        assert (code, err) == (0, ""), err
        return out

    return call


@pytest.fixture
def refused(runs, inside, undrawn, monkeypatch):
    """Return a way to call a script in the runs' folder: what it refuses."""
    monkeypatch.chdir(runs)

    def call(script, *arguments, word="[law]"):
        code, _, err = inside(f"{script}.py", *arguments)
        assert is_plain(code, err, word), err
        return err

    return call


def test_reweight(called, runs):
    said = called("reweight", "a.h5")
    assert "log_g is absolute: ln of the probability per bin; all probability inside" in said
    assert "converged: yes" in said and "inputs inside" not in said
    assert "ln of all probability" in said and "inputs met by too few lanes" not in said
    _, columns = read_table(runs / "a.density.csv", ["log_g_error"])
    apart = (columns["log_g"] - np.log(bin_masses(Q, Z))) / columns["log_g_error"]
    assert np.abs(apart).max() < 4
    found = json.loads((runs / "a.results.json").read_text())["analyses"][0]
    assert found["runs"][0]["measure"] == "probability"
    assert found["values"]["a: ln probability inside the bins"]["value"] == pytest.approx(0)
    assert about(runs / "a.density.csv")[0].startswith(
        "absolute: yes (log_g is ln of the probability under [law], 1 in the whole space; share of"
    )
    joined = called("reweight", "a.h5", "again.h5")
    assert "ln of the probability per bin" in joined and "converged: yes" in joined
    called("reweight", "a.h5", "--range", -5.5, -2.5)
    found = json.loads((runs / "a.results.json").read_text())["analyses"][-1]
    assert "ln of all probability from -5.5 to -2.5" in found["values"]


def test_against_the_enumeration_of_the_law(called, runs, tmp_path, capsys):
    with open_run(runs / "a.h5") as run:
        (tmp_path / "a.toml").write_text(run.config_toml)
    exact = tmp_path / "exact.csv"
    words = [str(tmp_path / "a.toml"), "--rule", RULE, "--output", str(exact)]
    assert enumerate_.main(words) == 0
    capsys.readouterr()
    _, columns = read_table(exact, ["r"])
    np.testing.assert_allclose(np.exp(columns["log_g"]), bin_masses(Q, Z), rtol=1e-5)
    right = bin_masses(Q, Z, ends_low(X)) / bin_masses(Q, Z)
    np.testing.assert_allclose(columns["r"], right, rtol=1e-5)
    said = called("reweight", "a.h5", "--exact", exact)
    assert "truth above 0: 6 bins compared, largest" in said and "inputs: " not in said
    said = called("precision_recall", "a.h5", "--rule", RULE, "--exact", exact)
    truth = said[said.index("against the truth, r(z): ") :]
    assert "\nprecision: largest difference" in truth and "1,000" not in truth


def true_curve(weight):
    """Return precision and ln recall of each threshold from the low end, by enumeration."""
    right, every = bin_masses(weight, Z, ends_low(X)).cumsum(), bin_masses(weight, Z).cumsum()
    return right / every, np.log(right)


def check_curve(table, weight):
    """Assert that a curve's 95 % bands, made twice as wide, hold the exact values."""
    for name, exact in zip(("precision", "log_recall"), true_curve(weight), strict=True):
        low, high = table[f"{name}_low"], table[f"{name}_high"]
        middle, half = (high + low) / 2, (high - low) + 1e-9
        assert (np.abs(middle - exact) < half).all(), name


def test_precision_and_recall_by_a_rule(called, runs):
    said = called("precision_recall", "a.h5", "--rule", RULE, "--threshold", -2.5)
    assert ") of probability (95% bands)" in said
    _, table = read_table(runs / "a.pr.csv", [])
    assert len(table["precision"]) == 6
    check_curve(table, Q)
    with pytest.raises(AssertionError, match="precision"):  # inputs that all weigh the same
        check_curve(table, UNIFORM / UNIFORM.sum())


def test_a_curve_of_rungs_that_forget_the_law_is_wrong(called, runs):
    write_law_run(runs / "forgets.h5", weight=UNIFORM)
    called("precision_recall", "forgets.h5", "--rule", RULE)
    with pytest.raises(AssertionError, match="precision"):
        check_curve(read_table(runs / "forgets.pr.csv", [])[1], Q)


def last_values(chosen, weight_i):
    """Return the share of each last value in each bin, [B, 4], of chosen inputs."""
    share = np.zeros((len(EDGES) - 1, 4))
    for x, b, weight in weight_i(chosen):
        share[b, x[-1]] += weight
    return share / share.sum(axis=1, keepdims=True)


def by_weight(chosen):
    return [(c.x, round(c.bin_lower - EDGES[0]), c.draws) for c in chosen]


def by_log_weight(chosen):
    return [(c.x, round(c.bin_lower - EDGES[0]), np.exp(c.log_weight)) for c in chosen]


def independently(chosen):
    return [(one.values, one.bin, one.draws) for one in chosen]


DRAWS = 600
WAYS = {
    "by-weight": (lambda *run: choose([run[0]], *run[1:], DRAWS, "by-weight", 1)[0][0], by_weight),
    "uniform": (
        lambda *run: choose([run[0]], *run[1:], 100_000, "uniform", 1)[0][0],
        by_log_weight,
    ),
    "independent": (lambda *run: draw_independently(*run, DRAWS), independently),
}


@pytest.mark.parametrize("way", WAYS)
def test_draws_in_a_bin_follow_the_law(runs, way):
    draw, weights = WAYS[way]
    with open_run(runs / "a.h5") as run:
        chosen = draw(run.data, density_of_run(run.data), EDGES)
    share = last_values(chosen, weights)

    def apart(weight):
        true = np.stack([bin_masses(weight, Z, X[:, -1] == v) for v in range(4)], axis=1)
        true /= true.sum(axis=1, keepdims=True)
        error = np.sqrt(np.maximum(true * (1 - true), 1e-12) / DRAWS)
        return np.abs(share - true) / error

    assert apart(Q).max() < 4.5
    assert apart(UNIFORM).max() > 6


def test_choose_scores_and_agreement(called, runs):
    called("choose", "a.h5", "--per-bin", 60, "--range", -5.5, 0.5, "--width", 1)
    keys = [json.loads(line) for line in (runs / "a.tasks.key.jsonl").read_text().splitlines()]
    random = np.random.default_rng(0)
    files = []
    for name in ("ana", "ben"):
        lines = []
        for key in keys[1:]:
            right = float(key["x"][-1] == 0) if name == "ana" else round(random.random(), 2)
            word = {"seconds": 1.0, "when": "2026-01-01T00:00:00Z", "guideline": None}
            lines.append(json.dumps({"id": key["id"], "score": right, "annotator": name, **word}))
        files.append(f"a.scores.{name}.jsonl")
        (runs / files[-1]).write_text("\n".join(lines) + "\n")
    assert "thresholds" in called("precision_recall", "a.h5", "--scores", files[0])
    _, table = read_table(runs / "a.pr.csv", [])
    r_b = bin_masses(Q, Z, ends_low(X)) / bin_masses(Q, Z)
    bins = np.rint(table["threshold"] - EDGES[1]).astype(int)
    assert (table["r_low"] - 0.02 <= r_b[bins]).all() and (
        r_b[bins] <= table["r_high"] + 0.02
    ).all()
    called("agreement", "a.h5", "--scores", *files)
    called("annotators", "a.h5", "--scores", *files)


def test_diagnose_and_representatives(called, runs):
    assert "nothing stands out" in called("diagnose", "a.h5")
    assert "in proportion to weight" in called("representatives", "a.h5")
    _, table = read_table(runs / "a.representatives.csv", [])
    assert sorted(set(table["z_lower"])) == EDGES[:-1].tolist()


def test_exports_say_that_a_law_weighs_the_inputs(called, runs):
    called("export", "a.h5", "--to", "every-eval-ever")
    record = json.loads((runs / "a.every-eval-ever.json").read_text())
    _, inside = record["evaluation_results"]
    assert inside["metric_config"]["metric_id"] == "omniinput.log10_probability_inside"
    assert inside["source_data"]["additional_details"]["measure"] == "probability"
    assert -1 < inside["score_details"]["score"] <= inside["metric_config"]["max_score"] == 0.0
    called("export", "a.h5", "--to", "datasets")
    assert "represent the inputs by the run's law" in (runs / "a.dataset/README.md").read_text()


def test_compare_and_overlay(called):
    assert "a and again agree within their errors" in called("compare", "a.h5", "again.h5")
    said = called("compare", "a.h5", "other.h5", "--rule", RULE)
    assert "normalized by: absolute densities" in said and "other is better than a" in said
    called("overlay", "a.h5", "other.h5", "warm.h5", "--output", "o.png")


def test_only_runs_under_one_law_are_compared(refused):
    warm = refused("compare", "a.h5", "warm.h5")
    assert "[law] temperature is 1.0 in a.h5 and 2.0 in warm.h5" in warm
    assert "[law] kind is 'python' in a.h5 and None in count.h5" in refused(
        "compare", "a.h5", "count.h5"
    )
    for name in ("warm", "count"):
        said = refused("reweight", "a.h5", f"{name}.h5")
        assert f"{name}.h5 and a.h5 have different laws of inputs, [law]" in said
    assert "no common axis" in refused("overlay", "a.h5", "count.h5", "--output", "o.png")
    assert "[law] kind" in refused("normalize", "a.h5", "count.h5", "--range", -3, 0)


def test_runs_whose_law_has_changed_in_place_are_not_compared(called, refused, runs):
    """Same keys of [law], but the file of its model or of its prompts holds something else."""
    marks = {"law_log_q": np.array([-5.0, -6.0, -7.0]), "law_prompts": "sha256:1"}
    changed = {"law_log_q": np.array([-5.0, -6.5]), "law_prompts": "sha256:2"}
    for name, new in ("marked", {}), ("same", {"law_log_q": marks["law_log_q"][:2]}):
        copy_with_attributes(runs / "other.h5", runs / f"{name}.h5", marks | new)
    called("compare", "marked.h5", "same.h5")
    called("compare", "marked.h5", "a.h5", "--rule", RULE)  # a has no marks, as older files
    for name, value in changed.items():
        copy_with_attributes(runs / "a.h5", runs / "changed.h5", marks | {name: value})
        said = refused("compare", "marked.h5", "changed.h5", "--rule", RULE)
        assert "the content of [law] has changed between marked.h5 and changed.h5" in said


def test_normalize(called, runs):
    for path, name, below in (("a", "other", 1), ("other", "a", 2)):
        with open_run(runs / f"{name}.h5") as other:
            fingerprint = other.fingerprint
        with open_run(runs / f"{path}.h5") as run:
            x = np.concatenate([x for x, _ in run.samples()]).reshape(
                run.rounds, len(BETA_K), -1, 5
            )
        z = -np.less(x, below).sum(axis=-1).astype(np.float32)
        put_rescored(runs / f"{path}.h5", name, z, fingerprint)
    said = called("normalize", "a.h5", "other.h5", "--range", -5.5, -2.5)
    assert "ln(probability of a / probability of other) with" in said and "DISAGREE" not in said
    values = [a["values"] for a in json.loads((runs / "a.results.json").read_text())["analyses"]]
    found = {name: value for some in values for name, value in some.items()}
    ratio = found["ln ratio of probability in the range, first by second"]
    exact = np.log(Q[Z < -2.5].sum() / Q[outputs(1) < -2.5].sum())
    inputs = np.log((Z < -2.5).sum() / (outputs(1) < -2.5).sum())
    error = (ratio["high"] - ratio["low"]) / 4
    assert abs(ratio["value"] - exact) < 4 * error < abs(inputs - exact)


def test_certified_bounds_on_probabilities(called, runs):
    said = called("reweight", "a.h5", "--certified")
    assert "bounds on the probability of outputs below z" in said
    assert "the density is within these bounds at" in said
    table = np.loadtxt(runs / "a.certified.csv", delimiter=",", skiprows=1 + header(runs))
    exact = np.log([Q[outputs() < z].sum() for z in table[:, 0]])
    assert (table[:, 2] <= exact + 1e-9).all() and (exact <= table[:, 3] + 1e-9).all()


def header(runs):
    lines = (runs / "a.certified.csv").read_text().splitlines()
    return sum(line.startswith("#") for line in lines)


def test_report(called, runs):
    called("report", "a.h5", "other.h5", "--rule", RULE, "--output", "both.html")
    page = (runs / "both.html").read_text()
    for words in (
        "Probability per output, all runs",
        "Probability per bin of the output (1 wide), and its standard error: a",
        "of them are right",
        "of probability in right inputs",
        "[law] python law_models:chain",
        "law of inputs",
        "other is better than a",
    ):
        assert words in page, words
    assert "umber of inputs" not in page
    called("report", "a.h5", "count.h5", "--rule", RULE, "--output", "mixed.html")
    page = (runs / "mixed.html").read_text()
    assert "runs can be compared only under one [law]" in page and "all runs" not in page
    assert "Number of inputs per bin" in page and "Probability per bin" in page


def labels(figure):
    axes = [one for part in [figure, *figure.subfigs] for one in part.axes]
    return " ".join(f"{one.get_xlabel()} {one.get_ylabel()}" for one in axes)


def test_axes(runs):
    with open_run(runs / "a.h5") as run:
        density = density_of_run(run.data)
    figure = overlay.overlay_figure([overlay.Overlaid("a", "z", density, [], {})])
    assert "probability per unit of z" in labels(figure)
    assert "probability per bin" in style.inputs_label(True, measure="probability")
    assert "share of probability per bin" in style.inputs_label(False, measure="probability")
    assert "probability of right inputs found" in style.recall_label(True, measure="probability")


def test_that_inputs_of_equal_z_are_equally_likely_is_not_tested(runs):
    """Under a law they are not: the check that is left out would fail."""
    with open_run(runs / "a.h5") as run:
        density = density_of_run(run.data)
        inputs = inputs_of_bins(run.data, EDGES, np.full(len(EDGES) - 1, True))
        found = unequal_visits(run.data, inputs, facts.highest(density), density.effective_b)
    assert not found.passed
    assert found.name not in {check.name for check in density.verdict.checks}


INPUT = """[run]
output = "a.h5"
seed = 1
rounds = 8
[sampler]
walkers = 4
steps = 1
exchanges = 1
[bins]
lower = 0.0
upper = 1.0
width = 0.5
[ladder]
betas = [0.0, 1.0]
[samples]
every = 1
[model]
kind = "python"
factory = "law_models:{model}"
[law]
"""


def space_under(name, model, law):
    config = input_file.parse(INPUT.format(model=model) + law, "a.toml", [])
    return input_space.space_of(name, config, 5, 4)


def test_a_models_own_law_is_also_known_by_its_name():
    own = space_under("a", "chain", 'kind = "model"\n')
    by_name = space_under("b", "events", 'kind = "python"\nfactory = "law_models:chain"\n')
    input_space.require_same(own, by_name)
    events = space_under("c", "events", 'kind = "model"\n')
    with pytest.raises(UserError, match=r"\[law\] factory is 'law_models:chain' in a and .*events"):
        input_space.require_same(own, events)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, True),
        ({"aggregate": "max"}, False),
        ({"aggregate": "max", "targets": [3]}, True),
        ({"against": [5]}, False),
    ],
)
def test_the_probability_of_several_targets_needs_their_sum(runs, more, said):
    """With the largest P, the mean of e^-z is below it."""
    with open_run(runs / "a.h5") as run:
        density = density_of_run(run.data)
    config = config_with(output={"name": "next", "targets": [3, 4], **more})
    lines = DensityResult([SimpleNamespace(config=config)], [density]).more()
    assert any("a target comes next" in line for line in lines) == said
