"""The lm-conditional kernel: exact for every span and ensemble; wrong variants are caught."""

import numpy as np
import pytest
import torch
from exactness import (
    Draw,
    Explorer,
    Gaussian,
    ScriptedStream,
    Tabulated,
    check_alone,
    check_exact,
    check_matrix,
    distribution,
    shift_of_value,
    value_at,
)
from language_folders import save_decoder
from toy_models import AutoregressiveModel, CoupledModel, KVCacheModel, ToyKVCache
from wrong_variants import OneSlope, without_proposal_term

from omniinput_hpc import kernels, rng
from omniinput_hpc.config import CausalLm, input_file
from omniinput_hpc.config.kernels import LmConditional as Options
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels import DeviceStream, lm_conditional
from omniinput_hpc.kernels.lm_conditional import LmConditional, RowCache
from omniinput_hpc.kernels.parts.spans import Span, SpanSchedule
from omniinput_hpc.kernels.state import Info, SearchBudget, State, Target
from omniinput_hpc.models.language import causal_lm
from omniinput_hpc.tempering.ensembles import Canonical

MODEL = AutoregressiveModel()
ENSEMBLES = [
    *map(Canonical, (-2.0, 2.0)), Gaussian(), Tabulated(),
    *(pytest.param(Canonical(beta), marks=pytest.mark.release) for beta in (0.5, 1.0)),
]  # fmt: skip
SITE, BLOCK, SUFFIX, FLIP = range(4)
SPANS = [
    *(Span(SITE, i, i + 1) for i in range(3)),
    *(Span(BLOCK, i, i + 2) for i in range(2)),
    *(Span(SUFFIX, i, 3) for i in range(3)),
    *(Span(FLIP, i, i + 1) for i in range(3)),
]
CHOICES = [0.0, 0.0, 0.0]


def options(**keys):
    return Options.model_validate({"name": "lm-conditional", **keys})


def rewriting(span, model=MODEL, make=LmConditional):
    """Return a kernel that always rewrites one span, and its draws."""
    kernel = make(options(), model, 64)

    class Always:
        def draw(self, u):
            assert len(u) == 3
            return span

    kernel._schedule = Always()
    if span.part == FLIP:
        return kernel, [Draw(2, shift_of_value(3))]
    return kernel, [Draw(3, value_at(t)) for t in range(span.begin, span.end)]


def moved_elsewhere(kernel, x, z):
    """Move from elsewhere at another beta, be put at x, and be rejected once at this beta."""
    half = torch.full((len(x),), 0.5, dtype=torch.float64)
    elsewhere = x.roll(1, 0)
    before = kernel.start(elsewhere, z.roll(1, 0))
    kernel.step(before, Canonical(0.3), ScriptedStream([half] * 4, CHOICES))
    return kernel.start(x, z)


