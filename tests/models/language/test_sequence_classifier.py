"""Classifiers of texts: z is Hugging Face's own logit, and its gradient agrees with differences."""

import copy
import shutil

import numpy as np
import pytest
import torch
import written_pages
from language_folders import (
    LLAMA_LIKE,
    V,
    save_classifier,
    save_decoder,
    save_tokenizer,
    with_beginning,
)
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    DistilBertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
)

from omniinput_hpc.config import SequenceClassifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.parts.gradients import Differentiable
from omniinput_hpc.models.language import hf_folder, sequence_classifier, tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_classifier(tmp_path_factory.mktemp("distilbert"))


def options(folder, **keys):
    return SequenceClassifier(
        **{"kind": "sequence-classifier", "path": str(folder), "length": 8, "target": 1, **keys}
    )


def inputs(n=6):
    return torch.randint(V, (n, 6), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("output", ["logit", "difference", "log-softmax", "log-odds"])
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
        "log-odds": logits[:, 1] - logits[:, 0],
        "log-softmax": logits.log_softmax(-1)[:, 1],
    }[output]
    z = model.output(x)
    torch.testing.assert_close(z, sign * expected, atol=1e-5, rtol=0)
    assert z.dtype == torch.float32 and z.std() > 0.01


def test_z_of_any_class(folder):
    x = inputs()
    one, two, largest = (
        sequence_classifier.build(options(folder, target=target), "cpu").output(x)
        for target in (0, 1, "any")
    )
    torch.testing.assert_close(largest, torch.maximum(one, two))
    assert (largest != two).any()
    model = sequence_classifier.build(options(folder), "cpu")
    assert model.classes(x.numpy()).tolist() == (two > one).long().tolist()


def test_the_gradient_is_the_derivative_by_one_hot(folder):
    model = sequence_classifier.build(options(folder, output="difference"), "cpu")
    x = inputs()
    z, g = model.output_and_gradient(x)
    torch.testing.assert_close(z, model.output(x), atol=1e-6, rtol=0)
    assert g.shape == (6, 6, V)
    h = 1e-3
    for site, value in ((0, 4), (5, 11)):
        step = h * model.embedding[value]
        up, down = (z_moved(model, x, site, sign * step) for sign in (1, -1))
        torch.testing.assert_close(g[:, site, value], (up - down) / (2 * h), atol=1e-2, rtol=2e-2)
    z_too, e, rest = model.output_and_factors(x)
    rows = model.target_rows(rest, torch.zeros(6, dtype=torch.int64))
    torch.testing.assert_close(e[:, 0] @ model.embedding.T + rows, g[:, 0], atol=1e-6, rtol=0)
    assert torch.equal(z_too, z)


def z_moved(model, x, site, step):
    """Return z where what is embedded of a site is moved by a step, [E]."""

    def move(layer, inputs, embedded):
        moved = embedded.clone()
        moved[:, site + 1] += step
        return moved

    hook = model.lm.get_input_embeddings().register_forward_hook(move)
    z = model.output(x)
    hook.remove()
    return z


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
    assert "is for two classes" in refused(three, output="difference")
    config = AutoConfig.from_pretrained(three, problem_type="multi_label_classification")
    config.save_pretrained(three)
    for output in ("log-softmax", "log-odds"):
        with pytest.raises(UserError, match=f'"{output}" compares classes, but the labels of .*'):
            hf_folder.preflight(options(three, output=output))
    assert hf_folder.preflight(options(three, output="logit"))["n_sites"] == 6
    (three / "vocab.txt").write_text("a\nb\n")
    assert "has no cls_token '[CLS]'" in refused(three)
    (three / "vocab.txt").unlink()
    assert "needs a tokenizer" in refused(three)


