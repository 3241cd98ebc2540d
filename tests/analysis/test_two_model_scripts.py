"""normalize.py and compare.py as a user calls them: tables, pictures, plain messages."""

import json
import re
import sys
from dataclasses import replace

import model_pair
import numpy as np
import pytest
from pair_files import CONFIG, write
from pair_runs import ABSOLUTE, OTHER, RELATIVE, draw, log_count
from run_files import put_run
from script_tools import about, call_script, is_plain, is_png

import omniinput_hpc
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.results.difference import difference_of
from omniinput_hpc.results.normalization import read_pairs
from omniinput_hpc.results.tables import read_table
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.text import decimals

pytestmark = pytest.mark.slow

RULE = "from model_pair import is_right\n\n\ndef never(x):\n    return 0.0 * x[:, 0]\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder with runs of both models, absolute and relative ones."""
    folder = tmp_path_factory.mktemp("pair")
    for name, beta_k in (("", ABSOLUTE), ("_relative", RELATIVE)):
        for seed, which in enumerate(("good", "worse")):
            write(folder / f"{which}{name}.h5", which, beta_k, seed)
    write(folder / "again.h5", "good", ABSOLUTE, 9)
    (folder / "my_pair_rules.py").write_text(RULE)
    return folder


@pytest.fixture
def inside(runs, monkeypatch, capsys):
    """Return a way to call a script in this process, in the runs' folder."""
    monkeypatch.chdir(runs)
    monkeypatch.setattr(sys, "path", list(sys.path))

    yield lambda script, *arguments: call_script(script, arguments, capsys)


def results_of(runs, analysis):
    """Return the last entry of good.results.json of this analysis."""
    found = json.loads((runs / "good.results.json").read_text())["analyses"]
    return [entry for entry in found if entry["analysis"] == analysis][-1]


def ratios(text):
    """Return (ln ratio, error) by normalization, from the printed table."""
    rows = {}
    for name in ("cross-model (Eq. 5, 6)", "Bennett's ratio", "absolute"):
        line = next(line for line in text.splitlines() if line.strip().startswith(name))
        if "refused" not in line:
            rows[name] = tuple(float(word) for word in line.strip()[len(name) :].split()[:2])
    return rows


def test_normalize(inside, runs):
    code, out, err = inside("normalize.py", "good.h5", "worse.h5", "--range", 2.25, 3.9)
    assert (code, err) == (0, "")
    truth = log_count("good", 2.25, 3.9) - log_count("worse", 2.25, 3.9)
    found = ratios(out)
    assert len(found) == 3
    for value, error in found.values():
        assert 0 < error < 0.3 and abs(value - truth) < 4 * error
    assert out.count("they agree") == 3 and "DISAGREE" not in out
    header = about(runs / "good.normalized.worse.csv")
    _, table = read_table(runs / "good.normalized.worse.csv", ["model", "log_g"])
    assert header[0].endswith("on the scale of model 1 by: absolute")
    for number, which in ((1, "good"), (2, "worse")):
        rows = table["model"] == number
        assert (rows.sum() > 10) and np.exp(table["log_g"][rows]).sum() == pytest.approx(
            4096, rel=0.2
        ), which
    assert is_png(runs / "good.normalized.worse.png")


def test_difference(inside, runs):
    words = ("good.h5", "worse.h5", "--range", 2, 5, "--show", 2)
    code, out, err = inside("difference.py", *words)
    assert (code, err) == (0, "")
    z = {which: model_pair.table(which).astype(float) for which in OTHER}
    d = z["good"] - z["worse"]
    _, table = read_table(runs / "good.difference.worse.csv", [])
    assert list(table) == ["model", "d_lower", "d_upper", "log_g", "log_g_error", "count"]
    _, by_z = read_table(runs / "good.difference_by_z.worse.csv", [])
    wide = by_z["mean_high"] - by_z["mean_low"]
    assert {*by_z["z_lower"]} <= {*np.arange(2, 5, 0.25)} and np.nanmax(wide) < 0.6
    values = results_of(runs, "difference")["values"]
    for number, which in enumerate(OTHER, start=1):
        mine = (z[which] >= 2) & (z[which] <= 5)
        inputs = np.exp(table["log_g"][table["model"] == number]).sum()
        assert inputs == pytest.approx(mine.sum(), rel=0.15)
        mean = values[f"{which}: mean of D"]
        assert abs(mean["value"] - d[mine].mean()) < 4 * mean["error"] < 0.2
        out_of = z[OTHER[which]][mine]
        share = values[f"{which}: share outside the other's range"]
        true = ((out_of < 2) | (out_of > 5)).mean()
        assert share["low"] <= true <= share["high"] < true + 0.05
    assert "good and worse are DIFFERENT MODELS" in out and "they differ" in out
    assert "KL(" not in out  # nothing here is a language model's loss
    shown = [line for line in out.splitlines() if ", z' " in line]
    assert len(shown) == 8 and shown[0][0] == "+"
    assert is_png(runs / "good.difference.worse.png")


