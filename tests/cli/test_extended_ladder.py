"""A ladder that is extended: another run of further betas, joined with the first one.

The lattice of 10 sites, whose density and scores are known exactly. The old run holds beta = 0 and
hardly reaches low outputs; the new one holds these alone, and is relative.
"""

import numpy as np
import pytest
from run_tools import LATTICE
from toy_models import LatticeModel
from toy_rules import begins_with_zero

from omniinput_hpc.cli import run as launch
from omniinput_hpc.cli.verbs import precision_recall, reweight
from omniinput_hpc.estimators.density.density import density_of_run, density_of_runs
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores_of_runs
from omniinput_hpc.runfile.reader import open_run

pytestmark = pytest.mark.slow

N_SITES = 10
SETTINGS = [
    f"model.options.n_sites={N_SITES}", "bins.upper=7.625", "run.rounds=24", "run.burn_in=4",
    "sampler.walkers=16", "sampler.steps=10", "sampler.exchanges=4", "samples.every=2",
]  # fmt: skip


def sample(folder, name, seed, betas):
    """Run the input file with this output, seed and ladder; return the exit code."""
    toml = folder / "lattice.toml"
    toml.write_text(LATTICE.format(output=folder / "unused.h5"))
    changes = [
        *SETTINGS, f"run.output={folder / name}", f"run.seed={seed}", f"ladder.betas={betas}"
    ]  # fmt: skip
    return launch.main([str(toml), *(w for change in changes for w in ("--set", change))])


def exact():
    """Return ln g and r of every level [L]; level l is bin l."""
    count_l, right_l = np.zeros((2, 3 * N_SITES + 1))
    for n, of_l in ((N_SITES, count_l), (N_SITES - 1, right_l)):
        z, log_count = LatticeModel(n, 4, 0.25, "cpu").log_count()
        of_l[np.rint(z / 0.25).astype(int)] = np.exp(log_count)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(count_l), right_l / count_l


def test_the_joint_density_is_right_where_neither_alone_is(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sample(tmp_path, "old.h5", 1, [-2.0, 0.0, 1.5]) == 0
    before = (tmp_path / "old.h5").read_bytes()
    assert sample(tmp_path, "old.h5", 1, [-2.0, 0.0, 1.5, 3.0, 5.0, 8.0]) == 2
    assert (tmp_path / "old.h5").read_bytes() == before
    said = capsys.readouterr().err
    assert "another run.output, another run.seed and [ladder] betas = [1.5, 3.0, 5.0, 8.0]" in said
    assert sample(tmp_path, "new.h5", 2, [1.5, 3.0, 5.0, 8.0]) == 0

    log_g_b, r_b = exact()
    with open_run("old.h5") as old, open_run("new.h5") as new:
        both = density_of_runs([old.data, new.data])
        one, other = density_of_run(old.data), density_of_run(new.data)
        curve = rule_curve(
            both, sum_scores_of_runs([old.data, new.data], both, begins_with_zero), whole=True
        )
    seen, low = both.count_b > 0, slice(0, 5)
    assert both.absolute and seen[low].all()
    score_b = (both.log_g_b[seen] - log_g_b[seen]) / both.log_g_error_b[seen]
    assert np.abs(score_b[both.effective_b[seen] >= 50]).max() < 4.5
    assert both.log_g_error_b[low].max() < 0.3
    # alone: the old run's errors there are large or not known, the new one is not absolute
    assert not one.effective_b[low].min() > 20 and not one.log_g_error_b[0] < 0.5
    assert not other.absolute and np.abs(other.log_g_b[low] - log_g_b[low]).min() > 3.0
    good = curve.r_error_b > 0
    assert np.abs((curve.r_b[good] - r_b[good]) / curve.r_error_b[good]).max() < 4.5
    assert good[1:8].all()

    reweight.main(["old.h5", "new.h5"])
    precision_recall.main(["old.h5+new.h5", "--rule", "toy_rules:begins_with_zero"])
    assert "old.h5, 24 of 24 rounds; new.h5, 24 of 24 rounds" in capsys.readouterr().out
    assert all((tmp_path / f"old+new.{end}").exists() for end in ("density.csv", "pr.csv"))
