"""Walking the tree of prefixes: the same losses by every way that a model offers, and by none."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from enumerable_decoders import save_decoder
from transformers import MistralConfig, MistralForCausalLM

from omniinput_hpc.config.models import CausalLm
from omniinput_hpc.models.language import causal_lm
from omniinput_hpc.models.prefix_tree import PrefixTree, render
from omniinput_hpc.models.protocol import Offers, offers_of
from omniinput_zoo.exact import MarkovChain


def build(folder, **options):
    table = {"kind": "causal-lm", "path": str(folder), **options}
    return causal_lm.build(CausalLm.model_validate(table), "cpu")


def without(model, *names):
    """Return a model that does not offer some of what another does."""
    offers = offers_of(model)
    prefixes = None
    if "prefixes" not in names:
        prefixes = offers.prefixes.__class__(offers.prefixes.begin, offers.prefixes.extend, None)
    return SimpleNamespace(
        n_values=model.n_values, n_sites=model.n_sites, output=model.output,
        offers=Offers(**{**vars(offers), "prefixes": prefixes}),
    )  # fmt: skip


def random_inputs(model, n=12):
    return np.random.default_rng(3).integers(0, model.n_values, (n, model.n_sites))


@pytest.mark.parametrize("prefix", [None, [3, 1, 4]])
def test_losses_are_the_models_own_outputs(tmp_path, prefix):
    save_decoder("gpt2", tmp_path)
    options = {} if prefix is None else {"prefix": prefix}
    model = build(tmp_path, length=6, **options)
    x = random_inputs(model)
    z = model.output(torch.from_numpy(x)).numpy()
    m = 6 - model.predicted_from
    for one in (model, without(model), without(model, "prefixes")):
        found = PrefixTree(one, "cpu", 16, 8).losses(x) / m
        np.testing.assert_allclose(found, z, atol=1e-5)


def test_a_window_that_slides_is_selected_as_it_is(tmp_path):
    """A cache that holds fewer positions than the prefix has still knows where the prefix ends."""
    torch.manual_seed(2)
    config = MistralConfig(
        vocab_size=8, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, sliding_window=3, max_position_embeddings=16,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    lm = MistralForCausalLM(config)
    for parameter in lm.parameters():
        parameter.data *= 4.0
    lm.save_pretrained(tmp_path)
    model = build(tmp_path, length=9)
    x = random_inputs(model)
    z = model.output(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(PrefixTree(model, "cpu", 16, 8).losses(x) / 8, z, atol=1e-5)


def walked(model, descend, most, **options):
    """Walk from all first values; return what is left, as a dictionary, and the walk."""
    tree = PrefixTree(model, "cpu", options.get("batch", 16), options.get("max_batches", 100))
    first = np.arange(model.n_values)[:, None]
    done = tree.walk(first, np.zeros(len(first)), descend, most)
    left = {tuple(x): v for xs, loss in done.parts for x, v in zip(xs, loss, strict=True)}
    return left, done


@pytest.mark.parametrize("max_batches", [1, 3, 100])
def test_nothing_is_lost_whatever_is_left_for_later(max_batches):
    """Left for later and left for good together have all the mass: 1 for each first value."""
    model = MarkovChain(4, 12)
    left, done = walked(model, 3.0, 6.0, max_batches=max_batches)
    mass = sum(np.exp(-loss) for loss in left.values()) + done.lost_mass
    assert mass == pytest.approx(12.0, rel=1e-5)
    assert done.least_lost > 6.0 >= max(left.values())
    for x, loss in left.items():
        steps = [-float(model.table[a, b]) for a, b in pairwise(x)]
        assert loss == pytest.approx(sum(steps))


def test_a_walk_goes_down_to_the_loss_that_it_is_told():
    model = MarkovChain(4, 12)
    left, _ = walked(model, 3.0, 6.0)
    # fewer than `MIN_BATCH` wait for others of their length
    waiting = [x for x, loss in left.items() if loss <= 3.0 and len(x) < 4]
    assert len(waiting) < 8 * 3
    assert {len(x) for x in left} == {2, 3, 4}


def test_a_persons_view_of_inputs(tmp_path):
    model = MarkovChain(3, 4)
    x = np.array([[0, 1, 2], [3, 3, 3]])
    assert list(render(model, x, "cpu")) == ["0-1-2", "3-3-3"]
    assert list(render(SimpleNamespace(), x, "cpu")) == [None, None]
