"""Fixed tokens around the sites, and the tokens that values stand for."""

import pytest
import torch
from language_folders import save_decoder, with_beginning

from omniinput_hpc.config import SequenceClassifier
from omniinput_hpc.models.language.framed import FramedTokens


@pytest.fixture
def folder(tmp_path):
    save_decoder("llama", tmp_path)
    with_beginning(tmp_path, "<s>")
    return tmp_path


def framed(folder, allowed=None, **keys):
    table = {"kind": "sequence-classifier", "path": str(folder), "length": 7, "target": 0}
    return FramedTokens(SequenceClassifier(**table, **keys), folder, 29, "cpu", allowed)


@pytest.mark.parametrize(
    ("keys", "allowed", "expected"),
    [
        ({}, None, [26, 0, 1, 2, 3, 28, 0]),
        ({"tokens": "no-special"}, None, [26, 2, 3, 4, 5, 25, 0]),
        ({"prefix": "ab", "suffix": [7]}, None, [2, 3, 0, 1, 2, 28, 7]),
        ({}, "tokenizer", [26, 0, 1, 2, 3, 26, 0]),
    ],
)
def test_tokens_of_inputs(folder, keys, allowed, expected):
    frame = framed(folder, allowed, **keys)
    n = frame.space.n_values
    x = torch.tensor([[*range(frame.n_sites - 1), n - 1]])
    assert frame.tokens(x).tolist() == [expected]
    assert frame.every_id[x].tolist() == frame.ids_of(x).tolist()
    assert frame.tokens(x)[:, frame.before :][:, : frame.n_sites].equal(frame.ids_of(x))
