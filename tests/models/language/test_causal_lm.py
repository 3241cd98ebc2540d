"""Language models: z is Hugging Face's loss, and every faster form agrees with it."""

import itertools

import pytest
import torch
from language_folders import DECODERS, LLAMA_LIKE, POSITIONS, V, save_decoder
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM

from omniinput_hpc.config import CausalLm
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.parts import gradients
from omniinput_hpc.models.language import causal_lm, kv_cache
from omniinput_hpc.models.language.prefix_cache import WholePrefixes

D = 7


@pytest.fixture(params=DECODERS, scope="module")
def folder(request, tmp_path_factory):
    return save_decoder(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(
    params=[{}, {"prefix": [3, 7, 2]}, {"tokens": "no-special"}], ids=str, scope="module"
)
def model(request, folder):
    return build(folder, **request.param)


def build(folder, **keys):
    return causal_lm.build(CausalLm(kind="causal-lm", path=str(folder), length=D, **keys), "cpu")


def inputs(model, n=9, seed=1):
    shape = (n, model.n_sites)
    return torch.randint(model.n_values, shape, generator=torch.Generator().manual_seed(seed))


def test_z_is_hugging_faces_loss(model):
    x = inputs(model)
    z = model.output(x)
    assert z.dtype == torch.float32
    prefix = [3, 7, 2] if model.predicted_from == 0 else []
    for one, row in zip(z, model.token_ids[x].tolist(), strict=True):
        labels = torch.tensor([[-100] * len(prefix) + row])
        loss = model.lm(input_ids=torch.tensor([prefix + row]), labels=labels).loss
        assert abs(float(one) - float(loss)) < 1e-5
    assert z.std() > 0.05
    assert model.n_values == (24 if len(model.token_ids) < V else V)


def test_conditional_logits_agree_with_z(model):
    x = inputs(model)
    z, log_p = model.conditional_logits(x)
    torch.testing.assert_close(z, model.output(x), atol=1e-5, rtol=0)
    assert log_p.shape == (9, D, model.n_values) and log_p.dtype == torch.float32
    first = model.predicted_from
    chosen = log_p.gather(2, x[..., None]).squeeze(2)[:, first:]
    torch.testing.assert_close(-chosen.mean(dim=1), z, atol=1e-5, rtol=0)
    total = log_p[:, first:].exp().sum(-1)
    if model.n_values == V:
        torch.testing.assert_close(total, torch.ones_like(total), atol=1e-5, rtol=0)
    else:  # the tokens that are not allowed keep their share
        assert total.max() < 1 - 1e-4


def test_cached_decoding_agrees_with_the_full_forward(model):
    x = inputs(model)
    _, log_p = model.conditional_logits(x)
    for begin in (0, 2):
        state = model.begin(x[:, :begin])
        for t in range(begin, D):
            if t >= model.predicted_from:
                torch.testing.assert_close(state.log_p, log_p[:, t], atol=1e-5, rtol=0)
            if t + 1 < D:
                state = model.extend(state, x[:, t])


def test_a_gradient_is_the_derivative_by_one_hot(model):
    """Against central differences of z as a function of mixed embeddings and of soft targets."""
    x = inputs(model, 2)
    z, g = model.output_and_gradient(x)
    torch.testing.assert_close(z, model.output(x), atol=1e-5, rtol=0)
    assert g.shape == (2, D, model.n_values) and g.dtype == torch.float32
    h = 1e-3
    for site, value in ((0, 1), (3, 5), (D - 1, 2)):
        soft = torch.nn.functional.one_hot(x, model.n_values).double()
        up, down = soft.clone(), soft.clone()
        up[:, site, value] += h
        down[:, site, value] -= h
        slope = (z_of_soft(model, up) - z_of_soft(model, down)) / (2 * h)
        torch.testing.assert_close(g[:, site, value].double(), slope, atol=1e-2, rtol=2e-2)


def z_of_soft(model, soft):
    """Return z, with values replaced by weights [W, D, n_values]: what g differentiates."""
    table = model.lm.get_input_embeddings().weight
    before = table[model._before].expand(len(soft), -1, -1)
    sites = soft.to(table) @ table[model.token_ids]
    embedded = torch.cat([before, sites], dim=1)
    with torch.no_grad():
        log_p = model.lm(inputs_embeds=embedded[:, :-1]).logits.log_softmax(-1)
    m = D - model.predicted_from
    log_p = log_p[:, -m:][..., model.token_ids].double()
    return -(soft[:, model.predicted_from :] * log_p).sum((1, 2)) / m


def test_the_factors_make_up_the_gradient(model):
    x = inputs(model)
    z, g = model.output_and_gradient(x)
    z_too, e, rest = model.output_and_factors(x)
    torch.testing.assert_close(z_too, z, atol=1e-5, rtol=0)
    assert model.embedding.shape == (model.n_values, e.shape[2])
    assert all(len(part) == len(x) for part in rest)
    for site in range(D):
        rows = model.target_rows(rest, torch.full((len(x),), site))
        whole = e[:, site] @ model.embedding.T + rows
        torch.testing.assert_close(whole, g[:, site], atol=1e-5, rtol=1e-5)
        if site >= model.predicted_from:
            assert rows.abs().min() > 0  # so that leaving it out would be noticed


def test_blocks_of_walkers_change_nothing(model, monkeypatch):
    x = inputs(model)
    whole = model.output_and_factors(x)
    monkeypatch.setattr(kv_cache, "CPU_CHUNK_LOGITS", 2 * (D - model.predicted_from) * V)
    pieces = model.output_and_factors(x)  # two walkers a block, the last one alone
    assert len(x) % 2 == 1
    for a, b in zip((*whole[:2], *whole[2]), (*pieces[:2], *pieces[2]), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


def test_a_gradient_predicts_a_substitution(tmp_path):
    """To first order: exactly so where the tokens' embeddings are close to each other."""
    model = build(save_decoder("gpt2", tmp_path))
    model.lm.transformer.wte.weight.mul_(1e-2)
    model._decoder = None  # which was laid out for the weights before
    x = inputs(model)
    z, g = model.output_and_gradient(x)
    for site in range(D):
        y = x.clone()
        y[:, site] = (y[:, site] + 5) % V
        rows = g[:, site]
        predicted = (rows.gather(1, y[:, site, None]) - rows.gather(1, x[:, site, None]))[:, 0]
        change = model.output(y) - z
        error = (predicted - change).norm() / change.norm()
        assert error < 0.05
        assert (predicted + change).norm() / change.norm() > 1  # the other sign would be noticed


def test_branching_visits_every_value(folder):
    model = causal_lm.build(CausalLm(kind="causal-lm", path=str(folder), length=3), "cpu")
    children = model.branch(model.begin(torch.tensor([[4], [9]])))
    assert children.log_p.shape == (2 * V, V)
    x = torch.cartesian_prod(torch.tensor([4, 9]), torch.arange(V), torch.tensor([0]))
    _, log_p = model.conditional_logits(x)
    torch.testing.assert_close(children.log_p, log_p[:, 2], atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_sums_in_float32(folder, dtype):
    model, exact = build(folder, dtype=dtype), build(folder)
    assert model.lm.dtype == getattr(torch, dtype)
    x = inputs(model)
    z, log_p = model.conditional_logits(x)
    assert z.dtype == log_p.dtype == torch.float32
    torch.testing.assert_close(log_p[:, 1:].exp().sum(-1), torch.ones(9, D - 1), atol=1e-5, rtol=0)
    assert 0 < (z - exact.output(x)).abs().max() < 0.3
    z_too, e, rest = model.output_and_factors(x)
    _, g = model.output_and_gradient(x)
    assert z_too.dtype == e.dtype == g.dtype == torch.float32
    whole = e[:, 2] @ model.embedding.T + model.target_rows(rest, torch.full((9,), 2))
    torch.testing.assert_close(whole, g[:, 2], atol=0.1, rtol=0.1)


def test_text(tmp_path):
    folder = save_decoder("gpt2", tmp_path)
    model = build(folder, prefix="ab", tokens="no-special")
    x = torch.arange(7)[None] + 4
    assert model.render(x) == ["abefghijk"]
    whole = build(folder)
    padded = torch.tensor([[2, 3, 4, 5, 6, 7, V - 1]])  # the last one has no text
    assert whole.render(padded) == ["abcdef"]
    (folder / "tokenizer.json").unlink()
    assert build(folder).render(padded) == ["2 3 4 5 6 7 28"]


def test_the_longest_input_is_as_long_as_the_positions(folder):
    options = CausalLm(kind="causal-lm", path=str(folder), length=POSITIONS)
    assert causal_lm.build(options, "cpu").output(torch.zeros((1, POSITIONS)).long()).isfinite()


def test_kernels_see_the_same_gradient_in_factors(model, monkeypatch):
    x, other = inputs(model), inputs(model, seed=2)
    site = torch.arange(len(x)) % D
    kernels_model = gradients.Differentiable(model, "a kernel")
    _, dense = kernels_model.evaluate(x)
    monkeypatch.setattr(gradients, "MAX_DENSE_ELEMENTS", 0)
    z, factored = kernels_model.evaluate(x)
    assert isinstance(factored, gradients.Factored)
    torch.testing.assert_close(z, model.output(x), atol=1e-5, rtol=0)
    torch.testing.assert_close(factored.rows(0, 3), dense.rows(0, 3), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(factored.rows(3, D), dense.rows(3, D), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(factored.at(site), dense.at(site), atol=1e-5, rtol=1e-5)
    _, elsewhere = kernels_model.evaluate(other)
    mixed = factored.where(torch.arange(len(x)) < 4, elsewhere)
    torch.testing.assert_close(mixed.at(site)[:4], factored.at(site)[:4])
    torch.testing.assert_close(mixed.at(site)[4:], elsewhere.at(site)[4:])


ENCODER = {
    "vocab_size": V, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "max_position_embeddings": 24, "is_decoder": True,
}  # fmt: skip
TREATS_SPECIAL = {
    "roberta": {**ENCODER, "pad_token_id": 1},
    "xlm-roberta": {**ENCODER, "pad_token_id": 1},
    "roberta-prelayernorm": {**ENCODER, "pad_token_id": 3},
    "bert": {**ENCODER, "pad_token_id": 0},
    "xlm": {
        "vocab_size": V, "emb_dim": 16, "n_layers": 2, "n_heads": 2, "causal": True,
        "pad_index": 2, "use_lang_emb": False, "n_langs": 1, "max_position_embeddings": 24,
    },
    "gemma3_text": {
        **LLAMA_LIKE, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0,
        "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"],
    },
}  # fmt: skip
SPECIAL = [0, 1, 2, 3]


LOOKS_AHEAD = {
    "xlm": {**TREATS_SPECIAL["xlm"], "causal": False, "pad_index": 0},
    "cpmant": {
        "vocab_size": V, "hidden_size": 16, "num_attention_heads": 2, "dim_head": 8, "dim_ff": 24,
        "num_hidden_layers": 1, "prompt_length": 4, "pad_token_id": 0,
    },
}  # fmt: skip


def special_model(kind, folder, of=TREATS_SPECIAL, **keys):
    """Write a decoder that treats padding in its own way, or scales embeddings; build it."""
    torch.manual_seed(4)
    lm = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **of[kind]))
    for parameter in lm.parameters():
        parameter.data *= 3
    lm.save_pretrained(folder)
    return build(folder, **keys), lm.eval()


@pytest.mark.parametrize("kind", TREATS_SPECIAL)
def test_every_form_of_z_is_that_of_the_tokens(kind, tmp_path):
    """Positions, masks and scales that embeddings alone, or pieces, do not show."""
    model, lm = special_model(kind, tmp_path)
    x = torch.tensor([*itertools.permutations(SPECIAL)])[:, :3]
    x = torch.cat([x, inputs(model, len(x))[:, 3:]], dim=1)
    x[::2, -1], x[1::3, 4] = 1, torch.tensor(SPECIAL * 2)
    expected = []
    with torch.no_grad():
        for row in x[:, None]:
            logits = lm(input_ids=row, attention_mask=torch.ones_like(row)).logits[0, :-1]
            expected.append(torch.nn.functional.cross_entropy(logits, row[0, 1:]))
    expected = torch.stack(expected)
    torch.testing.assert_close(model.output(x), expected, atol=1e-5, rtol=1e-5)
    z, log_p = model.conditional_logits(x)
    torch.testing.assert_close(z, expected, atol=1e-5, rtol=1e-5)
    prefixes = model.begin(x[:, :2])
    for t in range(2, D):
        torch.testing.assert_close(prefixes.log_p, log_p[:, t], atol=1e-4, rtol=1e-4)
        if t + 1 < D:
            prefixes = model.extend(prefixes, x[:, t])
    assert model.without_gradient == ""
    z, g = model.output_and_gradient(x)
    torch.testing.assert_close(z, expected, atol=1e-5, rtol=1e-5)
    assert g.shape == (len(x), D, V)


@pytest.mark.parametrize("kind", ["roberta", "gemma3_text"])
def test_a_gradient_is_the_derivative_whatever_the_embedding_does(kind, tmp_path):
    """Positions by the tokens, and embeddings that are multiplied by a scale."""
    model, _ = special_model(kind, tmp_path)
    x, h = inputs(model, 4), 1e-3
    x[:, 2] = 1
    _, g = model.output_and_gradient(x)
    for site, value in ((0, 5), (3, 7)):
        log_p = model.conditional_logits(x)[1][:, site, value] / (D - 1) if site else 0.0
        z = [z_moved(model, x, site, sign * h * model._embedding[value]) for sign in (1, -1)]
        slope = (z[0] - z[1]) / (2 * h) - log_p
        torch.testing.assert_close(g[:, site, value], slope, atol=1e-2, rtol=2e-2)


def z_moved(model, x, site, step):
    """Return z where what is embedded of a site is moved by a step, [E]."""

    def move(layer, inputs, embedded):
        moved = embedded.clone()
        moved[:, site] += step
        return moved

    hook = model.lm.get_input_embeddings().register_forward_hook(move)
    z = -model._logits(x).log_softmax(-1).gather(2, x[:, 1:, None]).squeeze(2).mean(1)
    hook.remove()
    return z


@pytest.mark.parametrize("kind", LOOKS_AHEAD)
def test_predictions_that_depend_on_later_padding_are_refused(kind, tmp_path):
    """Both mask as many tokens as there is padding, wherever it stands."""
    with pytest.raises(UserError, match="its predictions depend on later tokens"):
        special_model(kind, tmp_path, LOOKS_AHEAD)


def test_branches_and_choices_of_whole_prefixes(tmp_path):
    """As where the cache of a model fails, or gives other rows."""
    model, _ = special_model("roberta", tmp_path)
    assert isinstance(model._prefixes, WholePrefixes)
    x = torch.tensor([[1, 5], [7, 1]])
    children = model.branch(model.begin(x[:, :1]))
    assert children.log_p.shape == (2 * V, V)
    whole = model.begin(torch.cartesian_prod(x[:, 0], torch.arange(V)))
    torch.testing.assert_close(children.log_p, whole.log_p)
    some = torch.tensor([5, 40, 5])
    torch.testing.assert_close(model.select(children, some).log_p, whole.log_p[some])
    assert torch.equal(model.begin(x[:, :0]).log_p, torch.full((2, V), 1 / V).log())


@pytest.mark.parametrize("error", [RuntimeError("shapes"), AssertionError(), KeyError("x")])
def test_what_a_models_own_code_raises_is_one_sentence(tmp_path, monkeypatch, error):
    forward = LlamaForCausalLM.forward

    def fails(self, input_ids=None, **given):
        if self.fails and torch.is_grad_enabled():
            raise error
        return forward(self, input_ids=input_ids, **given)

    monkeypatch.setattr(LlamaForCausalLM, "forward", fails)
    monkeypatch.setattr(LlamaForCausalLM, "fails", True, raising=False)
    model = build(save_decoder("llama", tmp_path))
    with pytest.raises(
        UserError, match=f"own code cannot compute the gradient .{type(error).__name__}"
    ):
        gradients.Differentiable(model, "a kernel")
    monkeypatch.setattr(torch, "is_grad_enabled", lambda: True)
    with pytest.raises(UserError, match=f"cannot evaluate .*({type(error).__name__}|shapes)"):
        build(tmp_path)


def test_inputs_of_two_tokens_without_a_prefix(tmp_path):
    """One position predicts the other token: no prediction has later tokens to depend on."""
    model = causal_lm.build(
        CausalLm(kind="causal-lm", path=str(save_decoder("gpt2", tmp_path)), length=2), "cpu"
    )
    x = inputs(model)
    loss = torch.stack([model.lm(input_ids=row[None], labels=row[None]).loss for row in x])
    torch.testing.assert_close(model.output(x), loss, atol=1e-5, rtol=0)
