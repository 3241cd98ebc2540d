"""What --check says before a run: times, swaps and bins, from a few tried exchanges."""

import time

import numpy as np
import pytest
from exact_moments import moments
from run_tools import LATTICE
from runs_in_progress import WORLD, begin, config_of

from omniinput_hpc.config import input_file
from omniinput_hpc.config.kernels import LmConditional
from omniinput_hpc.sampling import build, forecast, loop
from omniinput_hpc.sampling.trial import ExchangeTrial
from omniinput_zoo.exact import Lattice

BETAS = "ladder.betas=[-2.0, 0.0, 1.5, 4.0]"


def built_of(folder, *changes):
    return build.build(WORLD, config_of(folder, *changes), None)


def seen(z_kw, seconds=0.01, exchanges=5, outside=0.0):
    extremes = np.array([np.min(z_kw), np.max(z_kw)])
    return ExchangeTrial(exchanges, seconds, np.asarray(z_kw), extremes, outside)


def test_exchanges_are_tried_and_nothing_is_written(tmp_path):
    built = built_of(tmp_path)
    found = forecast.tried(WORLD, built, seconds=60.0)
    assert found.exchanges == built.config.sampler.exchanges and found.seconds > 0
    assert np.isfinite(found.z_kw).all() and found.outside == 0.0
    assert found.extremes[0] <= found.z_kw.min() and found.extremes[1] >= found.z_kw.max()
    assert not list(tmp_path.iterdir())


def test_what_does_not_fit_into_the_time_is_estimated_from_single_moves(tmp_path):
    built = built_of(
        tmp_path,
        "model.factory='slow_models:slow'",
        "model.options={seconds=0.01}",
        "sampler.steps=1000",
    )
    found = forecast.tried(WORLD, built, seconds=0.5)
    assert found.exchanges == 0 and np.isnan(found.z_kw).all()
    assert any("time for 0 of 3" in note for note in forecast.judge(built.config, found, None))
    assert found.seconds > 0.5


@pytest.mark.slow
def test_the_estimate_is_near_the_time_of_a_run(tmp_path):
    """Loose, and one of three, since a machine may be busy at one of the two times.

    tests/benchmarks/estimates.py prints it when idle.
    """
    changes = ("run.rounds=20", "run.burn_in=4", "sampler.exchanges=20", "sampler.walkers=64")
    built = built_of(tmp_path, *changes)
    ratios = []
    while len(ratios) < 3 and not any(1 / 4 < ratio < 4 for ratio in ratios):
        estimate = forecast.seconds_of_run(built.config, forecast.tried(WORLD, built, seconds=3.0))
        run = begin(config_of(tmp_path, *changes, f"run.output={tmp_path}/{len(ratios)}.h5"))
        start = time.monotonic()
        loop.sample(run)
        run.writer.close()
        ratios.append(estimate / (time.monotonic() - start))
    assert 1 / 4 < ratios[-1] < 4, ratios


def test_the_acceptance_of_neighbours_is_that_of_their_outputs():
    """Draws from the exact distributions give the exact acceptance, by summing over all outputs."""
    model, beta_k = Lattice(16, 4, 0.5), np.array([0.0, 1.0, 4.0])
    _, p_kl = moments(model, beta_k)
    z_l, _ = model.log_count()
    random = np.random.default_rng(3)
    z_kw = np.stack([random.choice(z_l, size=2000, p=p_l) for p_l in p_kl])
    exact = [
        p_kl[k] @ np.exp(np.minimum(0, gap * (z_l[None] - z_l[:, None]))) @ p_kl[k + 1]
        for k, gap in enumerate(np.diff(beta_k))
    ]
    np.testing.assert_allclose(forecast.acceptance(beta_k, z_kw), exact, atol=0.02)


def test_neighbours_that_will_hardly_swap_are_named(tmp_path):
    config = config_of(tmp_path, BETAS, "bins.width=0.0625")
    z_kw = np.array([[4.0, 4.1], [2.0, 2.1], [1.9, 2.0], [-3.0, -3.1]])
    notes = forecast.judge(config, seen(z_kw), None)
    assert notes == [
        "neighbours 0 and 1 will hardly swap (1.8% in the trial moves): add a rung between "
        "beta = -2 and 0",
        "neighbours 2 and 3 will hardly swap (0.0% in the trial moves): add a rung between "
        "beta = 1.5 and 4",
        "in the trial moves, the absolute scale of the density, known at beta = 0, reached from "
        "beta = 0 to 1.5",
    ]
    (hurried,) = forecast.judge(config, seen(z_kw, exchanges=1), None)
    assert hurried.startswith("the trial had time for 1 of 3 exchanges: whether neighbours swap")
    on_a_lattice = seen(np.tile([1.0, 1.25], (4, 1)))
    assert forecast.judge(config_of(tmp_path, BETAS), on_a_lattice, None) == []
    alike = seen(np.ones((4, 2)))
    assert forecast.judge(config, alike, None) == []


