"""precision_recall.py and compare.py on several runs of one model, joined by a plus sign."""

import json

import numpy as np
import pytest
from lattice import LEVEL_EDGES, MODEL, first_is_zero
from pair_runs import ABSOLUTE, RELATIVE, draw
from run_files import put_run, write_run
from score_files import write_score_files
from script_tools import about, is_plain, is_png

from omniinput_hpc.estimators.density.density import density_of_runs
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores_of_runs
from omniinput_hpc.results.tables import read_table

pytestmark = pytest.mark.slow

HOT, COLD = np.array([-2.0, 0.0, 1.0]), np.array([1.0, 3.0, 6.0])
RULE = "def first_is_zero(x):\n    return (x[:, 0] == 0) * 1.0\n"
CALL = ("--rule", "my_rules:first_is_zero")


@pytest.fixture
def runs(tmp_path):
    """Return the runs in memory of hot.h5 and runs/cold.h5, which have other seeds and rungs."""
    (tmp_path / "my_rules.py").write_text(RULE)
    (tmp_path / "runs").mkdir()
    hot = write_run(tmp_path / "hot.h5", beta_k=HOT, walkers=16, seed=1)
    cold = write_run(tmp_path / "runs/cold.h5", beta_k=COLD, walkers=16, seed=2, config_seed=2)
    return [hot, cold]


def last_entry(path):
    return json.loads(path.read_text())["analyses"][-1]


def test_two_runs_have_one_curve(runs, tmp_path, inside):
    code, out, err = inside("precision_recall.py", "hot.h5+runs/cold.h5", *CALL)
    assert (code, err) == (0, "")
    names = [f"hot+cold.{end}" for end in ("pr.csv", "pr.png", "roc.png")]
    assert out.splitlines()[-3:] == names and all(is_png(tmp_path / n) for n in names[1:])
    assert out.startswith("hot.h5, 16 of 16 rounds; runs/cold.h5, 16 of 16 rounds, 8 sites")
    assert about(tmp_path / names[0])[-1].startswith("source: hot.h5, 16 of 16 rounds; runs/cold")
    entry = last_entry(tmp_path / "hot+cold.results.json")
    assert [run["path"] for run in entry["runs"]] == ["hot.h5", "runs/cold.h5"]
    density = density_of_runs(runs)
    curve = rule_curve(density, sum_scores_of_runs(runs, density, first_is_zero))
    assert entry["values"]["hot+cold: AUPR"]["value"] == pytest.approx(curve.aupr)
    _, columns = read_table(tmp_path / names[0], [])
    np.testing.assert_allclose(columns["precision"], curve.precision_t, rtol=1e-9)
    log_right = np.log(MODEL.right_l().sum())
    assert columns["log_recall"][-1] == pytest.approx(log_right, abs=0.1)
    level = np.rint(columns["threshold"] / MODEL.unit - 0.5).astype(int)
    r = MODEL.right_l()[level] / MODEL.count_l()[level]
    assert len(r) > 15 and ((columns["r_low"] <= r) & (r <= columns["r_high"])).mean() > 0.75


def test_what_cannot_be_joined_is_said_in_one_sentence(runs, tmp_path, inside):
    write_run(tmp_path / "same.h5", beta_k=COLD, walkers=16, seed=3, config_seed=1)
    write_run(tmp_path / "bins.h5", edges=LEVEL_EDGES[1:], walkers=16, seed=3, config_seed=3)
    for word, why in [
        ("hot.h5+none.h5", "there is no run file none.h5"),
        ("hot.h5+same.h5", "the same [run] seed"),
        ("hot.h5+bins.h5", "hot.h5 have different bins"),
        ("hot.h5+hot.h5", "the same [run] seed"),
    ]:
        code, _, err = inside("precision_recall.py", word, *CALL)
        assert is_plain(code, err, why), err