def test_difference_of_a_relative_density(runs):
    with open_run(runs / "good.h5") as a, open_run(runs / "worse.h5") as b:
        found = difference_of((a, b), ("good", "worse"), (2.0, 5.0))
    assert found.about()[0].startswith("log_g: ln of the number of inputs per cell")
    a, b = (replace(density, absolute=False) for density in found.densities)
    both = replace(found, densities=(a, b))
    assert both.about()[0].startswith("log_g: ln of the share of inputs per cell")
    mixed = replace(found, densities=(a, found.densities[1]))
    assert "the share of inputs (model 1) or the number of inputs (model 2)" in mixed.about()[0]
    top = mixed.figure().axes[0]
    shift = np.logaddexp.reduce(b.log_g_b) / np.log(10)
    for drawn, way, less in zip(top.containers, found.ways, (0.0, shift), strict=True):
        known = np.isfinite(way.density.error_c)
        y = way.density.log_g_c[known] / np.log(10) - less
        np.testing.assert_allclose(drawn.lines[0].get_ydata(), y)


def test_what_difference_refuses(inside):
    for arguments, words in (
        (["good.h5", "again.h5"], "omniinput rescore good.h5 again.h5"),
        (["good.h5", "good.h5"], "good.h5 is given twice"),
        (
            ["good.h5", "worse.h5", "--range", 20, 30],
            "--range 20 30: the run has no bins",
        ),
        (["good.h5", "worse.h5", "--cells", 0], "--cells 0"),
        (["good.h5", "worse.h5", "--width", 0], "--width 0"),
    ):
        code, _, err = inside("difference.py", *arguments)
        assert is_plain(code, err, words), err


def test_normalize_without_beta_0(inside, runs):
    files = ("good_relative.h5", "worse_relative.h5")
    code, out, err = inside("normalize.py", *files, "--range", 2.25, 3.9)
    assert (code, err) == (0, "")
    truth = log_count("good", 2.25, 3.9) - log_count("worse", 2.25, 3.9)
    found = ratios(out)
    assert set(found) == {"cross-model (Eq. 5, 6)", "Bennett's ratio"}
    assert all(abs(value - truth) < 4 * error for value, error in found.values())
    assert "refused: the first run has no moves at beta = 0" in out
    assert "the high tail was not reached" in out
    header = about(runs / "good_relative.normalized.worse_relative.csv")
    assert header[0].endswith("on the scale of model 1 by: Bennett's ratio")
    _, table = read_table(runs / "good_relative.normalized.worse_relative.csv", [])
    with open_run(runs / "worse_relative.h5") as run:
        density = density_of_run(run.data)
    own = density.log_g_error_b[density.count_b > 0]
    errors = table["log_g_error"][table["model"] == 2]
    assert np.isfinite(errors).any() and not np.allclose(errors, own, rtol=0.01)


def auprs(text, pattern):
    """Return the numbers of the first line that a pattern finds: AUPR and ends of its interval."""
    return re.search(pattern, text, re.MULTILINE).groups()


