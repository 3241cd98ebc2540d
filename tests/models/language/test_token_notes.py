"""What is reported of a model's tokens: values without one, and the token that texts begin with."""

import json
import tomllib

import pytest
import torch
from language_folders import WORDS, V, save_decoder, with_beginning
from run_tools import ROOT

from omniinput_hpc.config import input_file
from omniinput_hpc.models.language import causal_lm, hf_folder, token_notes

KEYS = ["ladder.betas=[0.0, 3.0]", "ladder.tune=false", "model.length=4"]


@pytest.fixture
def folder(tmp_path):
    return save_decoder("llama", tmp_path)


def config(folder, *more):
    keys = [f"model.path={folder}", *KEYS, *more]
    return input_file.load(ROOT / "inputs/english-25.toml", keys)


def test_values_without_a_token_are_counted(folder):
    (line,) = token_notes.lines(config(folder))
    assert "3 of the model's 29 values stand for no token" in line and "[space] allowed" in line
    (line,) = token_notes.lines(config(folder, 'space.allowed="tokenizer"'))
    assert "3 of the model's 29 values" in line and "are left out" in line
    assert token_notes.lines(config(folder, 'model.tokens="no-special"')) == []
    shown = hf_folder.display(config(folder).model)
    assert "3 of the model's 29 values" in shown.note
    assert V - len(WORDS) == 3


def test_what_texts_begin_with_is_named_where_the_prefix_lacks_it(folder):
    s = with_beginning(folder, "<s>")
    for prefix, expected in ((None, '"<s>"'), ("ab", '"<s>ab"'), ([2, 3], f"[{s}, 2, 3]")):
        more = () if prefix is None else (f"model.prefix={prefix!r}",)
        line = token_notes.lines(config(folder, *more))[-1]
        assert f"begins every text with '<s>' ({s})" in line
        assert f"set model.prefix = {expected} to put" in line
    for prefix in ("'<s>'", "'<s>ab'", f"[{s}, 2]"):
        assert not any(
            "begins" in x for x in token_notes.lines(config(folder, f"model.prefix={prefix}"))
        )


def test_a_text_with_the_beginning_of_the_prefix_has_it_once(folder):
    s = with_beginning(folder, "<s>")
    values = hf_folder.encoder(config(folder, "model.prefix='<s>'").model)
    assert values("<s>abc") == values("abc") == [2, 3, 4]
    without = hf_folder.encoder(config(folder).model)
    assert without("<s>abc") == [s, 2, 3, 4]
    letter = hf_folder.encoder(config(folder, "model.prefix='<s>a'").model)
    assert letter("abc") == [2, 3, 4]  # a letter that comes twice is no mistake


def test_what_only_begins_texts_is_no_part_of_them(folder):
    """If only a setting names the token, it may be part of a chat template."""
    s = with_beginning(folder, "<s>")
    both = [s, s, 0, s, 2]
    for begun in ("ab", "<end><s>a"), ("<s>ab", "<s><s><end><s>a"):
        for prefix, shown in zip(("'<s>'", "'<s>ab'", both), (None, *begun), strict=True):
            options = config(folder, f"model.prefix={prefix}").model
            assert hf_folder.display(options).prefix == shown
            texts = causal_lm.build(options, "cpu").render(torch.tensor([[2, 3, 4, 5]]))
            assert texts == [f"{shown or ''}abcd"]
        whole = json.loads((folder / "tokenizer.json").read_text()) | {"post_processor": None}
        (folder / "tokenizer.json").write_text(json.dumps(whole))
        (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))


def test_a_text_is_read_with_or_without_it_and_that_is_said(folder):
    from omniinput_hpc.cli import test_sets

    s = with_beginning(folder, "<s>")
    (note,) = test_sets._about_texts(config(folder, "model.prefix='<s>'"))
    assert note.startswith(f"each text was read with one '<s>' ({s}) in front")
    (note,) = test_sets._about_texts(config(folder))
    assert "without" in note and 'model.prefix = "<s>"' in note


@pytest.mark.parametrize("prefix", ['<s>a"b\\', "<s>user\nhello\t", "\x7f\N{EM DASH}", [1, 2]])
def test_a_prefix_is_written_as_toml(prefix):
    assert tomllib.loads(f"prefix = {token_notes.as_toml(prefix)}")["prefix"] == prefix
