"""omniinput difference on the Toy models, at five digits: real runs against all 100,000 inputs."""

import sys

import numpy as np
import pytest
from run_tools import ROOT
from script_tools import call_script
from small_toys import (
    N_SITES,
    drawn,
    model_of,
    number_of,
    one_matrix_rounded,
    one_step_further,
    table_of,
)

import omniinput_hpc
from omniinput_hpc.cli import rescore
from omniinput_hpc.cli import run as launch
from omniinput_hpc.estimators.comparison.difference import pair, sameness
from omniinput_hpc.estimators.density.density import Density, density_of_run
from omniinput_hpc.estimators.density.wide_bins import in_width
from omniinput_hpc.results.difference import difference_of
from omniinput_hpc.results.tables import read_table
from omniinput_hpc.runfile.reader import open_run

pytestmark = pytest.mark.slow

M = 4
BOTH = [f"model.length={N_SITES}", "run.rounds=14", "sampler.walkers=64", "bins.width=0.05"]
CHAINS = [*BOTH, "run.burn_in=5", "ladder.betas=[-1.5,0,1,2.5,4]"]
DRAWS = [*BOTH, "run.burn_in=0", "ladder.betas=[0,1,2.5,4]", "sampler.method=ancestral",
         "sampler.steps=4", "sampler.exchanges=1", "samples.every=1"]  # fmt: skip
UNDER_LAW = [*CHAINS[:-1], "run.rounds=8", "run.burn_in=3", "ladder.betas=[-4,-2,-0.8,0,1]",
             "kernel.name=from-law", "law.kind=causal-lm",
             f"law.path={ROOT / 'inputs/models/toy'}"]  # fmt: skip
RANGE = (1.5, 4.5)
FEWEST, MOST = 1000, 0.15
NAMES = ("toy", "toy-worse")


@pytest.fixture(scope="module")
def tables():
    return {name: table_of(model_of(name)) for name in NAMES}


def sampled(folder, settings):
    """Make a run of both models, and rescore each by the other."""
    for seed, name in enumerate(NAMES):
        text = (ROOT / "inputs" / f"{name}.toml").read_text()
        text = text.replace("inputs/models", str(ROOT / "inputs/models"))
        (folder / f"{name}.toml").write_text(text.replace("seed = 1", f"seed = {seed}"))
        words = [*settings, f"run.output={folder / name}.h5"]
        given = [str(folder / f"{name}.toml"), *(w for word in words for w in ("--set", word))]
        assert launch.main(given) == 0
    for name, other in (NAMES, NAMES[::-1]):
        assert rescore.main([str(folder / f"{name}.h5"), str(folder / f"{other}.h5")]) == 0
    return folder


@pytest.fixture(scope="module", params=[CHAINS, DRAWS], ids=["chains", "draws"])
def folder(request, tmp_path_factory):
    return sampled(tmp_path_factory.mktemp("toys"), request.param)


def found_in(folder, z_range=RANGE, **options):
    with open_run(folder / "toy.h5") as a, open_run(folder / "toy-worse.h5") as b:
        return difference_of((a, b), NAMES, z_range, **options)


def inside(z):
    return (z >= RANGE[0]) & (z <= RANGE[1])


def off_by(found, tables):
    """Return the errors of all cells of 1,000 inputs or more: in nats, and in standard errors."""
    z = [tables[name].astype(float) for name in NAMES]
    off, sigmas = [], []
    for way, own in zip(found.ways, z, strict=True):
        d = (z[0] - z[1])[inside(own)]
        true_c = np.histogram(d, found.edges)[0]
        use = true_c >= FEWEST
        assert use.sum() >= 4
        error = way.density.log_g_c[use] - np.log(true_c[use])
        off += list(error)
        sigmas += list(error / way.density.error_c[use])
    return np.abs(off), np.abs(sigmas)


def test_every_cell_of_many_inputs(folder, tables):
    off, sigmas = off_by(found_in(folder, cells=60), tables)
    assert ((off < MOST) | (sigmas < 3)).all(), (off.max(), sigmas.max())
    assert np.sqrt((sigmas**2).mean()) < 1.7


def test_weights_that_are_all_equal_fail(folder, tables, monkeypatch):
    """With one bin of z they matter most; the right ones pass there, too."""
    one_bin = {"cells": 60, "width": RANGE[1] - RANGE[0]}
    off, sigmas = off_by(found_in(folder, **one_bin), tables)
    assert ((off < MOST) | (sigmas < 3.5)).all(), (off.max(), sigmas.max())
    monkeypatch.setattr(Density, "log_mixture", lambda self, z, *_: 0.0 * z)
    off, sigmas = off_by(found_in(folder, **one_bin), tables)
    assert ((off > MOST) & (sigmas > 4)).sum() >= 3, (off, sigmas)


