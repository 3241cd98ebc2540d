"""All kernels under a law of inputs: exact for an output that is not its loss; wrong ones fail."""

import itertools

import numpy as np
import pytest
import torch
from exactness import (
    Draw,
    Gaussian,
    Tabulated,
    check_alone,
    check_exact,
    check_matrix,
    distribution,
    shift_of_value,
    site_changed,
    value_at,
    value_given,
)
from law_kernels import (
    CHOICES,
    COUPLED,
    COUPLED_3,
    SPANS,
    check_sites_on_kv_cache,
    check_spans,
    from_law,
    moved_away,
    moved_elsewhere,
)
from law_models import (
    FewerTokens,
    FewerTokensOnKvCache,
    NormalizedRows,
    NormalizedRowsOnKvCache,
    Under,
    Watched,
    events,
    one_gradient,
    seldom,
)

from omniinput_hpc import kernels
from omniinput_hpc.config import kernels as tables
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.discrete_langevin import DiscreteLangevin
from omniinput_hpc.kernels.from_law import FromLaw
from omniinput_hpc.kernels.gibbs_with_gradients import GibbsWithGradients
from omniinput_hpc.kernels.independent import LawSampler
from omniinput_hpc.kernels.metropolis import Metropolis
from omniinput_hpc.kernels.parts.constrained import UniformInside
from omniinput_hpc.kernels.parts.law import Law, ModelPrompt, PromptRows, UniformPrompt
from omniinput_hpc.kernels.parts.spans import Span
from omniinput_hpc.models.checked import CheckedModel, NonFiniteOutput
from omniinput_hpc.models.constraint import of_texts
from omniinput_hpc.models.outputs.ended import Ended
from omniinput_hpc.tempering.ensembles import Canonical

PROMPTS = PromptRows(torch.tensor([[0, 1], [2, 0], [0, 1], [1, 1]]))
LAWS = {
    "plain": lambda rows: Law(rows),
    "tempered": lambda rows: Law(rows, 1.7),
    "uniform prompt": lambda rows: Law(rows, 1.0, UniformPrompt(3, 2)),
    "drawn prompt": lambda rows: Law(rows, 0.8, ModelPrompt(_short())),
}


def _short():
    model = NormalizedRows()
    model.n_sites, model.site, model.past, model.coupling = (
        2, model.site[:2], model.past[:2], model.coupling[:2],
    )  # fmt: skip
    return model


def paired(*values):
    """Return all combinations; half of them, which pair any two values, and half as `release`."""
    for at in itertools.product(*(range(len(some)) for some in values)):
        marks = [pytest.mark.release] if sum(at) % 2 else []
        yield pytest.param(*(some[i] for some, i in zip(values, at, strict=True)), marks=marks)


ROWS = [NormalizedRows, NormalizedRowsOnKvCache]


@pytest.mark.parametrize(
    ("rows", "law", "ensemble"), list(paired(ROWS, list(LAWS), [Canonical(1.5), Gaussian()]))
)
def test_from_law_is_exact(rows, law, ensemble):
    check_spans(Under(COUPLED_3, LAWS[law](rows())), ensemble)


