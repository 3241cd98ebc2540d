"""`next` and `text`: what transformers' own logits of whole sequences give, for every decoder."""

import pytest
import torch
from language_folders import DECODERS, LLAMA_LIKE, WORDS, V, save_decoder, save_tokenizer
from output_cases import built, inputs
from transformers import GraniteConfig, GraniteForCausalLM

from omniinput_hpc.models.protocol import offers_of

D = 5
AFTER = [6, 2]
KEYS = [{}, {"prefix": [3, 7, 2]}, {"tokens": "no-special"}]


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("llama", "olmo2")]


@pytest.fixture(params=["gpt2", *SLOW, "scaled"], scope="module")
def folder(request, tmp_path_factory):
    """Return a folder of each kind of decoder, one with a head that is not linear."""
    place = tmp_path_factory.mktemp(request.param)
    if request.param in DECODERS:
        return save_decoder(request.param, place)
    torch.manual_seed(4)
    model = GraniteForCausalLM(GraniteConfig(**LLAMA_LIKE, logits_scaling=0.1))
    model.save_pretrained(place)
    save_tokenizer(place)
    return place


@pytest.fixture(params=KEYS, ids=str, scope="module")
def keys(request, folder):
    return {"path": str(folder), "length": D, **request.param}


def log_p(model, x, after):
    """Return ln P of every token at every position of whole sequences, one after another."""
    rows = [
        torch.cat([model.base.before, model.base.token_ids[one], torch.tensor(after)]) for one in x
    ]
    with torch.no_grad():
        whole = [model.lm(input_ids=row[None].long()).logits[0].double() for row in rows]
    return torch.stack(whole).log_softmax(-1)  # [n, T, V]


NEXT = {
    "one": ({"targets": ["a"]}, lambda p: -p[:, 2].log()),
    "several": ({"targets": ["a", 4, "c"]}, lambda p: -p[:, [2, 4]].sum(1).log()),
    "repeated": ({"targets": ["a", 2]}, lambda p: -p[:, 2].log()),
    "likeliest": (
        {"targets": ["a", "d"], "aggregate": "max"},
        lambda p: -p[:, [2, 5]].amax(1).log(),
    ),
    "odds": (
        {"targets": ["a"], "against": ["b", "d"]},
        lambda p: p[:, [3, 5]].sum(1).log() - p[:, 2].log(),
    ),
    "odds of the likeliest": (
        {"targets": ["a", "b"], "against": [9, 7], "aggregate": "max"},
        lambda p: p[:, [9, 7]].amax(1).log() - p[:, [2, 3]].amax(1).log(),
    ),
    "odds against all others": (
        {"targets": ["a", "b"], "against": "others"},
        lambda p: (1 - p[:, [2, 3]].sum(1)).log() - p[:, [2, 3]].sum(1).log(),
    ),
    "likelier than all others": (
        {"targets": ["a"], "against": "others", "aggregate": "max"},
        lambda p: torch.cat([p[:, :2], p[:, 3:]], dim=1).amax(1).log() - p[:, 2].log(),
    ),
}  # fmt: skip


AFTERS = [(None, []), (AFTER, AFTER), ("ea", AFTER)]


def test_next_is_the_probability_of_the_next_token(keys):
    for (table, z_of), (given, after) in zip(NEXT.values(), AFTERS * 3, strict=False):
        model = built(keys, {"name": "next", **table, **({"after": given} if after else {})})
        x = inputs(model)
        expected = z_of(log_p(model, x, after)[:, -1].exp())
        torch.testing.assert_close(model.output(x).double(), expected, atol=2e-5, rtol=1e-5)
        assert model.output(x).dtype == torch.float32 and expected.std() > 0.02


TEXT = [4, 2, 9]


@pytest.mark.parametrize("text", [TEXT, "cah", "c"], ids=str)
def test_text_is_its_mean_loss_after_the_input(keys, text):
    model = built(keys, {"name": "text", "text": text})
    x, ids = inputs(model), TEXT[: len(text)]
    p = log_p(model, x, ids)
    at = torch.arange(p.shape[1] - len(ids), p.shape[1]) - 1
    expected = -p[:, at, torch.tensor(ids)].mean(1)
    torch.testing.assert_close(model.output(x).double(), expected, atol=2e-5, rtol=1e-5)
    assert WORDS.index("c") == 4 and expected.std() > 0.02