def test_runs_of_other_sides_need_one(runs, tmp_path, inside):
    model = 'kind = "causal-lm"\npath = "none"\nlength = 8\n[analysis]\nside = "high"'
    write_run(
        tmp_path / "high.h5", beta_k=COLD, walkers=16, seed=3, config_seed=3, model=model
    )  # fmt: skip
    code, _, err = inside("precision_recall.py", "hot.h5+high.h5", *CALL)
    assert is_plain(code, err, "hot.h5 is counted from the low side and high.h5 from the high side")
    code, out, err = inside("precision_recall.py", "hot.h5+high.h5", *CALL, "--side", "high")
    assert (code, err) == (0, "") and "as --side says" in out


def test_two_groups_of_one_model_are_compared(runs, tmp_path, inside):
    for number, (name, beta_k) in enumerate([("c.h5", HOT), ("d.h5", COLD)], start=3):
        write_run(
            tmp_path / name, beta_k=beta_k, walkers=16, seed=number, config_seed=number
        )  # fmt: skip
    code, out, err = inside("compare.py", "hot.h5+runs/cold.h5", "c.h5+d.h5")
    assert (code, err) == (0, "") and "hot+cold and c+d agree within their errors." in out
    assert "shares of values compared" in out
    assert out.splitlines()[-2:] == ["hot+cold.samplers.csv", "hot+cold.samplers.png"]
    assert len(last_entry(tmp_path / "hot+cold.results.json")["runs"]) == 4
    code, _, err = inside("compare.py", "hot.h5+runs/cold.h5", "c.h5+runs/cold.h5")
    assert is_plain(code, err, "have the same [run] seed (2)")


def test_scores_are_of_the_joint_density(runs, tmp_path, inside):
    files = write_score_files(tmp_path / "hot.h5", runs[0], ["ana"], bias=0.0, noise=0.0)
    code, out, err = inside("precision_recall.py", "hot.h5+runs/cold.h5", "--scores", files[0].name)
    assert (code, err) == (0, "") and "hot+cold.r.png" in out
    joint = last_entry(tmp_path / "hot+cold.results.json")["values"]
    code, out, err = inside("precision_recall.py", "hot.h5", "--scores", files[0].name)
    alone = last_entry(tmp_path / "hot.results.json")["values"]
    ends = joint["hot+cold: AUPR"], alone["hot: AUPR"]
    assert abs(ends[0]["value"] - ends[1]["value"]) < 4 * np.hypot(*(end["error"] for end in ends))
    error = "median error of log_g"
    assert joint[f"hot+cold: {error}"]["value"] < alone[f"hot: {error}"]["value"]


@pytest.fixture
def models(tmp_path):
    """Return the folder of three runs of a good model and one of a worse one."""
    (tmp_path / "my_rules.py").write_text("from model_pair import is_right\n")
    drawn = [
        ("good", ABSOLUTE[:3]),
        ("good", ABSOLUTE[2:]),
        ("good", RELATIVE),
        ("worse", ABSOLUTE),
    ]
    for seed, (which, beta_k) in enumerate(drawn, start=1):
        config = (
            f'[run]\noutput = "a.h5"\nseed = {seed}\nrounds = 8\n[model]\nkind = "python"\n'
            'factory = "a:b"\n'
        )
        run = draw(which, beta_k, seed)
        put_run(tmp_path / f"{which}{seed}.h5", run, config, which, run.rounds)
    return tmp_path


def test_joined_runs_of_one_model_are_compared_with_another(models, inside):
    rule = ("--rule", "my_rules:is_right")
    code, out, err = inside("compare.py", "good1.h5+good2.h5", "worse4.h5", *rule)
    assert (code, err) == (0, "") and "good1+good2 is better than worse4" in out
    assert "normalized by: absolute densities" in out
    assert out.splitlines()[-2:] == ["good1+good2.compared.csv", "good1+good2.compared.png"]
    code, _, err = inside("compare.py", "good2.h5+good3.h5", "worse4.h5", *rule)
    assert is_plain(code, err, "good2.h5+good3.h5: a ladder has no beta = 0, so") and (
        "the models are normalized by samples" in err
    )
    code, _, err = inside("compare.py", "good1.h5+worse4.h5", "good3.h5", *rule)
    assert is_plain(code, err, "have different models")