@pytest.mark.parametrize("rows", [FewerTokens, FewerTokensOnKvCache])
def test_from_law_where_tokens_are_left_out(rows):
    """Rows are divided by their sums; as they are they would be another law than that of draws."""
    law = Law(rows())
    check_spans(Under(COUPLED_3, law), Canonical(1.5))
    u = torch.rand(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x, terms = law.draw_with_log_q(u)
    torch.testing.assert_close(terms, law.log_q_sites(x, None))
    every = COUPLED_3.all_inputs()
    assert float(law.log_q(every, None).exp().sum()) == pytest.approx(1.0)
    law.normalizes = False
    with pytest.raises(AssertionError):
        check_spans(Under(COUPLED_3, law), Canonical(1.5))


def test_from_law_where_z_is_the_laws_own_loss():
    rows = NormalizedRowsOnKvCache()
    model = Under(rows, Law(rows, gives_z=True))
    for span in SPANS[1:6]:
        kernel, draws = from_law(span, model)
        check_exact(kernel, model, Canonical(0.8), draws, CHOICES, False, moved_elsewhere)


def test_prompts_from_a_file_are_redrawn_as_a_whole():
    """A prompt that stands twice in the file is twice as likely."""
    model = Under(COUPLED_3, Law(NormalizedRows(), 1.0, PROMPTS))
    pi = distribution(model, Canonical(0.0)).reshape(3, 3, 3).sum(axis=2)
    np.testing.assert_allclose(pi[[0, 2, 1], [1, 0, 1]], [0.5, 0.25, 0.25])
    for span in (SPANS[0], SPANS[2], SPANS[4], SPANS[6]):
        assert model.law.widened(span).begin in (0, 2)
    x = model.all_inputs()
    u = torch.rand(20_000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    drawn = model.law.draw(u)
    counts = (drawn[:, None] == x).all(dim=2).sum(dim=0).numpy()
    expected = 20_000 * distribution(model, Canonical(0.0))
    assert (counts[expected == 0] == 0).all()
    some = expected > 0
    assert (((counts - expected)[some] ** 2 / expected[some]).sum()) < 35  # 8 degrees: 6 sigmas


class NothingFollows(FromLaw):
    """A wrong variant: what follows a redrawn span does not count."""

    def step(self, state, ensemble, stream):
        law, self._law = self._law, ForgetsTheRest(self._law)
        try:
            return super().step(state, ensemble, stream)
        finally:
            self._law = law


class ForgetsTheRest:
    def __init__(self, law):
        self._law = law

    def __getattr__(self, name):
        return getattr(self._law, name)

    def redraw(self, x, log_q, span, u, kv_cache):
        x_new, log_q_new = self._law.redraw(x, log_q, span, u, kv_cache)
        log_q_new[:, span.end :] = log_q[:, span.end :]
        return x_new, log_q_new


def test_what_follows_a_span_counts():
    model = Under(COUPLED_3, Law(NormalizedRows()))
    kernel, draws = from_law(SPANS[1], model, NothingFollows)
    with pytest.raises(AssertionError):
        check_exact(kernel, model, Canonical(1.5), draws, CHOICES, False)


def test_a_kernel_must_connect_the_prompts_of_a_file():
    law = Law(NormalizedRows(), 1.0, PROMPTS)
    with pytest.raises(UserError, match=r'leave \[kernel\] out, or add "from-law"'):
        kernels.build(tables.Metropolis(), Under(COUPLED_3, law), 4)
    parts = [{"name": "metropolis"}, {"name": "from-law"}]
    mixture = tables.Mixture.model_validate({"name": "mixture", "parts": parts})
    kernels.build(mixture, Under(COUPLED_3, law), 4)
    for rows in ([[0, 1], [0, 1]], [[0], [2]]):
        of_one = Law(NormalizedRows(), 1.0, PromptRows(torch.tensor(rows)))
        kernels.build(tables.Metropolis(), Under(COUPLED_3, of_one), 4)


def test_a_walker_does_not_depend_on_the_others():
    model = Under(COUPLED_3, Law(NormalizedRows()))
    kernel, draws = from_law(SPANS[3], model)
    check_alone(kernel, model, Canonical(1.0), len(draws), CHOICES)


METROPOLIS = [Draw(3, site_changed), Draw(3, shift_of_value(4))]
GRADIENT = [Draw(3, site_changed), Draw(4, value_given)]
LANGEVIN = [Draw(4, value_at(site), of_x_alone=True) for site in range(3)]
OTHERS = {
    "metropolis": (Metropolis, tables.Metropolis(), METROPOLIS),
    "gibbs-with-gradients": (
        GibbsWithGradients, tables.GibbsWithGradients(name="gibbs-with-gradients"), GRADIENT,
    ),
    "discrete-langevin": (
        DiscreteLangevin, tables.DiscreteLangevin(name="discrete-langevin", step_size=0.4),
        LANGEVIN,
    ),
}  # fmt: skip


class WithoutGradient(NormalizedRows):
    output_and_gradient = None


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(("ensemble", "temperature", "rows"), list(
    paired([Canonical(1.5), Tabulated()], [1.0, 2.0], [NormalizedRows, WithoutGradient])
))  # fmt: skip
def test_other_kernels_are_exact(name, ensemble, temperature, rows):
    make, options, draws = OTHERS[name]
    model = Under(COUPLED, Law(rows(n_values=4), temperature))
    check_exact(make(options, model, 64), model, ensemble, draws, start=moved_away)


@pytest.mark.parametrize("name", OTHERS)
def test_other_kernels_where_tokens_are_left_out(name):
    make, options, draws = OTHERS[name]
    model = Under(COUPLED, Law(FewerTokens(n_values=4)))
    check_exact(make(options, model, 64), model, Canonical(1.5), draws, start=moved_away)


@pytest.mark.parametrize("wrong", ["nan", "half"])
@pytest.mark.parametrize("name", ["law", "from-law", "metropolis"])
def test_rows_that_are_seldom_wrong_end_the_run(name, wrong):
    """Few inputs are tried before a run, and rows of NaN would give values of their own."""
    rows = seldom(wrong=wrong)
    model = CheckedModel(events(n_values=5, n_sites=6), "the model", law=Law(rows))
    kernel = {
        "law": lambda: LawSampler(model, 500, model.law),
        "from-law": lambda: FromLaw(tables.FromLaw(name="from-law"), model, 500),
        "metropolis": lambda: Metropolis(tables.Metropolis(), model, 500),
    }[name]()
    own, shared = (np.random.default_rng(seed) for seed in (3, 4))
    stream = kernels.DeviceStream(own, torch.device("cpu"), 1 << 13, shared)
    x = torch.full((500, 6), 4)
    state = kernel.start(x, model.output(x))
    for _ in range(20):
        state, _ = kernel.step(state, Canonical(0.0 if name == "law" else 1.0), stream)
    if name == "metropolis" and wrong == "half":  # to it this is a law like any other
        model.raise_if_nonfinite()
        return
    with pytest.raises(NonFiniteOutput, match=r"ln q of \[law\] \(rows must sum to 1\)"):
        model.raise_if_nonfinite()


@pytest.mark.parametrize("kept", [True, False])
def test_the_gradient_that_a_law_returns_is_not_written_to(kept):
    rows = one_gradient(kept=kept)
    x = torch.zeros((4, 3), dtype=torch.int64)
    first, second = (Law(rows, 2.0).gradient(x) for _ in range(2))
    torch.testing.assert_close(first, rows.output_and_gradient(x)[1] * 3 / 2.0)
    torch.testing.assert_close(first, second)


def test_proposals_follow_the_rows_of_a_law_without_a_gradient():
    rows = WithoutGradient(n_values=4)
    x = rows.all_inputs()
    log_p = rows.conditional_logits(x)[1]
    expected = log_p / -2.0
    expected[:, : rows.predicted_from] = 0.0
    torch.testing.assert_close(Law(rows, 2.0).gradient(x), expected.float())
    rows.conditional_logits = lambda x: (None, torch.full_like(log_p, -torch.inf))
    assert Law(rows).gradient(x).isfinite().all()


@pytest.mark.parametrize("name", OTHERS)
def test_other_kernels_where_z_is_the_laws_own_loss(name):
    make, options, draws = OTHERS[name]
    rows = NormalizedRows(n_values=4)
    model = Under(rows, Law(rows, gives_z=True))
    check_exact(make(options, model, 64), model, Canonical(0.7), draws, start=moved_away)


@pytest.mark.parametrize("name", OTHERS)
def test_a_kernel_that_forgets_the_law_fails(name, monkeypatch):
    make, options, draws = OTHERS[name]
    model = Under(COUPLED, Law(NormalizedRows(n_values=4)))
    kernel = make(options, model, 64)
    monkeypatch.setattr(Law, "log_q", lambda self, x, z: torch.zeros(len(x), dtype=torch.float64))
    with pytest.raises(AssertionError):
        check_exact(kernel, model, Canonical(1.5), draws)


@pytest.mark.parametrize("shared", [True, False], ids=["own loss", "tempered"])
def test_metropolis_on_a_kv_cache_is_exact(shared):
    rows = NormalizedRowsOnKvCache()
    law = Law(rows, gives_z=True) if shared else Law(rows, 1.7)
    check_sites_on_kv_cache(Under(rows, law), Canonical(1.2))


def test_from_law_needs_a_law():
    with pytest.raises(UserError, match="add a table"):
        FromLaw(tables.FromLaw(name="from-law"), COUPLED, 4)


class OfTexts(Watched):
    """Texts that end with value 1."""

    def all_inputs(self):
        return COUPLED_3.all_inputs()

    @property
    def kv_cache(self):
        make = getattr(self._model, "kv_cache", None)
        return None if make is None else lambda n: SeenCache(self, make(n))


class SeenCache:
    def __init__(self, model, cache):
        self._model, self._cache = model, cache

    def __getattr__(self, name):
        return getattr(self._cache, name)

    def propose(self, x, t):
        self._model.proposed = x
        return self._cache.propose(x, t)


def texts(law, rows=NormalizedRows):
    """Return a model of the texts of at most 3 tokens: with its own loss, or another output."""
    ended = Ended(rows(), 1, False)
    laws = {"uniform": lambda: UniformInside(of_texts(3, 3, 1, 1), "cpu")}
    made = laws[law]() if law in laws else Law(ended, 1.7 if law == "tempered" else 1.0)
    return OfTexts(COUPLED_3 if law == "other output" else ended, made)


TEXTS = ["own", "tempered", "other output", "uniform"]


@pytest.mark.parametrize("rows", [NormalizedRows, NormalizedRowsOnKvCache])
@pytest.mark.parametrize("law", TEXTS)
def test_from_law_on_texts_that_end(law, rows):
    model, ensemble = texts(law, rows), Canonical(1.5)
    together, pi = np.zeros((27, 27)), distribution(model, ensemble)
    for span in SPANS:
        kernel, draws = from_law(span, model)
        together += check_exact(kernel, model, ensemble, draws, CHOICES, False)
    check_matrix(together / len(SPANS), pi, False)
    assert (pi > 0).sum() == 14 and connects(together, pi)


def connects(p, pi):
    some = np.flatnonzero(pi > 0)
    assert (p[some][:, pi == 0] == 0).all(), "it leaves the space"
    steps = (p[np.ix_(some, some)] > 0).astype(float) + np.eye(len(some))
    return (np.linalg.matrix_power(steps, len(some)) > 0).all()


OF_TEXTS = {
    name: (make, options, [Draw(3, draw.outcome) for draw in draws])
    for name, (make, options, draws) in OTHERS.items()
}
OF_TEXTS["metropolis"] = (
    Metropolis, tables.Metropolis(), [Draw(3, site_changed), Draw(2, shift_of_value(3))],
)  # fmt: skip


@pytest.mark.parametrize("law", TEXTS)
@pytest.mark.parametrize("name", OF_TEXTS)
def test_other_kernels_on_texts_that_end(name, law):
    make, options, draws = OF_TEXTS[name]
    model, ensemble = texts(law), Canonical(0.8)
    p = check_exact(make(options, model, 64), model, ensemble, draws, (), False)
    assert connects(p, distribution(model, ensemble))


@pytest.mark.parametrize("law", ["own", "uniform"])
def test_metropolis_on_a_kv_cache_of_texts_that_end(law):
    model, draws = texts(law, NormalizedRowsOnKvCache), [Draw(2, shift_of_value(3))]
    together, ensemble = np.zeros((27, 27)), Canonical(1.2)
    for site in range(3):
        kernel = Metropolis(tables.Metropolis(), model, 64)
        together += check_exact(kernel, model, ensemble, draws, [(site + 0.5) / 3], False)
    assert connects(together, distribution(model, ensemble))


@pytest.mark.parametrize("name", [*OF_TEXTS, "from-law"])
def test_a_law_that_follows_from_the_mean_loss_of_texts_fails(name):
    """ln q is not -m z: padding is certain, but z is a mean over the own tokens."""
    model = texts("own")
    model.law._plain = model.law.gives_z = True
    if name == "from-law":
        kernel, draws = from_law(SPANS[4], model)
        choices = CHOICES
    else:
        make, options, draws = OF_TEXTS[name]
        kernel, choices = make(options, model, 64), ()
    with pytest.raises(AssertionError):
        check_exact(kernel, model, Canonical(0.8), draws, choices, False)


def test_first_sites_that_are_not_predicted_are_redrawn_together():
    rows = NormalizedRows()
    rows.predicted_from = 2
    law = Law(rows)
    assert law.widened(Span("site", 0, 1)) == Span("site", 0, 2)
    assert law.widened(Span("site", 1, 2)) == Span("site", 0, 2)
    assert law.widened(Span("site", 2, 3)) == Span("site", 2, 3)


@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_uniform_sites_after_a_short_prompt_count(temperature):
    rows = NormalizedRows()
    rows.predicted_from = 2
    law = Law(rows, temperature, UniformPrompt(3, 1), gives_z=True)
    x = torch.tensor(list(itertools.product(range(3), repeat=3)))
    log_q = law.log_q_sites(x, None)
    assert float(log_q.sum(dim=1).exp().sum()) == pytest.approx(1, abs=1e-9)
    torch.testing.assert_close(law.log_q(x, rows.output(x)), log_q.sum(dim=1))
    u = torch.rand(27, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x_new, log_q_new = law.redraw(x, torch.zeros_like(log_q), Span("site", 0, 3), u, None)
    torch.testing.assert_close(log_q_new, law.log_q_sites(x_new, None))
