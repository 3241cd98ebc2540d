"""Canonical sequences: tables of pairs against the tokenizer itself on whole sequences."""

import itertools

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from trained_tokenizers import CORPUS, random_corpus, trained, vocabulary

from omniinput_hpc.models import constraint
from omniinput_hpc.models.constraint import Automaton
from omniinput_hpc.models.language import canonical


def every_input(n_values, n_sites):
    return np.array(list(itertools.product(range(n_values), repeat=n_sites)))


def space(words, n_sites):
    """Return the canonical space of a vocabulary with ids 0 to V - 1."""
    n = len(words.ids)
    everything = np.array([[0], [1]], dtype=np.int32).repeat(n, axis=1), np.array([True, False])
    table = constraint._canonical(words, np.arange(n), everything)
    return Automaton(*table, None, n_sites)


def test_a_sequence_is_canonical_if_the_tokenizer_makes_it_of_its_text():
    tokenizer = trained(40, special=["<e>"])
    words = vocabulary(tokenizer)
    end, t, h, th = (tokenizer.token_to_id(name) for name in ("<e>", "t", "h", "th"))
    rows = np.array([[th, t], [t, h], [th, end], [h, t]])
    assert canonical.is_canonical(words, rows).tolist() == [True, False, True, True]
    assert canonical.is_canonical(words, np.array([[end, end]])).all()


@pytest.mark.parametrize("seed", range(6))
def test_without_a_regular_expression_pairs_decide(seed):
    tokenizer = trained(14, corpus=random_corpus(seed))
    words, n = vocabulary(tokenizer), tokenizer.get_vocab_size()
    x = every_input(n, 4)
    truth, found = canonical.is_canonical(words, x), space(words, 4)
    assert canonical.pairs_decide(words) and not truth.all()
    np.testing.assert_array_equal(found.contains(x), truth)
    assert found.n_inputs == truth.sum()


@pytest.mark.parametrize("dropped", ["pairs", "characters"])
def test_without_a_part_of_the_condition_counts_are_wrong(dropped, monkeypatch):
    if dropped == "pairs":
        possible = canonical.possible_pairs

        def all_pairs(*of):
            found = possible(*of)
            found[:-1] = True
            return found

        monkeypatch.setattr(canonical, "possible_pairs", all_pairs)
    else:
        every = np.repeat([[0], [1]], 256, axis=1), np.array([True, False])
        monkeypatch.setattr(canonical, "whole_characters", lambda: every)
    tokenizer = trained(14, corpus=random_corpus(1))
    words, n = vocabulary(tokenizer), tokenizer.get_vocab_size()
    truth = canonical.is_canonical(words, every_input(n, 4)).sum()
    assert space(words, 4).n_inputs > truth


def test_300_tokens_and_6_sites():
    corpus = [*CORPUS, "\N{SLIGHTLY SMILING FACE} caf\u00e9 and na\u00efve \u4e2d\u6587 the the"]
    words = vocabulary(trained(300, corpus=corpus))
    x = every_input(300, 2)
    # All pairs; a sum over 300^6 by another route: uniform draws of whole sequences
    assert space(words, 2).n_inputs == canonical.is_canonical(words, x).sum()
    found, n = space(words, 6), 20_000
    x = np.random.default_rng(3).integers(300, size=(n, 6))
    truth = canonical.is_canonical(words, x)
    np.testing.assert_array_equal(found.contains(x), truth)
    share = found.n_inputs / 300**6
    assert abs(truth.mean() - share) < 4 * np.sqrt(share * (1 - share) / n)
    assert 0.005 < share < 0.2  # many of the 300 are parts of characters
    drawn = found.draw(np.random.default_rng(4), 3000)
    assert canonical.is_canonical(words, drawn).all()


@pytest.mark.parametrize("special", [[], ["<e>"]])
def test_with_a_regular_expression_no_canonical_sequence_is_left_out(special):
    tokenizer = trained(45, regex=True, special=special)
    words, n = vocabulary(tokenizer), tokenizer.get_vocab_size()
    assert not canonical.pairs_decide(words)
    for n_sites in (1, 2, 3):
        x = every_input(n, n_sites)
        truth, found = canonical.is_canonical(words, x), space(words, n_sites)
        inside = found.contains(x)
        assert inside[truth].all() and found.n_inputs == inside.sum()
        assert truth.sum() > 0.9 * inside.sum()  # " 's" and blanks depend on more


def test_pairs_alone_would_leave_some_out(monkeypatch):
    """Two line ends are one token at the end of a text, but not before a letter."""
    monkeypatch.setattr(canonical, "RIGHT", ("",))
    monkeypatch.setattr(canonical, "LEFT", ("",))
    tokenizer = trained(45, regex=True)
    words, n = vocabulary(tokenizer), tokenizer.get_vocab_size()
    x = every_input(n, 3)
    assert not space(words, 3).contains(x[canonical.is_canonical(words, x)]).all()


def test_the_share_of_a_space_is_in_its_interval():
    tokenizer = trained(45, regex=True)
    words, n = vocabulary(tokenizer), tokenizer.get_vocab_size()
    found, x = space(words, 3), every_input(n, 3)
    found = Automaton(
        found.next_qv,
        found.accepting_q,
        None,
        3,
        is_canonical=lambda x: canonical.is_canonical(words, x),
    )
    share, low, high = found.canonical_share
    exact = canonical.is_canonical(words, x).sum() / found.n_inputs
    assert low < exact < high < 1 and low < share < high and high - low < 0.02
    stored = found.attributes()
    assert [stored[key] for key in constraint.SHARE] == [share, low, high]


def test_a_space_of_canonical_inputs_has_the_share_1(monkeypatch):
    found = space(vocabulary(trained(14, corpus=random_corpus(1))), 4)
    sure = Automaton(
        found.next_qv, found.accepting_q, None, 4, None, lambda x: np.ones(len(x), bool)
    )
    share, low, high = sure.canonical_share
    assert (share, high) == (1.0, 1.0) and 0.999 < low < 1
    assert constraint.SHARE[0] not in found.attributes()


def test_a_text_without_tokens_is_not_canonical():
    """A tokenizer without an unknown token raises for a text that it cannot encode."""
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = vocabulary(tokenizer)
    rows = np.array([[0, 1], [0, 5]])
    assert canonical.is_canonical(words, rows).tolist() == [True, False]


def test_groups_of_three_digits_leave_no_canonical_sequence_out():
    """As in Llama 3: 1500 is 15|0 and 0, but 1100 is 1|10 and 0, and 00 alone is one token."""
    names = ["0", "1", "5", "a", "10", "15", "00"]
    merges = [("1", "0"), ("1", "5"), ("0", "0")]
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, merges))
    groups = pre_tokenizers.Split(Regex(r"\p{N}{1,3}|\p{L}+"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [groups, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    words = vocabulary(tokenizer)
    x = every_input(len(names), 5)
    truth = canonical.is_canonical(words, x)
    assert truth[(x[:, :4] == [5, 0, 0, 3]).all(axis=1)].any()
    assert space(words, 5).contains(x[truth]).all()
