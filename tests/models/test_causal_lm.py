"""Language models: z is Hugging Face's loss, the faster forms agree with it, files are checked."""

import json

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from omniinput_hpc.config import CausalLm
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import causal_lm, local_folder

SIZES = {"vocab_size": 23, "bos_token_id": None, "eos_token_id": None}
CONFIGS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(n_positions=12, n_embd=16, n_layer=2, n_head=2, **SIZES)),
    "llama": (
        LlamaForCausalLM,
        LlamaConfig(
            hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=12, **SIZES,
        ),
    ),
}  # fmt: skip


@pytest.fixture(params=CONFIGS)
def folder(request, tmp_path):
    """A folder made by save_pretrained: the real loading code reads it."""
    torch.manual_seed(4)
    kind, config = CONFIGS[request.param]
    model = kind(config)
    for parameter in model.parameters():
        parameter.data *= 3  # far from uniform outputs
    model.save_pretrained(tmp_path)
    return tmp_path


def options(folder, length=7):
    return CausalLm(kind="causal-lm", path=str(folder), length=length)


def inputs(n=9, length=7, seed=1):
    return torch.randint(23, (n, length), generator=torch.Generator().manual_seed(seed))


def test_z_is_hugging_faces_loss(folder):
    model = causal_lm.build(options(folder), "cpu")
    assert (model.n_values, model.n_sites, model.predicted_from) == (23, 7, 1)
    x = inputs()
    z = model.output(x)
    assert z.dtype == torch.float32
    for one, row in zip(z, x, strict=True):
        loss = model.lm(input_ids=row[None], labels=row[None]).loss
        assert abs(float(one) - float(loss)) < 1e-5
    assert z.std() > 0.05


def test_conditional_logits_agree_with_z(folder):
    model = causal_lm.build(options(folder), "cpu")
    x = inputs()
    z, log_p = model.conditional_logits(x)
    torch.testing.assert_close(z, model.output(x), atol=1e-5, rtol=0)
    assert log_p.shape == (9, 7, 23)
    chosen = log_p.gather(2, x[..., None]).squeeze(2)[:, 1:]
    torch.testing.assert_close(-chosen.mean(dim=1), z, atol=1e-5, rtol=0)
    torch.testing.assert_close(log_p[:, 1:].exp().sum(-1), torch.ones(9, 6), atol=1e-5, rtol=0)


def test_cached_decoding_agrees_with_the_full_forward(folder):
    model = causal_lm.build(options(folder), "cpu")
    x = inputs()
    _, log_p = model.conditional_logits(x)
    prefixes = model.begin(x[:, :2])
    for t in range(2, 7):
        torch.testing.assert_close(prefixes.log_p, log_p[:, t], atol=1e-5, rtol=0)
        if t < 6:
            prefixes = model.extend(prefixes, x[:, t])


def test_branching_visits_every_value(folder):
    model = causal_lm.build(options(folder, length=3), "cpu")
    prefixes = model.begin(torch.tensor([[4], [9]]))
    children = model.branch(prefixes)
    assert children.log_p.shape == (46, 23)
    x = torch.cartesian_prod(torch.tensor([4, 9]), torch.arange(23), torch.tensor([0]))
    _, log_p = model.conditional_logits(x)
    torch.testing.assert_close(children.log_p, log_p[:, 2], atol=1e-5, rtol=0)


def test_preflight_reads_the_files_without_torch(folder):
    about = local_folder.preflight(options(folder))
    assert (about["n_values"], about["n_sites"]) == (23, 7)
    again = local_folder.preflight(options(folder))
    assert about["fingerprint"] == again["fingerprint"]
    config = folder / "config.json"
    config.write_text(config.read_text().replace("23", "24"))
    assert local_folder.preflight(options(folder))["fingerprint"] != about["fingerprint"]


def refused(folder, length=7):
    with pytest.raises(UserError) as caught:
        local_folder.preflight(options(folder, length))
    return str(caught.value)


def test_what_is_refused(folder):
    assert "model.length = 13 is beyond the 12 positions" in refused(folder, 13)
    config = folder / "config.json"
    text = config.read_text()
    config.write_text(json.dumps({**json.loads(text), "auto_map": {"AutoModel": "evil.py"}}))
    assert "code of its own" in refused(folder)
    config.write_text("{")
    assert "not valid JSON" in refused(folder)
    config.write_text("[]")
    assert "does not hold a table" in refused(folder)
    config.write_text(text)
    weights = folder / "model.safetensors"
    weights.rename(folder / "pytorch_model.bin")
    assert "never loaded" in refused(folder)
    (folder / "pytorch_model.bin").unlink()
    assert "weights not found" in refused(folder)
    config.unlink()
    assert "no config.json" in refused(folder)
    assert "no such folder" in refused(folder / "nothing")


def test_broken_weights_are_bad_input(folder):
    (folder / "model.safetensors").write_bytes(b"not safetensors at all")
    with pytest.raises(UserError, match="cannot be loaded"):
        causal_lm.build(options(folder), "cpu")


def test_render_shows_the_values_where_there_is_no_tokenizer(folder):
    model = causal_lm.build(options(folder), "cpu")
    assert model.render(torch.tensor([[1, 22, 3]])) == ["1 22 3"]