@pytest.mark.parametrize("model", [MODEL, KVCacheModel()], ids=["whole", "cached"])
@pytest.mark.parametrize("ensemble", [Canonical(2.0), Gaussian()])
def test_z_is_of_the_same_evaluation_as_its_conditionals(model, ensemble):
    """Not what an exchange brought, which was rounded elsewhere."""
    kernel, _ = rewriting(Span(FLIP, 1, 2), model)
    stream = DeviceStream(
        rng.generator(5, "moves"), torch.device("cpu"), 1 << 12, rng.generator(5, "choices")
    )
    x = torch.randint(3, (64, 3), generator=torch.Generator().manual_seed(1))
    state = kernel.start(x, model.output(x) + 1e-3)
    moved, info = kernel.step(state, ensemble, stream)
    assert not info.accepted.all()
    torch.testing.assert_close(moved.z, model.output(moved.x), atol=1e-6, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_transition_matrices_are_exact(ensemble):
    """Each span alone leaves the ensemble invariant, in detail; together they go everywhere."""
    together = np.zeros((27, 27))
    for span in SPANS:
        kernel, draws = rewriting(span)
        start = moved_elsewhere if span.part in (BLOCK, FLIP) else None  # half as fast
        together += check_exact(kernel, MODEL, ensemble, draws, CHOICES, False, start)
    check_matrix(together / len(SPANS), distribution(MODEL, ensemble))


@pytest.mark.slow
@pytest.mark.parametrize(("predicted_from", "ensemble"), [
    (0, Canonical(2.0)), (1, Gaussian()), (2, Canonical(2.0)),
    *(pytest.param(*case, marks=pytest.mark.release) for case in
      [(0, Gaussian()), (1, Canonical(2.0)), (2, Gaussian())]),
])  # fmt: skip
def test_a_kv_cache_and_other_predicted_sites_are_exact(predicted_from, ensemble):
    model = KVCacheModel(predicted_from=predicted_from)
    for span in (SPANS[1], SPANS[3], SPANS[5], SPANS[9]):
        kernel, draws = rewriting(span, model)
        check_exact(kernel, model, ensemble, draws, CHOICES, False, moved_elsewhere)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ensemble", "spans"),
    [(Canonical(2.0), SPANS[1::4]), (Canonical(-1.0), SPANS[::4]), (Tabulated(), SPANS[2::4])],
)
def test_moves_on_a_kv_cache_are_those_of_whole_evaluations(ensemble, spans):
    for span in spans:
        kernel, draws = rewriting(span)
        whole = Explorer(kernel, MODEL, ensemble, draws, CHOICES).matrix()
        model = KVCacheModel()
        kernel, draws = rewriting(span, model)
        cached = Explorer(kernel, model, ensemble, draws, CHOICES, moved_elsewhere).matrix()
        np.testing.assert_allclose(cached, whole, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("ensemble", [Canonical(1.5), Gaussian()])
def test_many_moves_on_a_kv_cache_are_those_of_whole_evaluations(ensemble):
    """What is kept through acceptances and rejections is never stale."""
    ends = [walk(options(), model, ensemble) for model in (MODEL, KVCacheModel())]
    assert torch.equal(ends[0].x, ends[1].x)
    torch.testing.assert_close(ends[0].z, ends[1].z)


@pytest.mark.slow
def test_a_kv_cache_that_keeps_every_proposal_fails(monkeypatch):
    def accept(self, accepted):
        self.kept, self.version = self.new, self.version + 1

    monkeypatch.setattr(ToyKVCache, "accept", accept)
    ends = [walk(options(), model, Canonical(1.5)) for model in (MODEL, KVCacheModel())]
    assert not torch.equal(ends[0].x, ends[1].x)


def walk(options, model, ensemble, n_moves=60):
    """Return the state of 64 walkers after some moves."""
    kernel = kernels.build(options, model, 64)
    stream = DeviceStream(
        rng.generator(5, "moves"), torch.device("cpu"), 1 << 12, rng.generator(5, "choices")
    )
    x = MODEL.all_inputs()[torch.arange(64) % 27]
    state = kernel.start(x, MODEL.output(x))
    for _ in range(n_moves):
        state, _ = kernel.step(state, ensemble, stream)
    return state


def test_a_full_redraw_from_normalized_conditionals_is_always_accepted_at_b_1():
    class Normalized(AutoregressiveModel):
        def rows(self, one_hot):
            return super().rows(one_hot).log_softmax(dim=2)

    model = Normalized(predicted_from=0)
    kernel, draws = rewriting(Span(SUFFIX, 0, 3), model)
    p = Explorer(kernel, model, Canonical(3.0), draws, CHOICES).matrix()  # b = beta / 3 = 1
    np.testing.assert_allclose(p, np.tile(distribution(model, Canonical(3.0)), (27, 1)), atol=1e-12)


@pytest.mark.parametrize("n_walkers", [1, 64])
@pytest.mark.parametrize("ensemble", [Canonical(1.0), Gaussian()])
def test_a_walker_does_not_depend_on_the_others(ensemble, n_walkers):
    for model in (MODEL, KVCacheModel()):
        for span in (SPANS[1], SPANS[4], SPANS[6], SPANS[8]):
            kernel, draws = rewriting(span, model)
            check_alone(kernel, model, ensemble, len(draws), CHOICES, n_walkers=n_walkers)


@pytest.mark.slow
@pytest.mark.parametrize("ensemble", [Canonical(1.5), Gaussian()])
def test_the_default_moves_keep_walkers_in_the_ensemble(ensemble):
    """Counted: 20,000 walkers begin in the ensemble and are still in it after 60 moves."""
    n, kernel, pi = 20_000, kernels.build(options(), MODEL, 64), distribution(MODEL, ensemble)
    stream = DeviceStream(
        rng.generator(5, "moves"), torch.device("cpu"), 1 << 20, rng.generator(5, "choices")
    )
    origin = torch.from_numpy(np.random.default_rng(1).choice(27, size=n, p=pi))
    x = MODEL.all_inputs()[origin]
    state = kernel.start(x, MODEL.output(x))
    moved = np.zeros(4)
    for _ in range(60):
        state, info = kernel.step(state, ensemble, stream)
        moved[info.part] += info.accepted.sum()
    assert (moved > 1000).all(), "all four parts moved"
    torch.testing.assert_close(state.z, MODEL.output(state.x))
    index = (state.x * torch.tensor([9, 3, 1])).sum(dim=1)
    counts = torch.bincount(index, minlength=27).numpy()
    chi_square = ((counts - n * pi) ** 2 / (n * pi)).sum()
    assert chi_square < 26 + 4 * np.sqrt(2 * 26)
    assert (index != origin).float().mean() > 0.5


def test_the_default_schedule():
    schedule, n = SpanSchedule(options(), 25), 20_000
    drawn = [schedule.draw(u) for u in np.random.default_rng(3).random((n, 3))]
    parts = np.bincount([d.part for d in drawn], minlength=4) / n
    np.testing.assert_allclose(parts, [0.2, 0.3, 0.4, 0.1], atol=4 * 0.5 / np.sqrt(n))
    suffixes = np.array([d.end - d.begin for d in drawn if d.part == SUFFIX])
    assert all(d.end == 25 for d in drawn if d.part == SUFFIX)
    assert np.mean(suffixes == 25) > 0.1
    share = np.bincount(suffixes, minlength=26)[1:] / len(suffixes)
    expected = 0.9 / np.arange(1, 26) / np.sum(1 / np.arange(1, 26))
    expected[-1] += 0.1
    np.testing.assert_allclose(share, expected, atol=4 * 0.5 / np.sqrt(len(suffixes)))
    blocks = [d for d in drawn if d.part == BLOCK]
    assert {d.end - d.begin for d in blocks} == set(range(2, 9))
    assert {d.begin for d in blocks if d.end - d.begin == 8} == set(range(18))
    for part in (SITE, FLIP):
        assert {(d.begin, d.end) for d in drawn if d.part == part} == {
            (i, i + 1) for i in range(25)
        }


def test_given_lengths_are_kept():
    schedule = SpanSchedule(
        options(weights={"block": 1.0, "suffix": 1.0}, block_lengths=[3, 3], suffix_lengths=[1, 2]),
        5,
    )
    drawn = [schedule.draw(u) for u in np.random.default_rng(3).random((300, 3))]
    assert {(d.begin, d.end) for d in drawn if d.part == BLOCK} == {(0, 3), (1, 4), (2, 5)}
    assert {(d.begin, d.end) for d in drawn if d.part == SUFFIX} == {(3, 5), (4, 5)}


def test_a_model_without_conditionals_is_bad_input():
    with pytest.raises(UserError, match="needs an autoregressive model with conditional_logits"):
        kernels.build(options(), CoupledModel(), 8)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"block_lengths": [2, 4]}, r"kernel.block_lengths = \[2, 4\]: the model has only 3"),
        ({"suffix_lengths": [4, 4]}, r"kernel.suffix_lengths = \[4, 4\]: the model has only 3"),
        (
            {"suffix_lengths": [1, 2], "weights": {"suffix": 1.0}},
            "would never change; add another part to kernel.weights",
        ),
    ],
)
def test_lengths_that_do_not_fit_the_model_are_bad_input(keys, message):
    with pytest.raises(UserError, match=message):
        kernels.build(options(**keys), MODEL, 8)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("weights = { site = -1.0 }", "kernel.weights.site: expected a number of at least 0"),
        ("weights = { site = 0.0 }", "kernel.weights: expected a weight above 0"),
        ("weights = { sight = 1.0 }", 'kernel.weights.sight: unknown key (did you mean "site"?)'),
        ("block_lengths = [3, 2]", "kernel.block_lengths: expected [shortest, longest]"),
        ("suffix_lengths = [0, 2]", "kernel.suffix_lengths[0]: expected a number of at least 1"),
        ("suffix_lengths = [1]", "kernel.suffix_lengths"),
    ],
)
def test_bad_input(keys, message, lattice_toml):
    text = lattice_toml.format(output="a.h5") + f'[kernel]\nname = "lm-conditional"\n{keys}\n'
    with pytest.raises(UserError) as caught:
        input_file.parse(text, "a.toml")
    assert message in str(caught.value)