OUTPUTS = [
    {"name": "next", "targets": ["a", "b"], "after": AFTER, "against": ["c"]},
    {"name": "text", "text": TEXT},
]


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: output["name"])
def test_the_gradient_is_the_derivative_by_one_hot(keys, output):
    """By a difference: one embedding is moved a little towards another."""
    model = built(keys, output)
    x = inputs(model, 3)
    assert model.without_gradient == ""
    z, g = model.output_and_gradient(x)
    torch.testing.assert_close(z, model.output(x), atol=3e-5, rtol=1e-5)
    assert g.shape == (3, D, model.n_values)
    layer, step = model.lm.get_input_embeddings(), 1e-3
    table = layer.weight[model.base.token_ids].detach()
    for site in (0, D - 1):  # the last site is read, too
        value = (x[:, site] + 1) % model.n_values
        moved, at = [], len(model.base.before) + site
        for sign in (1, -1):
            shift = sign * step * (table[value] - table[x[:, site]])

            def nudge(layer, given, out, shift=shift, at=at):
                out = out.clone()
                out[:, at] += shift
                return out

            hook = layer.register_forward_hook(nudge)
            with torch.no_grad():
                logits = model.lm(input_ids=model._tokens(x)).logits[:, -model.n_read :]
                moved.append(model._z_of(logits.double()))
            hook.remove()
        slope = (moved[0] - moved[1]) / (2 * step)
        w = torch.arange(3)
        found = (g[w, site, value] - g[w, site, x[:, site]]).double()
        torch.testing.assert_close(found, slope, atol=5e-3, rtol=3e-2)
        assert slope.abs().max() > 1e-3


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: output["name"])
def test_proposals_of_the_cache_agree_with_whole_inputs(keys, output):
    model = built(keys, output)
    cache = offers_of(model).kv_cache(4)
    x = inputs(model, 4)
    torch.testing.assert_close(cache.evaluate(x), model.output(x), atol=1e-5, rtol=1e-5)
    random = torch.Generator().manual_seed(3)
    for t in (0, 2, D - 1, 1, D - 1):
        new = x.clone()
        new[:, t:] = inputs(model, 4, seed=t + 7)[:, t:]
        z = cache.propose(new, t)
        torch.testing.assert_close(z, model.output(new), atol=3e-5, rtol=1e-5)
        accepted = torch.rand(4, generator=random) < 0.5
        cache.accept(accepted)
        x = torch.where(accepted[:, None], new, x)
    torch.testing.assert_close(cache.evaluate(x), model.output(x), atol=1e-5, rtol=1e-5)


def test_whole_inputs_without_a_cache_agree(keys):
    for output in OUTPUTS:
        model = built(keys, output)
        x = inputs(model)
        z = model.output(x)
        model.__dict__["_decoder"] = None
        torch.testing.assert_close(model.output(x), z, atol=2e-5, rtol=1e-5)


def test_logits_are_computed_only_where_they_are_read(keys):
    """No tensor with logits of all positions is made; one walker's at a time if memory is short."""
    model = built(keys, OUTPUTS[0])
    shapes = []
    hook = model.lm.get_output_embeddings().register_forward_hook(
        lambda layer, given, out: shapes.append(out.shape.numel())
    )
    x = inputs(model, 8)
    for evaluate in (model.output, model.output_and_gradient):
        evaluate(x)  # also tries caches out
        shapes.clear()
        evaluate(x)
        assert max(shapes, default=0) <= 8 * V
    hook.remove()


def test_what_is_not_the_mean_of_rows_is_not_offered(keys):
    offers = offers_of(built(keys, OUTPUTS[0]))
    assert (offers.conditional_logits, offers.prefixes, offers.draws) == (None, None, None)
    assert offers.factors is not None and offers.render is not None