@pytest.mark.parametrize("change", [(), ("ladder.betas=[0.0, 1.5, 4.0]",)])
def test_a_run_shorter_than_a_round_trip_is_noticed(tmp_path, change):
    """Pairs at gaps of 2, 1.5 and 2.5 reject 1 - exp(-0.5 gap) by outputs that differ by 0.5."""
    config = config_of(tmp_path, BETAS, "run.rounds=4", "sampler.exchanges=3", *change)
    z_kw = np.repeat(-0.5 * np.arange(len(config.beta_k))[:, None], 2, axis=1)
    rejection_k = 1 - np.exp(-0.5 * np.diff(config.beta_k))
    trip = len(z_kw) * 2 * (1 + (rejection_k / (1 - rejection_k)).sum())
    model_beta = 4.0 if change else None
    (note,) = forecast.judge(config, seen(z_kw), model_beta)[-1:]
    assert f"about {trip / (2 if change else 1):,.0f} exchanges" in note
    assert note.startswith("the run is too short for its ladder") and "the run has 12 " in note
    longer = config_of(tmp_path, BETAS, "run.rounds=50", "sampler.exchanges=3", *change)
    assert not any("too short" in text for text in forecast.judge(longer, seen(z_kw), model_beta))


def test_bins_betas_and_m_are_judged(tmp_path):
    config = config_of(tmp_path, BETAS, "bins.width=0.125")
    notes = forecast.judge(config, seen(np.tile([7.0, 7.05], (4, 1)), outside=0.4), 3.0)
    assert notes == [
        "40% of the trial's outputs were outside the bins: z ranged from 7 to 7.05, the bins from "
        "-0.125 to 4.625",
        "largest |beta| * bins.width = 0.5 is above 0.25: weights vary inside a bin; use a width "
        "of 0.062",
        "no rung at beta = m = 3, the model's own distribution: with one, the density could be "
        "checked there against a known value",
        "beta = 4 is above m = 3: language models get stuck there without "
        "kernel.look_ahead = true (lm-conditional)",
    ]
    kernel = LmConditional.model_validate({"name": "lm-conditional", "look_ahead": True})
    ahead = config.model_copy(update={"kernel": kernel})
    trial = seen(np.tile([7.0, 7.05], (4, 1)))
    assert forecast.judge(ahead, trial, 3.0)[-1].startswith("no rung")
    assert not any("no rung" in note for note in forecast.judge(ahead, trial, 24.0))


@pytest.mark.parametrize("more", [
    'lambdas = [0.0, 0.0, 1.0]\nobservable = "distinct"',
    "kappa = [0.0, 0.0, 1.0]\nz0 = [0.0, 0.0, 0.0]",
])  # fmt: skip
def test_swaps_that_do_not_follow_from_beta_alone_are_not_judged(tmp_path, more):
    text = LATTICE.format(output=tmp_path / "run.h5").replace(
        "[-2.0, 0.0, 1.5, 4.0]", f"[0.2, 0.0, 0.2]\n{more}"
    )
    config = input_file.parse(f'{text}[[observables]]\nname = "distinct"', "lattice.toml")
    z_kw = np.array([[4.0, 4.1], [2.0, 2.1], [90.0, 90.0]])
    unjudged = "whether neighbours swap, and the length, were not judged"
    no_rung, beyond = "no rung at beta = m = 0.1", "beta = 0.2 is above m = 0.1: language"
    notes = forecast.judge(config, seen(z_kw), 0.1)
    assert len(notes) == 3 and notes[0].startswith(no_rung) and notes[2].startswith(beyond)
    assert notes[1] == f"rungs have kappa or lambdas: {unjudged}"
    assert forecast.judge(config, seen(z_kw, exchanges=1), None) == [
        f"the trial had time for 1 of 3 exchanges: {unjudged}"
    ]


@pytest.mark.parametrize(("device", "words"), [
    ("cpu", "about 12 min, estimated from 5 exchanges tried now: 6 s per round, 0.4 core-hours"),
    ("cuda:0", "about 12 min, estimated from 5 exchanges tried now: 6 s per round, 0.4 GPU-hours"),
])  # fmt: skip
def test_the_time_in_words(tmp_path, device, words):
    config = config_of(tmp_path, "run.rounds=100", "run.burn_in=20", "sampler.exchanges=10")
    text = forecast.describe_time(config, seen(np.ones((4, 2)), seconds=0.6), 2, device)
    assert text.startswith(words)


def test_a_resumed_run_is_told_what_is_left(tmp_path):
    config = config_of(tmp_path, "run.rounds=100", "run.burn_in=20", "sampler.exchanges=10")
    text = forecast.describe_time(config, seen(np.ones((4, 2)), seconds=0.6), 2, "cpu", done=70)
    assert text.startswith("about 5 min for the rounds after the 70 in the file")
    assert forecast.seconds_of_run(config, seen(np.ones((4, 2)), seconds=0.6), done=120) == 0
