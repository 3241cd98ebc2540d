"""Masked language models: z is the pseudo-loss by transformers' own network, one mask at a time."""

import copy
import json

import numpy as np
import pytest
import torch
import written_pages
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, EsmConfig, EsmForMaskedLM

from omniinput_hpc.config import MaskedLm
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import hf_folder, masked_lm
from omniinput_hpc.pilot import model_table

ESM = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
ACIDS = list("ACDEFGHIKLMNPQRSTVWY")
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 40, "pad_token_id": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def esm(tmp_path_factory):
    """Return the folder of a small ESM-2, and its network."""
    folder = tmp_path_factory.mktemp("esm")
    torch.manual_seed(2)
    settings = {"position_embedding_type": "rotary", "token_dropout": True, "mask_token_id": 32}
    network = EsmForMaskedLM(EsmConfig(vocab_size=len(ESM), **SIZES, **settings)).eval()
    return save(folder, network, ESM, {"tokenizer_class": "EsmTokenizer"})


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    torch.manual_seed(3)
    network = BertForMaskedLM(BertConfig(vocab_size=len(BERT), **{**SIZES, "pad_token_id": 0}))
    return save(tmp_path_factory.mktemp("bert"), network.eval(), BERT, {})


def save(folder, network, words, settings):
    for parameter in network.parameters():
        parameter.data *= 6
    network.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder, network


def options(folder, **keys):
    return MaskedLm(kind="masked-lm", path=str(folder), **{"length": 8, **keys})


def pseudo_losses(network, rows, mask, before=1, after=1):
    """Return -ln p of each token within rows [n, T] given all others, float32 [n, D]."""
    found = []
    for row in torch.as_tensor(rows):
        losses = []
        for i in range(before, len(row) - after):
            masked = row.clone()[None]
            masked[0, i] = mask
            with torch.no_grad():
                logits = network(input_ids=masked, attention_mask=torch.ones_like(masked)).logits
            losses.append(-logits[0, i].log_softmax(0)[row[i]])
        found.append(torch.stack(losses))
    return torch.stack(found)


def inputs(n_values, n=5):
    return torch.randint(n_values, (n, 6), generator=torch.Generator().manual_seed(1))


def test_z_of_proteins(esm):
    folder, network = esm
    model = masked_lm.build(options(folder, tokens=ACIDS), "cpu")
    assert (model.n_sites, model.n_values) == (6, 20)
    x = inputs(20)
    ids = torch.tensor([ESM.index(acid) for acid in ACIDS])[x]
    rows = torch.nn.functional.pad(torch.nn.functional.pad(ids, (1, 0), value=0), (0, 1), value=2)
    losses = pseudo_losses(network, rows, ESM.index("<mask>"))
    torch.testing.assert_close(model.output(x), losses.mean(dim=1), atol=1e-5, rtol=1e-5)
    assert losses.mean(dim=1).std() > 0.01
    some = masked_lm.build(options(folder, tokens=ACIDS, sites=[4, 1]), "cpu")
    expected = losses[:, [1, 4]].mean(dim=1)
    torch.testing.assert_close(some.output(x), expected, atol=1e-5, rtol=1e-5)
    shown = model.render(x[:1])[0]
    assert shown.startswith("<cls>") and shown.endswith("<eos>")


@pytest.mark.parametrize("sites", [None, [0, 3]])
def test_the_gradient_is_the_derivative_by_one_hot(bert, sites):
    folder, network = bert
    model = masked_lm.build(options(folder, tokens="no-special", sites=sites), "cpu")
    assert (model.n_sites, model.n_values) == (6, 8) and not model.without_gradient
    x = inputs(8)
    z, g = model.output_and_gradient(x)
    torch.testing.assert_close(z, model.output(x), atol=1e-6, rtol=0)
    one_hot = torch.nn.functional.one_hot(x, 8).float()
    expected = numerical(network, one_hot, sites or range(6))
    torch.testing.assert_close(g, expected, atol=1e-4, rtol=1e-3)
    z_too, e, rest = model.output_and_factors(x)
    site = torch.full((5,), 3)
    rows = e[:, 3] @ model.embedding.T + model.target_rows(rest, site)
    torch.testing.assert_close(rows, g[:, 3], atol=1e-6, rtol=0)
    assert torch.equal(z_too, z)


