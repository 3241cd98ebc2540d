"""Certified bounds beside a density, and the share among the draws at beta = 0."""

from dataclasses import replace

import law_runs
import numpy as np
import pytest

from omniinput_hpc.cli import omniinput
from omniinput_hpc.estimators import run_data
from omniinput_hpc.estimators.density.certified import certify, draws_at_zero, predicted_sites
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.results.certified import CertifiedResult, drawn_line
from omniinput_hpc.runfile.reader import open_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("law") / "run.h5"
    law_runs.write_law_run(path)
    with open_run(path) as opened:
        yield opened


def test_the_share_among_the_draws(run):
    exact = law_runs.Q[np.abs(law_runs.outputs() + 1.0) < 0.5].sum()
    (line,) = drawn_line(run.data, -1.5, -0.5)
    share = float(line.partition("beta = 0, ")[2].split()[0])
    n = int(line.split()[1].replace(",", ""))
    assert share == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / n))
    assert drawn_line(run.data, -9.0, -8.0) == []


def test_a_range_up_to_the_last_edge_counts_the_draws_on_it(run):
    """The last bin is closed: a saturated classifier's z may all lie on that edge."""
    z, data = draws_at_zero(run.data), replace(run.data, edges=np.array([-5.5, -0.5, 0.0]))
    share = float(drawn_line(data, -0.5, 0.0)[0].partition("beta = 0, ")[2].split()[0])
    assert share == pytest.approx(np.mean(z == 0.0), rel=0.01)
    assert drawn_line(data, -1.5, -1.0) == []  # on other edges, they belong to the upper bin


def test_a_run_too_large_to_be_held_is_read_before_it_is_closed(run, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(run_data, "MAX_HELD", 0)
    words = [str(run.path), "--results", str(tmp_path), "--range", "-1.5", "-0.5"]
    assert omniinput.main(["reweight", *words]) == 0
    printed = capsys.readouterr().out
    assert drawn_line(run.data, -1.5, -0.5)[0] in printed


def test_a_density_is_compared_with_its_bounds(run):
    density = density_of_run(run.data)
    bounds = certify(run.data, predicted_sites(run.data))
    inside = CertifiedResult([run], [density], bounds).lines()[-1]
    assert "is within these bounds at" in inside and "it is not" not in inside
    far = replace(density, log_g_b=density.log_g_b + 1.0, log_g_jb=density.log_g_jb + 1.0)
    assert "it is not at z = " in CertifiedResult([run], [far], bounds).lines()[-1]


def test_a_density_without_what_lies_below_its_bins_is_not_compared(run):
    """The bounds count those inputs. The last bin holds its upper end, the bounds there do not."""
    density = density_of_run(run.data)
    bounds = certify(run.data, predicted_sites(run.data))
    below_k2 = density.outside_k2.copy()
    below_k2[-1, 0] = 1
    result = CertifiedResult([run], [replace(density, outside_k2=below_k2)], bounds)
    assert "is not compared with these bounds: outputs below" in result.lines()[-1]
    drawn = result.figure().axes[0].get_legend_handles_labels()[1]
    assert "from the density" not in drawn and "certified 95% bounds" in drawn
    last = np.append(bounds.high_t[:-1], -5.0)
    result = CertifiedResult([run], [density], replace(bounds, high_t=last))
    assert "it is not" not in result.lines()[-1]
