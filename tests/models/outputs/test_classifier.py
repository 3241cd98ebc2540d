"""`classifier`: transformers' own logits of each text, one at a time."""

import logging
from functools import partial

import pytest
import torch
from language_folders import POSITIONS, save_classifier, save_decoder
from output_cases import built, inputs
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.outputs import classifier

LENGTH = 6


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return a decoder and a judge of its texts."""
    decoder, judge = (tmp_path_factory.mktemp(name) for name in ("decoder", "judge"))
    save_decoder("gpt2", decoder)
    save_classifier(judge, n_classes=3)
    pieces = [f"{before}{letter}" for before in ("", "##") for letter in "abcdefghijkl"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]
    (judge / "vocab.txt").write_text("\n".join(words) + "\n")
    return decoder, judge


def judged(folders, number=1, **keys):
    decoder, judge = folders
    model = {"path": str(decoder), "length": LENGTH, **keys}
    return built(model, {"name": "classifier", "path": str(judge), "class": number})


@torch.no_grad()
def alone(judge, texts, number):
    """Return the logit of each text by itself, as transformers' page shows it."""
    read = AutoTokenizer.from_pretrained(judge)
    lm = AutoModelForSequenceClassification.from_pretrained(judge).eval()
    found = []
    for text in texts:
        given = read(text, return_tensors="pt", truncation=True, max_length=POSITIONS)
        found.append(lm(**given).logits[0, number])
    return torch.stack(found)


@pytest.mark.parametrize("number", [0, 2])
def test_z_is_the_logit_of_the_text(folders, number):
    model = judged(folders, number)
    x = inputs(model, 12) % 12 + 2  # letters that the judge knows
    x[::2, -2:] = 28  # no token
    texts = model.render(x)
    z = model.output(x)
    torch.testing.assert_close(z, alone(folders[1], texts, number), atol=2e-5, rtol=1e-5)
    assert z.std() > 0.05 and z.dtype == torch.float32
    lengths = {len(model._tokenizer(text)["input_ids"]) for text in texts}
    assert len(lengths) > 1  # so that some were padded


def test_the_prefix_is_part_of_the_text(folders):
    model = judged(folders, prefix="ab")
    x = inputs(model)
    assert all(text.startswith("ab") for text in model.render(x))
    expected = alone(folders[1], model.render(x), 1)
    torch.testing.assert_close(model.output(x), expected, atol=2e-5, rtol=1e-5)


def test_longer_texts_are_cut_and_this_is_stated(folders, caplog, monkeypatch):
    with caplog.at_level(logging.INFO, "omniinput_hpc"):
        model = judged(folders)
    assert f"texts of more than {POSITIONS} tokens are cut" in caplog.text
    monkeypatch.setattr(model, "_texts", lambda x: ["a b c d e f g " * 5] * len(x))
    z = model.output(inputs(model))
    expected = alone(folders[1], ["a b c d e f g " * 5], 1)
    torch.testing.assert_close(z, expected.expand(9), atol=2e-5, rtol=1e-5)


def test_a_judge_that_heeds_the_padding_is_asked_one_by_one(folders, caplog, monkeypatch):
    """A wrong variant, without a mask, is found; then every text is evaluated alone."""
    from transformers import DistilBertForSequenceClassification as Judge

    forward = Judge.forward

    def heedless(self, input_ids, attention_mask=None, **more):
        return forward(self, input_ids, **more)

    monkeypatch.setattr(Judge, "forward", heedless)
    model = judged(folders)
    assert "texts are evaluated one by one" in caplog.text
    x = inputs(model)
    expected = alone(folders[1], model.render(x), 1)
    torch.testing.assert_close(model.output(x), expected, atol=2e-5, rtol=1e-5)


def test_a_text_without_tokens_has_no_z(folders, monkeypatch):
    model = judged(folders)
    no_tokens = {"input_ids": torch.zeros((9, 0), dtype=torch.int64)}
    monkeypatch.setattr(model, "_tokenizer", lambda texts, **how: no_tokens)
    assert model.output(inputs(model)).isnan().all()
    assert classifier.MAX_TOKENS > POSITIONS


def test_a_text_without_tokens_has_no_z_in_a_batch(folders, monkeypatch):
    model = judged(folders)
    read = model._tokenizer
    bare = partial(read, add_special_tokens=False)
    monkeypatch.setattr(model, "_tokenizer", lambda texts, **how: bare(texts, **how))
    monkeypatch.setattr(model, "_texts", lambda x: ["ab", "", "c"])
    assert model.output(inputs(model)).isnan().tolist() == [False, True, False]


def test_what_does_not_fit_is_refused(folders, tmp_path):
    decoder, judge = folders
    with pytest.raises(UserError, match=r"output.class = 3: .* has 3 classes, counted from 0"):
        judged(folders, 3)
    with pytest.raises(UserError, match=r"output.path = nowhere/judge: no such folder"):
        judged((decoder, "nowhere/judge"))
    (tmp_path / "config.json").write_text((judge / "config.json").read_text())
    with pytest.raises(UserError, match=r"output.path = .*: weights not found"):
        judged((decoder, tmp_path))
    (tmp_path / "model.safetensors").write_bytes((judge / "model.safetensors").read_bytes())
    with pytest.raises(UserError, match=r"output.path needs a tokenizer in"):
        judged((decoder, tmp_path))
    with pytest.raises(ValueError, match=r'output.name = "classifier" is for model.kind = '):
        judged((judge, judge), kind="sequence-classifier", target=0)
