"""The census equals enumeration for every Z; variants that leave prefixes too early do not."""

import numpy as np
import pytest
import torch
from census_cases import MARGIN, WALKERS, enumerated, expected, finish, found, search, thresholds
from enumerable_decoders import save_decoder

from omniinput_hpc.config.models import CausalLm
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import causal_lm
from omniinput_hpc.models.prefix_tree import PrefixTree, Walked
from omniinput_zoo.census.frontier import Frontier
from omniinput_zoo.census.search import Search, Space
from omniinput_zoo.exact import MarkovChain, PassageChain


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """Return a way to build a decoder of random weights over 8 values."""
    folder = tmp_path_factory.mktemp("decoders")

    def build(architecture="gpt2", **options):
        path = folder / architecture
        if not path.exists():
            save_decoder(architecture, path)
        table = {"kind": "causal-lm", "path": str(path), **options}
        return causal_lm.build(CausalLm.model_validate(table), "cpu")

    return build


CHAINS = {
    "markov": lambda: MarkovChain(5, 4),
    "forbidden": lambda: MarkovChain(5, 3, forbidden=2),
    "passage": lambda: PassageChain(5, 4, 0.05, 0.97),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_equals_enumeration_for_every_z(name):
    model = CHAINS[name]()
    x, z = enumerated(model)
    for below in thresholds(z, 8):
        assert finish(search(model, below)) == expected(x, z, below), below


@pytest.mark.slow
def test_a_decoder_equals_enumeration(decoder):
    model = decoder(length=4)
    x, z = enumerated(model)
    for below in thresholds(z, 8):
        assert finish(search(model, below)) == expected(x, z, below), below


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_a_prompt_in_front(decoder, architecture):
    model = decoder(architecture, length=3, prefix=[3, 1])
    assert model.predicted_from == 0
    x, z = enumerated(model)
    for below in thresholds(z, 6):
        assert finish(search(model, below)) == expected(x, z, below), below


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "length"), [
    ("gpt2", 5), *(pytest.param(name, 6, marks=pytest.mark.release) for name in ("gpt2", "llama")),
])  # fmt: skip
def test_a_random_decoder_of_8_to_the_5_or_6_inputs(decoder, architecture, length):
    """One best-first census gives the sets of all Z on its way, and single ones theirs."""
    model = decoder(architecture, length=length)
    x, z = enumerated(model)
    for below in (np.quantile(z, [1e-4, 1e-3, 1e-2]), np.sort(z)[[0, 9, 99, 999]]):
        for number in below.astype(float):
            assert finish(search(model, number, batch=128)) == expected(x, z, number), number
    assert_complete_on_the_way(search(model, batch=128), x, z, 80)


def assert_complete_on_the_way(census, x, z, every=1):
    """Assert that after every round exactly the inputs up to `complete_below` are found."""
    before, n_rounds = -np.inf, 0
    while census.step():
        n_rounds += 1
        complete = census.complete_below
        assert complete >= before
        before = complete
        if n_rounds % every == 0:
            assert found(census, complete) == expected(x, z, complete), complete
    complete = census.complete_below
    assert found(census, complete) == expected(x, z, complete)
    return complete


@pytest.mark.parametrize("name", CHAINS)
def test_best_first_says_up_to_where_it_is_complete(name):
    model = CHAINS[name]()
    x, z = enumerated(model)
    census = search(model, batch=2)
    assert assert_complete_on_the_way(census, x, z) == np.inf
    assert len(census.state.found.z) == np.isfinite(z).sum()


@pytest.mark.parametrize("best_first", [True, False])
def test_what_a_small_frontier_drops_is_told(best_first):
    """The frontier stays within its limit, the claim right, and the open mass a bound."""
    model = MarkovChain(5, 4)
    x, z = enumerated(model)
    below = None if best_first else float(np.quantile(z, 0.5))
    census = search(model, below, frontier=12, batch=2)
    while census.step():
        assert len(census.state.frontier.nodes) <= 12
        complete = census.complete_below
        assert found(census, complete) == expected(x, z, complete)
        unknown = np.exp(-4 * z[[tuple(row) not in found(census) for row in x.tolist()]]).sum()
        assert census.state.frontier.open_mass >= unknown * (1 - 1e-5)
    assert -np.inf < census.complete_below < (np.inf if below is None else below)