def test_one_aupr_has_one_interval_in_every_command(inside, runs, undrawn):
    """Over one range of recall: `precision-recall`, `compare`, files, and the API."""
    by, ends = ("--rule", "my_pair_rules:is_right"), (5.0, 6.0)
    asked = (*by, f"--recall-range={ends[0]}:{ends[1]}")
    number = r"([\d.]+)"
    code, out, err = inside("precision_recall.py", "good.h5", *asked)
    assert (code, err) == (0, ""), err
    own = auprs(out, rf"^AUPR: {number}, 95% interval {number} to {number}")
    code, out, err = inside("compare.py", "good.h5", "worse.h5", *asked)
    assert (code, err) == (0, ""), err
    assert auprs(out, rf"^AUPR of good: {number} \({number} to {number}\)") == own
    with omniinput_hpc.open(runs / "good.h5") as run:
        found = run.precision_recall("my_pair_rules:is_right", recall_range=ends).aupr
    digits = decimals(found.low, found.high)
    assert tuple(f"{v:.{digits}f}" for v in (found.value, found.low, found.high)) == own
    entries = json.loads((runs / "good.results.json").read_text())["analyses"]
    values = [v for entry in entries for name, v in entry["values"].items() if "AUPR" in name]
    same = [v for v in values if v.get("over_ln_recall") == list(ends) and "side" in v]
    assert {f"{v['low']:.{digits}f}" for v in same} == {own[1]}


def test_compare_says_what_its_curves_leave_out(inside, runs, undrawn):
    """In the words of `precision-recall`, before each model's name."""
    few = ("--rule", "my_pair_rules:is_right", "--fewest-inputs", "200")
    left = []
    for name in ("good", "worse"):
        code, out, err = inside("precision_recall.py", f"{name}.h5", *few)
        assert (code, err) == (0, ""), err
        left += [f"{name}: {line}" for line in out.splitlines() if line.startswith("left out at")]
    assert left
    code, out, err = inside("compare.py", "good.h5", "worse.h5", *few)
    assert (code, err) == (0, ""), err
    assert [line for line in out.splitlines() if ": left out at" in line] == left


def test_a_rule_by_which_nothing_is_right_says_so(inside, runs, undrawn):
    """No nan in what is printed or written, and no comparison."""
    by = ("--rule", "my_pair_rules:never")
    code, out, err = inside("precision_recall.py", "good.h5", *by)
    assert (code, err) == (0, ""), err
    (line,) = [line for line in out.splitlines() if line.startswith("AUPR: ")]
    assert re.match(r"AUPR: not defined: 0 of [\d,]+ inputs were right; 95% interval 0.0+ to", line)
    assert "(one-sided: at most 0." in line and "nan" not in out
    json.loads((runs / "good.results.json").read_text(), parse_constant=pytest.fail)
    code, _, err = inside("compare.py", "good.h5", "worse.h5", *by)
    assert code == 2 and "nan" not in err


@pytest.mark.parametrize(
    ("files", "more", "how"),
    [
        (["good.h5", "worse.h5"], [], "absolute densities"),
        (["good_relative.h5", "worse_relative.h5"], [], "Bennett's ratio"),
        (["good_relative.h5", "worse_relative.h5"], ["--range", 2.25, 3.9], "cross-model"),
        (["good.h5", "worse.h5", "worse_relative.h5"], [], "Bennett's ratio"),
    ],
)
def test_compare_models(files, more, how, inside, runs):
    code, out, err = inside("compare.py", *files, "--rule", "my_pair_rules:is_right", *more)
    assert (code, err) == (0, "")
    assert f"normalized by: {how}" in out
    first = files[0].removesuffix(".h5")
    assert out.count(f"{first} is better than worse") == len(files) - 1
    assert out.count(f"\n{first}: the common range is z = ") == len(files) - 1
    csv, png = out.splitlines()[-2:]
    assert csv.startswith(f"{first}.compared") and is_png(runs / png)
    _, table = read_table(runs / csv, ["model", "cumulative_ratio_low"])
    assert set(table["model"]) == set(range(2, len(files) + 1))
    assert (table["difference_low"] <= table["difference_high"]).all()
    entries = json.loads((runs / f"{first}.results.json").read_text())["analyses"]
    values = next(e["values"] for e in reversed(entries) if csv in e["files"])
    other = files[1].removesuffix(".h5")
    both = values[f"AUPR of {first}, beside {other}"], values[f"AUPR of {other}, beside {first}"]
    assert both[0]["over_ln_recall"] == both[1]["over_ln_recall"]
    difference = values[f"AUPR of {first} less {other}"]["value"]
    assert difference == pytest.approx(both[0]["value"] - both[1]["value"])


