"""Classifiers of texts: z is Hugging Face's own logit, and its gradient agrees with differences."""

import shutil

import pytest
import torch
from language_folders import V, save_classifier
from transformers import GPT2Config, GPT2ForSequenceClassification

from omniinput_hpc.config import SequenceClassifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import sequence_classifier


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_classifier(tmp_path_factory.mktemp("distilbert"))


def options(folder, **keys):
    return SequenceClassifier(
        **{"kind": "sequence-classifier", "path": str(folder), "length": 8, "target": 1, **keys}
    )


def inputs(n=6):
    return torch.randint(V, (n, 6), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("output", ["logit", "difference", "log-softmax"])
@pytest.mark.parametrize("sign", [1, -1])
def test_z_is_hugging_faces_output(folder, output, sign):
    model = sequence_classifier.build(options(folder, output=output, sign=sign), "cpu")
    assert (model.n_sites, model.n_values) == (6, V)
    x = inputs()
    x[0] = 0  # [PAD] counts as any other token
    tokens = torch.cat([torch.full((6, 1), 2), x, torch.full((6, 1), 3)], dim=1)
    logits = model.lm(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits
    expected = {
        "logit": logits[:, 1],
        "difference": logits[:, 1] - logits[:, 0],
        "log-softmax": logits.log_softmax(-1)[:, 1],
    }[output]
    z = model.output(x)
    torch.testing.assert_close(z, sign * expected, atol=1e-5, rtol=0)
    assert z.dtype == torch.float32 and z.std() > 0.01


def test_the_gradient_is_the_derivative_by_one_hot(folder):
    model = sequence_classifier.build(options(folder, output="difference"), "cpu")
    x = inputs()
    z, g = model.output_and_gradient(x)
    torch.testing.assert_close(z, model.output(x), atol=1e-6, rtol=0)
    assert g.shape == (6, 6, V)
    embedded = model._embed(x)
    h = 1e-3
    for site, value in ((0, 4), (5, 11)):
        step = torch.zeros_like(embedded)
        step[:, site + 1] = h * model.embedding[value]
        with torch.no_grad():
            slope = (model._z(embedded + step) - model._z(embedded - step)) / (2 * h)
        torch.testing.assert_close(g[:, site, value], slope, atol=1e-2, rtol=2e-2)
    z_too, e, rest = model.output_and_factors(x)
    rows = model.target_rows(rest, torch.zeros(6, dtype=torch.int64))
    torch.testing.assert_close(e[:, 0] @ model.embedding.T + rows, g[:, 0], atol=1e-6, rtol=0)
    assert torch.equal(z_too, z)


def test_what_a_person_sees(folder):
    model = sequence_classifier.build(options(folder), "cpu")
    x = torch.tensor([[5, 6, 25, 7, 8, 9], [0, 5, 5, 5, 5, 5]])
    assert model.render(x) == ["[CLS] a bs c d e [SEP]", "[CLS] [PAD] a a a a a [SEP]"]


def test_what_is_refused(folder, tmp_path):
    def refused(where, **keys):
        with pytest.raises(UserError) as caught:
            sequence_classifier.build(options(where, **keys), "cpu")
        return str(caught.value)

    assert "model.target = 2: " in refused(folder, target=2)
    assert "has 2 classes" in refused(folder, target=2)
    assert "beyond the 16 positions" in refused(folder, length=17)
    three = save_classifier(tmp_path, n_classes=3)
    assert "requires two classes" in refused(three, output="difference")
    (three / "vocab.txt").write_text("a\nb\n")
    assert "has no cls_token '[CLS]'" in refused(three)
    (three / "vocab.txt").unlink()
    assert "needs a tokenizer" in refused(three)


def test_a_language_model_is_no_classifier(tmp_path):
    """Its head would be made up at random: that is refused."""
    from language_folders import save_decoder

    folder = save_decoder("gpt2", tmp_path)
    (folder / "vocab.txt").write_text("[CLS]\n[SEP]\n")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="do not make up a GPT2ForSequenceClassification"):
        sequence_classifier.build(options(folder), "cpu")


def test_a_decoder_without_a_padding_token_takes_batches(folder, tmp_path):
    """Its head reads the last token, [SEP], as for a batch of one."""
    torch.manual_seed(6)
    config = GPT2Config(
        vocab_size=V, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=None,
        eos_token_id=None, num_labels=2,
    )  # fmt: skip
    decoder = GPT2ForSequenceClassification(config)
    for parameter in decoder.parameters():
        parameter.data *= 6
    decoder.save_pretrained(tmp_path)
    shutil.copy(folder / "vocab.txt", tmp_path)
    model, x = sequence_classifier.build(options(tmp_path), "cpu"), inputs()
    tokens = torch.cat([torch.full((6, 1), 2), x, torch.full((6, 1), 3)], dim=1)
    with torch.no_grad():
        alone = torch.cat([decoder.eval()(input_ids=one[None]).logits[:, 1] for one in tokens])
    torch.testing.assert_close(model.output(x), alone, atol=1e-5, rtol=1e-5)
    assert alone.std() > 0.01