def test_shares_means_and_divergences(folder, tables):
    found = found_in(folder)
    z = [tables[name].astype(float) for name in NAMES]
    for way, own, other, sign in zip(found.ways, z, z[::-1], (1, -1), strict=True):
        mine = inside(own)
        true = (~inside(other))[mine].mean()
        assert way.outside.low - 0.02 <= true <= way.outside.high + 0.02
        d = sign * (own - other)
        off = abs(way.means.whole.value - d[mine].mean())
        assert off < max(0.005, 4.5 * way.means.whole.error)
        assert way.sd == pytest.approx(d[mine].std(), rel=0.1)
        law = np.exp(-M * own)
        true = (law * (other - own)).sum() / law.sum()
        assert true > 0 and abs(way.divergence.value - true) < 4.5 * way.divergence.error
        assert way.divergence.error < 0.2 * true
    said = "\n".join(found.lines())
    assert "KL(toy || toy-worse): " in said and "KL(toy-worse || toy): " in said


def test_under_a_law(tmp_path, tables):
    """Every input then counts by its probability; to count inputs instead would be wrong by far."""
    found = found_in(sampled(tmp_path, UNDER_LAW))
    z = [tables[name].astype(float) for name in NAMES]
    law = np.exp(-M * z[0]) / 10
    assert law.sum() == pytest.approx(1.0)
    counted_off = []
    for way, own, other, sign in zip(found.ways, z, z[::-1], (1, -1), strict=True):
        mine, d = inside(own), sign * (own - other)
        p = law * mine / law[mine].sum()
        true = (p * ~inside(other)).sum()
        assert way.outside.low - 0.02 <= true <= way.outside.high + 0.02
        assert abs(way.means.whole.value - (p * d).sum()) < 4.5 * way.means.whole.error
        counted_off.append(abs(way.means.whole.value - d[mine].mean()) / way.means.whole.error)
        true_c, often_c = (
            np.histogram(d[mine], found.edges, weights=w)[0] for w in (law[mine], None)
        )
        use = often_c >= FEWEST
        sigmas = (way.density.log_g_c[use] - np.log(true_c[use])) / way.density.error_c[use]
        assert use.sum() >= 4 and (np.abs(sigmas) < 4.5).all(), sigmas
        assert way.divergence is None
    assert max(counted_off) > 10
    assert "probability" in "\n".join(found.lines())


def test_two_runs_of_one_model_have_equal_outputs(folder, tmp_path):
    (tmp_path / "toy.h5").write_bytes((folder / "toy.h5").read_bytes())
    words = ["run.seed=7", f"run.output={tmp_path}/again.h5", *DRAWS]
    assert launch.main([str(folder / "toy.toml"), *(w for x in words for w in ("--set", x))]) == 0
    for one, other in (("toy", "again"), ("again", "toy")):
        assert rescore.main([f"{tmp_path}/{one}.h5", f"{tmp_path}/{other}.h5"]) == 0
    with (
        omniinput_hpc.open(tmp_path / "toy.h5") as a,
        omniinput_hpc.open(tmp_path / "again.h5") as b,
    ):
        found = a.difference(b)
    assert found.same.equal and found.same.largest < 1e-4
    assert all(share < 0.05 for share in found.same.differing)
    assert all(abs(way.divergence.value) < 1e-5 for way in found.ways)
    said = "\n".join(found.lines())
    assert "toy and again have EQUAL OUTPUTS: with 95 % confidence at most " in said


def test_the_verb_prints_texts_of_both_ends(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ("toy.h5", "toy-worse.h5", "--range", *RANGE, "--cells", 9)
    code, out, err = call_script("difference.py", words, capsys)
    assert (code, err) == (0, "")
    shown = [line for line in out.splitlines() if ", z' " in line]
    assert len(shown) == 12 and all(len(line.split('"')[1].split()) == N_SITES for line in shown)
    _, table = read_table(folder / "toy.difference.toy-worse.csv", [])
    assert len(table["log_g"]) <= 18
    assert (folder / "toy.difference.toy-worse.pdf").is_file()


@pytest.mark.parametrize("change", [one_matrix_rounded, one_step_further])
def test_power(change, tables):
    """Outputs tell a slightly changed model at once; densities of such runs do not."""
    z = (tables["toy"], table_of(change()))
    assert 1e-5 < np.abs(z[0] - z[1]).mean() < 0.05
    ways, densities = [], []
    for i in (0, 1):
        run = drawn(z[i], i)
        densities.append(density_of_run(run.record()))
        other = z[1 - i][number_of(run.x_rksd)]
        ways.append(pair(run.record(), in_width(densities[i], 2.0), other, i == 0, 10**6))
    found = sameness(tuple(ways), tuple(densities), (2e-5, 3e-6))
    assert not found.equal and found.beyond > 0.5
    assert found.p > 1e-3
