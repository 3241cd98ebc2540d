"""Gradients at embeddings while a model is given tokens; and where they are not complete."""

from types import SimpleNamespace

import torch
from torch import nn

from omniinput_hpc.models.language.embedding_leaf import (
    EmbeddingLeaf,
    Lookups,
    gradient_problem,
    table_of,
)

X = torch.tensor([[1, 4, 2], [3, 3, 0]])


class Sums(nn.Module):
    """z is the sum over sites of what the tokens' rows are, in ways that a test chooses."""

    def __init__(self, way="once"):
        super().__init__()
        torch.manual_seed(2)
        self.rows, self.more = nn.Embedding(6, 4), nn.Embedding(6, 4)
        self.way, self.dtype = way, torch.float32

    def get_input_embeddings(self):
        return self.rows

    def forward(self, x):
        rows = self.rows(x)
        if self.way == "in place":
            rows *= 2
        elif self.way == "twice":
            rows = rows + self.rows(x)
        elif self.way == "a second table":
            rows = rows + self.more(x)
        elif self.way == "shifted":
            rows[:, 1:] += self.more(nn.functional.pad(x, (1, 0))[:, :-1])[:, 1:]
        elif self.way == "not at all":
            rows = self.more(x)
        elif self.way == "fails":
            raise AssertionError
        elif self.way == "another z":
            rows = rows + float(rows.requires_grad)
        return rows.square().sum((1, 2))


class Model:
    """What `gradient_problem` asks of a model."""

    embedding = None

    def __init__(self, way):
        self.lm = Sums(way)

    def output(self, x):
        with torch.no_grad():
            return self.lm(x)

    def output_and_gradient(self, x):
        with EmbeddingLeaf(self.lm) as embedded:
            z = self.z(x)
            e = embedded.gradient(z.sum())
        return z.detach(), e @ table_of(self.lm, torch.arange(6)).T

    def z(self, x):
        from omniinput_hpc.models.language.foreign_code import foreign_code

        with foreign_code():
            return self.lm(x)


def problem(way):
    return gradient_problem(Model(way), [X], lambda x: x)


def test_the_gradient_is_that_of_the_rows():
    z, g = Model("once").output_and_gradient(X)
    table = Sums().rows.weight.detach()
    torch.testing.assert_close(z, table[X].square().sum((1, 2)))
    torch.testing.assert_close(g, 2 * table[X] @ table.T)


def test_problems():
    assert problem("once") == problem("in place") == ""
    for way in ("twice", "not at all"):
        assert problem(way) == "its input embedding is not applied to exactly its tokens"
    for way in ("a second table", "shifted"):
        assert problem(way) == "it looks up its tokens in a second table (more)"
    assert problem("fails") == (
        "the model's own code cannot compute the gradient (AssertionError: without a message)"
    )
    assert problem("another z") == "z differs if the gradient is computed with it"


def test_the_model_is_left_as_it_was():
    lm = Sums()
    with EmbeddingLeaf(lm), Lookups(lm):
        lm(X)
    assert not lm.rows._forward_hooks and not lm.rows._forward_pre_hooks
    assert not lm.more._forward_pre_hooks


def test_batches_in_parts_are_one():
    """As of a model that takes each input by itself."""
    lm = Sums()
    with EmbeddingLeaf(lm) as embedded, Lookups(lm) as lookups:
        z = torch.cat([lm(one[None]) for one in X])
        e = embedded.gradient(z.sum())
    assert e.shape == (2, 3, 4) and lookups.problem(X) == ""
    assert lookups.problem(X.flip(0)) != ""


def test_a_table_is_what_the_layer_gives():
    layer = SimpleNamespace(forward=lambda ids: 3.0 * Sums().rows(ids))
    scaled = SimpleNamespace(get_input_embeddings=lambda: layer)
    torch.testing.assert_close(table_of(scaled, torch.arange(6)), 3.0 * Sums().rows.weight)