def test_a_run_that_has_not_converged_is_no_worse_model(inside, runs, undrawn):
    """Two rounds of the worse model: its clearly lower AUPR is no result, and no verdict."""
    write(runs / "short.h5", "worse", ABSOLUTE, 5, rounds=2)
    call = ("--rule", "my_pair_rules:is_right")
    code, out, err = inside("compare.py", "good.h5", "short.h5", *call)
    assert (code, err) == (0, "") and "better than" not in out
    last = [line for line in out.splitlines() if line.startswith("not converged: ")]
    assert any(line.startswith("not converged: AUPR of short: ") for line in last)
    assert "\nAUPR of good: " in out and "because short has not converged" in last[-1]
    assert "good: side: low (low outputs are the confident ones; assumed" in out
    write(runs / "short-again.h5", "worse", ABSOLUTE, 6, rounds=2)
    code, out, err = inside("compare.py", "short.h5", "short-again.h5")
    assert (code, err) == (0, "") and "not converged: Hotelling's T^2" in out


def test_of_long_runs_evenly_spaced_rounds_are_read(runs):
    with open_run(runs / "good.h5") as run, open_run(runs / "worse.h5") as other:
        density, per_round = density_of_run(run.data), len(run.beta_k) * run.samples_per_round
        pairs, line = read_pairs(run, other, density, max_samples=3 * per_round + 1)
        assert line.endswith("good.rescored.worse.h5, 3 evenly spaced rounds read")
        x = np.stack([x for x, _ in run.samples()])[[0, (run.rounds - 1) // 2, run.rounds - 1]]
        z, all_pairs = (
            model_pair.table("worse")[model_pair.number(x)].ravel(),
            read_pairs(run, other, density),
        )
    assert len(pairs.other_i) == len(z) == 3 * per_round
    np.testing.assert_array_equal(pairs.other_i, z)
    assert len(all_pairs[0].own_i) == run.rounds * per_round


def test_compare_samplers(inside, runs):
    for other in ("again.h5", "good_relative.h5"):
        code, out, err = inside("compare.py", "good.h5", other)
        assert (code, err) == (0, "")
        assert "agree within their errors" in out
        assert "Hotelling's T^2 over " in out
    assert is_png(runs / "good.samplers.png")
    _, table = read_table(runs / "good.samplers.csv", ["delta_log_g", "delta_error"])
    assert np.mean(np.abs(table["delta_log_g"]) < 3 * table["delta_error"]) > 0.9


def test_users_mistakes_get_one_plain_line(inside, runs, tmp_path):
    alone, other_space = tmp_path / "alone.h5", tmp_path / "space.h5"
    run = draw("worse", ABSOLUTE, 3)
    put_run(alone, run, CONFIG, "worse", run.rounds)
    run.n_values = 7
    put_run(other_space, run, CONFIG, "worse", run.rounds)
    empty = tmp_path / "empty.h5"
    put_run(empty, draw("worse", ABSOLUTE, 3), CONFIG, "worse", 8, committed=0)
    z, rule = ["--range", 2, 4], ["--rule", "my_pair_rules:is_right"]
    for script, arguments, words in [
        ("normalize.py", ["good.h5", alone, *z], "omniinput rescore"),
        ("normalize.py", ["good.h5", other_space, *z], "different input spaces: "),
        ("normalize.py", ["good.h5", empty, *z], "no committed round"),
        ("normalize.py", ["good.h5", "none.h5", *z], "no such run file"),
        ("normalize.py", ["good.h5", "worse.h5", "--range", 4, 2], "must be below the second"),
        ("normalize.py", ["good.h5", "worse.h5", "--range", 20, 30], "no counts in the range"),
        ("compare.py", ["good.h5"], "give two run files or more"),
        ("compare.py", ["good.h5", "worse.h5"], "give --rule"),
        ("compare.py", ["good.h5", "worse.h5", "--rule", "none:rule"], "cannot import none"),
        ("compare.py", ["good.h5", other_space, "--rule", "a:b"], "different input spaces: "),
        ("compare.py", ["good.h5", "again.h5", "good.h5"], "give only two of them"),
        ("compare.py", ["good.h5", "again.h5", *rule, *z], "leave out --rule, --range"),
        ("compare.py", ["good.h5", "again.h5", "--recall-range=1:2"], "leave out --recall-range"),
        ("compare.py", ["good.h5", "again.h5", "--width", 0.5], "--width is for a curve by"),
        ("compare.py", ["good.h5", empty, "--rule", "my_pair_rules:is_right"], "no committed"),
    ]:
        code, _, err = inside(script, *arguments)
        assert is_plain(code, err, words), (arguments, err)