def mean_over_sites(ensemble, z, z_new, log_proposal_ratio, u):
    return u.log() < ensemble.log_weight(z_new) - ensemble.log_weight(z) + log_proposal_ratio / 2


@pytest.mark.slow
@pytest.mark.parametrize("decide", [without_proposal_term, mean_over_sites])
@pytest.mark.parametrize("span", [SPANS[1], SPANS[4], SPANS[5]])
def test_wrong_acceptances_fail(decide, span, monkeypatch):
    monkeypatch.setattr(lm_conditional, "decide", decide)
    kernel, draws = rewriting(span)
    with pytest.raises(AssertionError, match=r"invariant|balance"):
        check_exact(kernel, MODEL, Canonical(2.0), draws, CHOICES, irreducible=False)


class Identity(LmConditional):
    def step(self, state, ensemble, stream):
        return state, Info(torch.zeros(len(state.z), dtype=torch.bool))


class WithoutNormalizers(LmConditional):
    """Z_t is dropped."""

    def _log_q(self, known, b, span):
        return super()._log_q(RowCache(known.beta, known.log_p, known.log_z * 0), b, span)


class WalkersMixed(LmConditional):
    """The neighbour's normalizers are used."""

    def _evaluate(self, x, b, beta, ahead):
        known = super()._evaluate(x, b, beta, ahead)
        return RowCache(beta, known.log_p, known.log_z.roll(1, 0))