def numerical(network, one_hot, sites):
    """Return the gradient by autograd of z as a function of mixed tokens, [W, D, 8]."""
    table = network.get_input_embeddings().weight
    tokens = torch.nn.functional.pad(one_hot, (5, 0))  # [W, D, 13]
    tokens.requires_grad_()
    ends = [torch.eye(len(BERT))[i].expand(len(one_hot), 1, -1) for i in (2, 3)]
    whole = torch.cat([ends[0], tokens, ends[1]], dim=1)
    z = 0.0
    for i in sites:
        mask = torch.eye(len(BERT))[4].expand(len(one_hot), 1, -1)
        masked = torch.cat([whole[:, : i + 1], mask, whole[:, i + 2 :]], dim=1)
        log_p = network(inputs_embeds=masked @ table).logits[:, i + 1].log_softmax(dim=1)
        z = z - (log_p * tokens[:, i]).sum(dim=1) / len(sites)
    (gradient,) = torch.autograd.grad(z.sum(), tokens)
    return gradient[:, :, 5:]


def test_batches_of_masked_inputs_give_the_same(bert, monkeypatch):
    model = masked_lm.build(options(bert[0]), "cpu")
    x = inputs(13)
    z, g = model.output_and_gradient(x)
    monkeypatch.setattr(masked_lm, "AT_ONCE", 56)  # 7 texts
    torch.testing.assert_close(model.output(x), z, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model.output_and_gradient(x)[1], g, atol=1e-5, rtol=1e-4)


def test_the_head_gets_only_masked_positions_if_it_gives_the_same(bert, monkeypatch):
    """A head that looks at other positions gets all of them."""
    seen = []

    class Head(torch.nn.Module):
        def __init__(self, own, mixes):
            super().__init__()
            self.own, self.mixes = own, mixes

        def forward(self, hidden):
            seen.append(hidden.shape[1])
            return self.own(hidden + self.mixes * hidden.mean(dim=1, keepdim=True))

    whole = {}
    for mixes in (0.0, 1.0):
        network = copy.deepcopy(bert[1])
        network.cls = Head(network.cls, mixes)
        monkeypatch.setattr(masked_lm, "load", lambda *_, n=network: n)
        model = masked_lm.build(options(bert[0]), "cpu")
        seen.clear()
        whole[mixes] = model.output(inputs(13))
        assert set(seen) == ({8} if mixes else {1})
    assert (whole[0.0] - whole[1.0]).abs().min() > 1e-3


def test_what_is_known_before_it_is_built(esm):
    found = hf_folder.preflight(options(esm[0], tokens=ACIDS, length=12))
    assert (found["n_sites"], found["n_values"]) == (10, 20)
    shown = hf_folder.display(options(esm[0], tokens=ACIDS))
    x = np.array([[0, 1, 2, 3, 4, 5]])
    assert shown.tokens(x) == [["<cls>", *"ACDEFG", "<eos>"]]
    assert list(shown.show(x)) == shown.letters(x) == ["ACDEFG"]
    assert hf_folder.encoder(options(esm[0], tokens=ACIDS))("ACDXEF") == [0, 1, 2, -1, 3, 4]
    table = model_table.of(str(esm[0]), None, 12)
    assert (table["kind"], table["length"], table["tokens"]) == ("masked-lm", 12, ACIDS)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tokens": ["A", "J"]}, "model.tokens: .* has no token 'J'"),
        ({"tokens": ["A", "C", "A"]}, "model.tokens names 'A' twice"),
        ({"sites": [6]}, "model.sites: expected different sites from 0 to 5"),
        ({"sites": [1, 1]}, "model.sites: expected different sites"),
        ({"length": 2}, "model.length = 2 leaves no site"),
    ],
)
def test_what_is_refused(esm, keys, message):
    with pytest.raises(UserError, match=message):
        hf_folder.preflight(options(esm[0], **keys))


def test_z_of_the_pages_esm2_is_that_of_transformers(tmp_path, monkeypatch):
    """The 8M shape of docs/examples, with its tokenizer, token by token."""
    monkeypatch.chdir(tmp_path)
    found = written_pages.run_example("make_esm.py")
    network, folder = found["network"].eval(), tmp_path / "esm2-8m"
    assert sum(p.numel() for p in network.parameters()) == 7_512_474
    table = model_table.of(str(folder), None, 10)
    model = masked_lm.build(MaskedLm.model_validate(table), "cpu")
    x = torch.randint(20, (3, 8), generator=torch.Generator().manual_seed(1))
    words = AutoTokenizer.from_pretrained(folder)
    texts = ["".join(ACIDS[v] for v in row) for row in x.tolist()]
    rows = words(texts, return_tensors="pt").input_ids
    assert rows.shape == (3, 10)
    expected = pseudo_losses(network, rows, words.mask_token_id).mean(dim=1)
    torch.testing.assert_close(model.output(x), expected, rtol=1e-5, atol=0)
    assert expected.std() > 0.03
