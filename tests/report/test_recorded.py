"""Recorded inputs on request: every sample of a bin once, searches that can go on, weights."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hostile_words import write_model_folder
from run_files import write_run

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.report import recorded
from omniinput_hpc.report.recorded import PAGE, Recorded
from omniinput_hpc.runfile.reader import open_run


@pytest.fixture
def run(tmp_path):
    """Return the open file of a run of hostile words."""
    write_model_folder(tmp_path / "none")
    write_run(tmp_path / "one.h5", walkers=8, rounds=4, moves=30)
    with pytest.MonkeyPatch.context() as here:
        here.chdir(tmp_path)
        with open_run("one.h5") as run:
            yield run


def pages(ask):
    """Return the answers to a question until there are no more."""
    found = [ask(0)]
    while found[-1].next is not None:
        found.append(ask(found[-1].next))
    return found


def times(note):
    """Return how often an input was recorded, from its note."""
    return next((int(w.split()[0]) for w in note.split(", ") if w.endswith("times here")), 1)


def test_every_sample_of_a_bin_is_shown_once_and_stands_for_its_share(run):
    density = density_of_run(run.data)
    shown = Recorded(run, density)
    z_i = np.concatenate([run.data.z_of(r).ravel() for r in range(run.rounds)])
    for b in np.flatnonzero(density.count_b):
        inside = (z_i >= density.edges[b]) & (z_i < density.edges[b + 1])
        found = pages(lambda start, b=b: shown.of_bin(density.edges[b] + 0.01, start))
        lines = [line for page in found for line in page.inputs]
        n = sum(times(line["note"]) for line in lines)
        assert n == inside.sum() and f" {n:,} recorded sample" in found[0].said
        assert all(len(page.inputs) <= PAGE for page in found)
        assert {float(line["z"]) for line in lines} <= set(z_i[inside])
        # the weights of a bin's samples add up to its inputs: as many as the lattice has there
        assert abs(n * _stands_for(lines[0]["note"]) / np.exp(density.log_g_b[b]) - 1) < 0.15


def test_recorded_inputs_stand_for_those_that_were_not_recorded(run):
    """A tenth of the moves is recorded: the samples of a bin still add up to its inputs."""
    every = density_of_run(run.data)
    data = replace(run.data, counts_kb=10 * run.data.counts_kb, outside_k2=10 * run.data.outside_k2)
    thinned = SimpleNamespace(
        data=data, config=run.config, beta_k=run.beta_k, samples_per_round=run.samples_per_round
    )
    some, one = (
        Recorded(of, density).of_bin(run.data.z().ravel()[0]).inputs[0]["note"]
        for of, density in ((run, every), (thinned, replace(every, n_k=10 * every.n_k)))
    )
    assert _stands_for(some) == pytest.approx(_stands_for(one), rel=0.02)


def _stands_for(note):
    amount = note.split("stands for ")[1].split(" inputs")[0].replace(",", "")
    return 10 ** float(amount[3:]) if amount.startswith("10^") else float(amount)


def test_a_bin_without_samples_gives_the_nearest_one(run):
    shown = Recorded(run, density_of_run(run.data))
    assert shown.of_bin(1e9).said == shown.of_bin(run.data.z().max()).said
    with pytest.raises(UserError, match="not a number"):
        shown.of_bin(np.nan)


@pytest.mark.parametrize("chunk", [7, 500])
def test_a_search_reads_all_samples_by_parts(run, monkeypatch, chunk):
    monkeypatch.setattr(recorded, "CHUNK", chunk)
    shown = Recorded(run, density_of_run(run.data))
    total = run.rounds * len(run.beta_k) * run.samples_per_round
    x = np.concatenate([x.reshape(-1, run.n_sites) for x, _ in run.samples()])
    holds = (x == 2).any(axis=1)  # the word with the address
    found = pages(lambda start: shown.search("ANN.B@example", start))
    lines = [line for page in found for line in page.inputs]
    assert sum(times(line["note"]) for line in lines) == holds.sum() > PAGE
    assert all("ann.b@example.com" in line["shown"] for line in lines)
    assert found[-1].said.startswith(f"{total:,} of {total:,} recorded samples")
    assert shown.search("nobody wrote this").inputs == []
    with pytest.raises(UserError, match="give words"):
        shown.search("")


def test_a_slow_search_answers_and_goes_on(run, monkeypatch):
    monkeypatch.setattr(recorded, "SECONDS", -1.0)
    monkeypatch.setattr(recorded, "CHUNK", 50)
    shown = Recorded(run, density_of_run(run.data))
    first = shown.search("nobody wrote this")
    assert first.next == 50 and first.said.startswith("50 of ")
    assert len(pages(lambda start: shown.search("nobody wrote this", start))) > 4


def test_masked_texts_are_searched_masked(run):
    shown = Recorded(run, density_of_run(run.data), masked=True)
    assert not shown.search("example.com or").inputs
    assert "[e-mail]" in shown.search("[e-mail]").inputs[0]["shown"]
    assert "<U+202E>" in shown.search("[phone]").inputs[0]["shown"]


def test_the_extremes_come_from_the_end(run):
    shown = Recorded(run, density_of_run(run.data))
    low, high = ([float(i["z"]) for i in shown.extremes(end).inputs] for end in ("low", "high"))
    z_rks = run.data.z()
    assert low == sorted(low) and high == sorted(high, reverse=True)
    assert (low[0], high[0]) == (z_rks.min(), z_rks.max())
