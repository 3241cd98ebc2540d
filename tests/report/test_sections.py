"""The report's verdict and its rung table say the same about lanes: one R-hat, of the same samples.

They once came from two definitions, and a page said both "lanes agree" and "R-hat up to 1.08".
"""

import re

import h5py
import numpy as np
import pytest
from hostile_words import write_model_folder
from run_files import BETA_K, write_run
from run_tools import ROOT

from omniinput_hpc.config import input_file
from omniinput_hpc.estimators.errors import chains
from omniinput_hpc.report import content, sections
from omniinput_hpc.results import diagnosis

RUNG, RHAT, WALKERS = 2, 1.18, 16
LIMIT = chains.rhat_limit(len(BETA_K), WALKERS)


def shift_half_the_lanes(path, walkers):
    """Give a rung of a run normal outputs whose lanes have an R-hat of `RHAT`."""
    with h5py.File(path, "r+", locking=False) as file:
        z_rks = file["samples/z"][...]
        z_rs = z_rks[:, RUNG]
        noise_tw = np.random.default_rng(0).normal(size=z_rs.size).reshape(-1, walkers)
        shifted = np.arange(walkers) < walkers // 2
        low, high = 0.0, 3.0
        for _ in range(40):
            middle = 0.5 * (low + high)
            rhat = chains.rank_normalized_rhat(noise_tw + middle * shifted)
            low, high = (middle, high) if rhat < RHAT else (low, middle)
        z_tw = z_rs.mean() + 0.1 * z_rs.std() * (noise_tw + low * shifted)
        z_rks[:, RUNG] = z_tw.reshape(z_rs.shape)
        file["samples/z"][...] = z_rks


def said_of_lanes(html):
    """Return R-hat of each rung by the rung table, and those over the limit by the verdict."""
    verdict = " ".join(re.findall(r'<p class="(?:bad|good)">([^<]*)', html))
    lanes = "".join(re.findall(r"lanes disagree \(R-hat over.*?</p>", html))
    by_verdict = {
        float(beta): float(rhat)
        for beta, rhat in re.findall(r"beta = (-?[\d.]+)[^()]*\((\d\.\d+)\)", lanes)
    }
    rungs = html[html.index('<th scope="col">R-hat</th>') :]
    rows = re.findall(r"<tr>(.*?)</tr>", rungs[: rungs.index("</table>")])
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in rows]
    return {float(row[1]): float(row[5]) for row in cells if row}, by_verdict, verdict


@pytest.fixture
def page(tmp_path, inside):
    """Return a way to make the page of a run with a rung whose R-hat is over its limit."""
    write_model_folder(tmp_path / "none")
    write_run(tmp_path / "run.h5", walkers=WALKERS, seed=1)
    shift_half_the_lanes(tmp_path / "run.h5", WALKERS)

    def make():
        code, _, err = inside("report.py", "run.h5")
        assert (code, err) == (0, "")
        return (tmp_path / "run.report.html").read_text(encoding="utf-8")

    return make


def agree(html):
    """Return whether the verdict names the rungs that the table has over the limit, and no other.

    Their R-hat must be the same number, as far as it is printed.
    """
    table, by_verdict, _ = said_of_lanes(html)
    over = {beta: rhat for beta, rhat in table.items() if rhat > LIMIT}
    return over.keys() == by_verdict.keys() and all(
        abs(over[beta] - rhat) < 0.0056 for beta, rhat in by_verdict.items()
    )


def test_the_verdict_and_the_rung_table_name_the_same_lanes(page):
    html = page()
    assert "it samples inputs with weight exp(-beta z). Effective samples: " in html
    table, by_verdict, verdict = said_of_lanes(html)
    assert by_verdict == {BETA_K[RUNG]: RHAT}
    assert abs(table[BETA_K[RUNG]] - RHAT) < 0.006
    assert f"lanes disagree on rungs {RUNG} (R-hat up to {RHAT:.2f})" in verdict
    assert "Converged:" not in verdict
    assert agree(html)


LAW = ("law.kind=model", "kernel.name=from-law")
PLAIN = "A row per rung, a temperature: it samples inputs with weight"


@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        ("toy", (), f"{PLAIN} exp(-beta z)."),
        ("toy", LAW, f"{PLAIN} q(x) exp(-beta z), q the law."),
        ("toy-distinct", (), f"{PLAIN} exp(-beta z - lambda y)."),
        ("toy-gwl", (), f"{PLAIN} exp(-beta z). A rung named flat samples"),
        ("english-25-annealed", (), "A row per rung, a temperature: its populations, each walker"),
        ("english-25-ancestral", (), "A row per rung: it draws inputs value by value from p^b"),
    ],
)
def test_the_weight_of_the_rungs_is_that_of_the_method_and_the_law(name, keys, said):
    assert sections._weight(input_file.load(ROOT / f"inputs/{name}.toml", keys)).startswith(said)


def test_two_definitions_would_be_noticed(page, monkeypatch):
    """The failing twin: the rung table by another R-hat, 0.999 where the verdict has 1.18."""

    def other(run, rhat_k):
        return diagnosis.diagnose(run, np.where(rhat_k > LIMIT, 0.999, rhat_k))

    monkeypatch.setattr(content, "diagnose", other)
    assert not agree(page())


def test_figures_of_a_relative_density_are_of_shares(tmp_path, inside):
    write_model_folder(tmp_path / "none")
    write_run(tmp_path / "run.h5", walkers=8, rounds=4, beta_k=np.array([0.5, 1.0]))
    assert inside("report.py", "run.h5")[0] == 0
    html = (tmp_path / "run.report.html").read_text(encoding="utf-8")
    assert "Share of inputs per bin of the output" in html and "Share of inputs per output" in html
    assert "Number of inputs per" not in html