def never_right(monkeypatch, spoil):
    """Assert that a spoilt census is wrong for some Z, and the whole one is not."""
    model = MarkovChain(5, 4)
    x, z = enumerated(model)
    zs = thresholds(z, 8)
    assert all(finish(search(model, below)) == expected(x, z, below) for below in zs)
    margin = spoil(monkeypatch)
    wrong = [finish(search(model, b, margin)) != expected(x, z, b) for b in zs]
    assert any(wrong)


def test_without_the_margin_rounding_loses_inputs(monkeypatch):
    def spoil(patch):
        patch.setattr(Search, "_check_apart", lambda self, apart: None)
        return 0.0

    never_right(monkeypatch, spoil)


def test_leaving_prefixes_too_early_loses_inputs(monkeypatch):
    def spoil(patch):
        whole = PrefixTree.walk

        def early(self, x, loss, descend, most):
            return whole(self, x, loss, min(descend, most - 0.2), most - 0.2)

        patch.setattr(PrefixTree, "walk", early)
        return MARGIN

    never_right(monkeypatch, spoil)


@pytest.mark.slow
def test_a_bound_by_the_mean_so_far_loses_inputs(monkeypatch):
    """A prefix whose own mean loss is above Z may go on to an input whose mean is not."""
    model = MarkovChain(5, 4)
    x, z = enumerated(model)
    whole = PrefixTree.walk

    def by_mean(self, x, loss, descend, most):
        some = loss <= most * max(1, x.shape[1] - 1) / 4
        return whole(self, x[some], loss[some], descend, most) if some.any() else Walked()

    def one(below):
        census = search(model, below, batch=4)
        census._tree._max_batches = 1  # so that every prefix passes by the spoilt place
        return finish(census)

    zs = thresholds(z, 8)
    assert all(one(below) == expected(x, z, below) for below in zs)
    monkeypatch.setattr(PrefixTree, "walk", by_mean)
    assert any(one(below) != expected(x, z, below) for below in zs)


def test_forgetting_what_was_dropped_claims_too_much(monkeypatch):
    model = MarkovChain(5, 4)
    x, z = enumerated(model)
    monkeypatch.setattr(Frontier, "lose", lambda self, mass, least: None)
    census = search(model, frontier=12, batch=2)
    finish(census)
    assert found(census, census.complete_below) != expected(x, z, census.complete_below)


class Positive(MarkovChain):
    """Rows that are no log-probabilities: some l are above 0."""

    def __init__(self):
        super().__init__(4, 3)
        self.table = self.table + 2.0


class Double(MarkovChain):
    """Rows that sum to 3, though no l is above 0."""

    def __init__(self):
        super().__init__(4, 3)
        self.table = torch.zeros_like(self.table)


class Off(MarkovChain):
    """An output that is not what the rows give, by less than a start would notice."""

    def output(self, x):
        return super().output(x) + 1e-4 * x[:, 0]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Positive(), "requires log-probabilities"),
        (Double(), "sum to 3"),
        (Off(4, 3), "start again with --margin"),
    ],
)
def test_models_whose_rows_bound_nothing_are_refused(model, words):
    with pytest.raises(UserError, match=words):
        finish(search(model, 2.0))


def test_the_space_knows_what_is_complete():
    space = Space(5, 4, 1, 0.5, MARGIN, WALKERS, "cpu")
    assert space.m == 4
    assert space.most_loss == pytest.approx(4 * (0.5 + MARGIN))
    assert space.complete_below(space.most_loss * 1.0001) == 0.5
    assert space.complete_below(1.0) < 0.25 - MARGIN * 0.999
    anything = Space(5, 4, 1, None, MARGIN, WALKERS, "cpu")
    assert anything.complete_below(np.inf) == np.inf
