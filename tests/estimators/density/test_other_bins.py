"""A run in other bins: its recorded samples, counted again, and the density that they give."""

import numpy as np
import pytest
from runs_in_progress import begin, config_of

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.other_bins import edges_of, in_other_bins
from omniinput_hpc.results.density import other_bins_clause
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.sampling import loop
from omniinput_zoo.exact import Lattice

LONG = ("run.rounds=24", "run.burn_in=2", "sampler.walkers=16", "sampler.exchanges=10")


def path_of(folder, *changes):
    """Return a run file of the lattice model, sampled here."""
    run = begin(config_of(folder, *LONG, *changes))
    loop.sample(run)
    run.writer.close()
    return folder / "run.h5"


def test_all_moves_in_a_runs_own_bins_are_its_own_counts(tmp_path):
    with open_run(path_of(tmp_path, "samples.every=1")) as run:
        data = run.data
        again = in_other_bins(data, data.edges)
        for name in ("counts_kb", "lane_counts_kgb", "outside_k2"):
            np.testing.assert_array_equal(getattr(again, name), getattr(data, name))
        np.testing.assert_array_equal(again.counts_nkb(3), data.counts_nkb(3))
        np.testing.assert_allclose(again.z_sum_kb, data.z_sum_kb)
        one, other = density_of_run(data), density_of_run(again)
        np.testing.assert_allclose(other.log_g_b, one.log_g_b, atol=1e-9)
        assert again.path == run.path
        assert other_bins_clause([data]) == "in other bins, from its 76,800 recorded samples"


def test_bins_that_were_too_narrow_are_mended(tmp_path):
    """The run's bins hold a third of the outputs; in wide ones the density is the exact one."""
    path = path_of(tmp_path, "samples.every=5", "bins.lower=1.375", "bins.upper=2.875")
    edges = edges_of("-0.125:4.625:0.25")
    with open_run(path) as run:
        assert run.data.outside_k2.sum() > 0.2 * run.data.counts_kb.sum()
        assert "one in 5 of its counts" in other_bins_clause([run.data])
        two = other_bins_clause([run.data, run.data])
        assert f"from only their {2 * run.samples_z().size:,} " in two
        assert "one in 5 of their counts" in two
        again = in_other_bins(run.data, edges)
        found = density_of_run(again)
        assert again.counts_kb.sum() == run.samples_z().size
    log_g_b = Lattice(6, 4, 0.25).log_g(edges)
    firm_b = (found.count_b > 0) & np.isfinite(found.log_g_error_b) & (found.log_g_error_b < 0.3)
    assert found.absolute and firm_b.sum() >= 15
    off_b = (found.log_g_b - log_g_b)[firm_b] / found.log_g_error_b[firm_b]
    assert np.sqrt(np.mean(off_b**2)) < 2.0
    shifted = Lattice(6, 4, 0.25).log_g(edges - 0.25)  # samples put one bin off would show
    wrong_b = (found.log_g_b - shifted)[firm_b] / found.log_g_error_b[firm_b]
    assert np.sqrt(np.mean(wrong_b[np.isfinite(wrong_b)] ** 2)) > 5.0


def test_windows_of_z_are_refused(tmp_path):
    from types import SimpleNamespace

    flat = SimpleNamespace(rounds=3, beta_k=np.array([np.nan, 0.0]), path="a.h5")
    with pytest.raises(EstimateError, match="has Wang-Landau rungs"):
        in_other_bins(flat, np.arange(3.0))


@pytest.mark.parametrize(("text", "words"), [
    ("1:2", "expected LOWER:UPPER:WIDTH"), ("a:2:1", "expected LOWER:UPPER:WIDTH"),
    ("2:1:0.1", "LOWER below UPPER"), ("0:1:0", "WIDTH above 0"), ("0:nan:1", "LOWER below"),
    ("0:1:0.3", "not a whole number"), ("0:1:1e-9", "too many"),
])  # fmt: skip
def test_bins_that_are_none(text, words):
    with pytest.raises(ValueError, match=words):
        edges_of(text)


def test_edges():
    np.testing.assert_allclose(edges_of("-1:1:0.5"), [-1, -0.5, 0, 0.5, 1])