class Stale(LmConditional):
    """What was known before a swap is kept."""

    def start(self, x, z):
        kept = getattr(self, "kept", None)
        return State(x, z, kept if kept is not None and len(kept.log_p) == len(x) else None)

    def step(self, state, ensemble, stream):
        new, info = super().step(state, ensemble, stream)
        self.kept = RowCache(2.0, new.cache.log_p, new.cache.log_z)
        return new, info


class StaleBeta(LmConditional):
    """The normalizers of another beta are used."""

    def _evaluate(self, x, b, beta, ahead):
        return super()._evaluate(x, b * 0.5, beta, ahead)


class OldExponent(LmConditional):
    """The way back is paid with the slope at the old z."""

    def step(self, state, ensemble, stream):
        return super().step(state, OneSlope(ensemble, state.z), stream)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "ensemble"),
    [
        (Identity, Canonical(2.0)),
        (WithoutNormalizers, Canonical(2.0)),
        (WithoutNormalizers, Gaussian()),
        (WalkersMixed, Canonical(2.0)),
        (Stale, Canonical(2.0)),
        (StaleBeta, Canonical(2.0)),
        (OldExponent, Gaussian()),
        (OldExponent, Tabulated()),
    ],
)
def test_wrong_variants_fail(wrong, ensemble):
    kernel, draws = rewriting(Span(SUFFIX, 1, 3), make=wrong)
    with pytest.raises(AssertionError, match=r"invariant|balance|accepted|rows"):
        check_exact(kernel, MODEL, ensemble, draws, CHOICES, False, moved_elsewhere)


class PositionByState(LmConditional):
    """Which site is redrawn depends on a value that the move may change, and is not paid for."""

    def step(self, state, ensemble, stream):
        moves = []
        for t in (1, 2):
            kernel, _ = rewriting(Span(SITE, t, t + 1))
            moves.append(kernel.step(state, ensemble, ScriptedStream(stream.columns, CHOICES)))
        first = state.x[:, 1] < 1
        x = torch.where(first[:, None], moves[0][0].x, moves[1][0].x)
        accepted = torch.where(first, moves[0][1].accepted, moves[1][1].accepted)
        return State(x, MODEL.output(x)), Info(accepted)


@pytest.mark.slow
def test_a_state_dependent_position_that_is_not_paid_for_fails():
    draw = Draw(3, lambda x, x_new: torch.where(x[:, 1] < 1, x_new[:, 1], x_new[:, 2]))
    kernel = PositionByState(options(), MODEL, 64)
    with pytest.raises(AssertionError, match=r"invariant|balance"):
        check_exact(kernel, MODEL, Canonical(2.0), [draw], irreducible=False)


def test_a_search_begins_after_the_prefix_of_the_model(tmp_path, monkeypatch):
    """Its KV cache may hold more texts than there are walkers: then it has never had inputs."""
    keys = {"kind": "causal-lm", "length": 6, "prefix": [3, 7, 2]}
    model = causal_lm.build(CausalLm(path=str(save_decoder("gpt2", tmp_path)), **keys), "cpu")
    kernel, n = LmConditional(options(look_ahead=True), model, 4), 12
    begun = []

    class Noting:
        def __init__(self, begin, like, *_):
            begun.append(begin(like).row())

        def found(self, *_):
            return None

    monkeypatch.setattr(lm_conditional, "Search", Noting)
    monkeypatch.setattr(lm_conditional, "batch_size", lambda *_: n)
    target = Target(Canonical(12.0), np.zeros_like(kernel.tuned), SearchBudget(1))
    kernel.search(target, torch.zeros((4, 6), dtype=torch.int64), None)
    row = model.conditional_logits(torch.zeros((n, 6), dtype=torch.int64))[1][:, 0]
    torch.testing.assert_close(begun[0], row, atol=2e-5, rtol=5e-6)