PAD, FIRST, LAST = 1, 0, 2
SMALL = {
    "vocab_size": V, "num_labels": 3, "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 24,
    "pad_token_id": PAD, "bos_token_id": FIRST, "eos_token_id": LAST,
}  # fmt: skip
HALVES = {
    f"{half}_{key}": n for half in ("encoder", "decoder")
    for key, n in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 24))
}  # fmt: skip
BY_TOKENS = {
    "roberta": {}, "xlm-roberta": {}, "mpnet": {}, "camembert": {},
    "longformer": {"attention_window": 4}, "esm": {"position_embedding_type": "absolute"},
    "bart": {"d_model": 16, "decoder_start_token_id": LAST, **HALVES},
    "t5": {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_heads": 2, "decoder_start_token_id": PAD},
}  # fmt: skip
ONE_BY_ONE, NO_GRADIENT = {"bart", "t5"}, {"bart", "t5"}


@pytest.mark.parametrize("kind", BY_TOKENS)
def test_z_is_that_of_the_tokens(kind, tmp_path, caplog):
    """Positions and heads may depend on <pad> and </s>, which embeddings alone do not show."""
    truth = save_by_tokens(kind, tmp_path)
    x = inputs(8)
    x[:4, 2], x[2:6, 3], x[6, :3], x[7, 4] = PAD, LAST, PAD, FIRST
    with caplog.at_level("WARNING", "omniinput_hpc"):
        model = sequence_classifier.build(options(tmp_path, length=8), "cpu")
    assert ("inputs are evaluated one by one" in caplog.text) == (kind in ONE_BY_ONE)
    tokens = torch.cat([torch.full((8, 1), FIRST), x, torch.full((8, 1), LAST)], dim=1)
    with torch.no_grad():
        alone = [truth(input_ids=t, attention_mask=torch.ones_like(t)) for t in tokens[:, None]]
    expected = torch.cat([one.logits[:, 1] for one in alone])
    torch.testing.assert_close(model.output(x), expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 0.01
    assert bool(model.without_gradient) == (kind in NO_GRADIENT)
    if kind in NO_GRADIENT:
        with pytest.raises(
            UserError, match=r'"a kernel" needs the gradient of z, which .* its input embedding'
        ):
            Differentiable(model, "a kernel")
    else:
        z, _ = model.output_and_gradient(x)
        torch.testing.assert_close(z, expected, atol=1e-5, rtol=1e-5)


def save_by_tokens(kind, folder):
    """Write a small classifier whose frame is <s> and </s>; return it."""
    torch.manual_seed(7)
    settings = AutoConfig.for_model(kind, **{**SMALL, **BY_TOKENS[kind]})
    truth = AutoModelForSequenceClassification.from_config(settings).eval()
    for parameter in truth.parameters():
        parameter.data *= 4
    truth.save_pretrained(folder)
    save_tokenizer(folder, ["<s>", "<pad>", "</s>", *"abcdefghijklmnopqrstuvwx"])
    (folder / "tokenizer_config.json").write_text('{"cls_token": "<s>", "sep_token": "</s>"}')
    return truth


def test_embeddings_alone_would_be_another_model(tmp_path):
    """The wrong variant, which the test above would find."""
    truth = save_by_tokens("roberta", tmp_path)
    tokens = torch.tensor([[FIRST, 5, PAD, 7, LAST]])
    with torch.no_grad():
        apart = truth(inputs_embeds=truth.get_input_embeddings()(tokens)).logits
        apart -= truth(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits
    assert apart.abs().max() > 1e-3


@pytest.mark.parametrize("error", [RuntimeError("shapes"), AssertionError(), KeyError("cpm")])
def test_what_a_models_own_code_raises_is_a_sentence(folder, monkeypatch, error):
    forward = DistilBertForSequenceClassification.forward

    def fails(self, input_ids=None, **given):
        if (input_ids == 0).any():  # [PAD]
            raise error
        return forward(self, input_ids=input_ids, **given)

    monkeypatch.setattr(DistilBertForSequenceClassification, "forward", fails)
    with pytest.raises(UserError, match=f"cannot evaluate .*({type(error).__name__}|shapes)"):
        sequence_classifier.build(options(folder), "cpu")


def test_a_lack_of_memory_is_not_swallowed(folder, monkeypatch):
    forward = DistilBertForSequenceClassification.forward

    def fails(self, input_ids=None, **given):
        if len(input_ids) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, input_ids=input_ids, **given)

    monkeypatch.setattr(DistilBertForSequenceClassification, "forward", fails)
    with pytest.raises(torch.OutOfMemoryError):
        sequence_classifier.build(options(folder), "cpu")


def test_a_language_model_is_no_classifier(tmp_path):
    """Its head would be made up at random: that is refused."""
    from language_folders import save_decoder

    folder = save_decoder("gpt2", tmp_path)
    (folder / "vocab.txt").write_text("[CLS]\n[SEP]\n")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="do not fit a GPT2ForSequenceClassification"):
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


END = 0


@pytest.fixture(scope="module")
def reward(tmp_path_factory):
    """Return a Llama with one output whose tokenizer frames texts by <s> and <end>."""
    folder = save_decoder("llama", tmp_path_factory.mktemp("reward"))
    first = with_beginning(folder, "<s>")
    torch.manual_seed(8)
    settings = LlamaConfig(num_key_value_heads=2, num_labels=1, **LLAMA_LIKE)
    truth = LlamaForSequenceClassification(settings).eval()
    for parameter in truth.parameters():
        parameter.data *= 5
    truth.save_pretrained(folder)
    return truth, folder, first


def rewards_of(truth, rows):
    """Return the outputs of the network in float64; its float32 is off by up to 1e-5."""
    exact = copy.deepcopy(truth).double()
    with torch.no_grad():
        found = [exact(input_ids=torch.tensor([row])).logits[:, 0] for row in rows]
    return torch.cat(found).float()


def test_a_reward_model_reads_texts_as_its_tokenizer_writes_them(reward):
    truth, folder, first = reward
    model = sequence_classifier.build(options(folder, length=8, target=0), "cpu")
    assert (model.n_sites, model.n_values) == (6, V)
    x = inputs()
    alone = rewards_of(truth, [[first, *row, END] for row in x.tolist()])
    torch.testing.assert_close(model.output(x), alone, atol=2e-5, rtol=2e-5)
    assert alone.std() > 0.01
    z, gradient = model.output_and_gradient(x)
    torch.testing.assert_close(z, alone, atol=2e-5, rtol=2e-5)
    assert gradient.shape == (6, 6, V)
    without = rewards_of(truth, x.tolist())  # the wrong variant
    assert (without - alone).abs().max() > 1e-3


def test_a_chat_template_is_a_prefix_and_a_suffix(reward):
    truth, folder, _ = reward
    keys = {"length": 11, "target": 0, "tokens": "no-special"}
    model = sequence_classifier.build(
        options(folder, prefix="<end>ab", suffix=[5, 0], **keys), "cpu"
    )
    assert (model.n_sites, model.n_values) == (6, 24)  # without <end>, <pad> and <s>
    rows = [[0, 2, 3, *(v + 2 for v in row), 5, 0] for row in (inputs() % 24).tolist()]
    torch.testing.assert_close(
        model.output(inputs() % 24), rewards_of(truth, rows), atol=2e-5, rtol=2e-5
    )
    assert model.render(torch.zeros((1, 6), dtype=torch.int64)) == ["<end>abaaaaaad<end>"]
    shown = hf_folder.display(options(folder, prefix="<end>ab", suffix=[5, 0], **keys))
    assert shown.prefix == "<end>ab"
    assert shown.tokens(np.zeros((1, 6), dtype=int)) == [list(model_tokens(folder, rows[0], 6))]


def model_tokens(folder, row, n_sites):
    """Return the tokens of an input of letters "a" within the frame of `row`."""
    words = tokenizer.read(folder)
    return words.pieces([*row[:3], *[2] * n_sites, *row[-2:]])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"length": 3, "prefix": "ab"}, "model.length = 3 leaves no site: 3 tokens are around"),
        ({"suffix": [77]}, "model.suffix: the token 77 is not one of the model's 29 tokens"),
        ({"output": "log-softmax"}, "has only one class, and nothing to compare it with"),
    ],
)
def test_what_a_reward_model_refuses(reward, keys, message):
    with pytest.raises(UserError, match=message):
        sequence_classifier.build(options(reward[1], **{"target": 0, **keys}), "cpu")


def test_the_reward_model_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = written_pages.run_example("make_reward.py")
    model = sequence_classifier.build(options("reward", length=6, target=0), "cpu")
    assert (model.n_sites, model.n_values) == (4, V)
    x = torch.randint(24, (6, 4), generator=torch.Generator().manual_seed(1))
    expected = rewards_of(found["model"].eval(), [[26, *row, END] for row in x.tolist()])
    torch.testing.assert_close(model.output(x), expected, atol=1e-5, rtol=1e-5)
