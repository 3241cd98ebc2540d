"""Texts that end: which there are, their outputs, rows and caches; runs against enumeration."""

import itertools

import h5py
import numpy as np
import pytest
import torch
from language_folders import WORDS, save_decoder
from law_models import NormalizedRowsOnKvCache
from toy_models import CoupledModel, NormalizedModel

from omniinput_hpc import models
from omniinput_hpc.cli import enumerate as enumerate_
from omniinput_hpc.cli import run as launch
from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.kernels.parts.law import Law, UniformPrompt
from omniinput_hpc.models import constraint
from omniinput_hpc.models.language import causal_lm
from omniinput_hpc.models.outputs.ended import Ended, of_ids
from omniinput_hpc.results.tables import read_exact
from omniinput_hpc.runfile.reader import open_run

END = 1


def texts_of(n_values, n_sites, first, end=END):
    """Return all texts with their padding, int64 [N, D], and how many predicted tokens each has."""
    found = []
    others = [v for v in range(n_values) if v != end]
    for n in range(first, n_sites + 1):
        for text in itertools.product(others, repeat=n):
            own = min(n + 1, n_sites) - first
            found.append(([*text, *[end] * (n_sites - n)], own))
    x, own = zip(*found, strict=True)
    return torch.tensor(x), torch.tensor(own)


def own_loss(model, x, own):
    """Return the mean loss of each text, by the rows of its own predicted sites alone."""
    rows, first = model.conditional_logits(x)[1], model.predicted_from
    found = [
        -sum(rows[i, t, x[i, t]] for t in range(first, first + n)) / n
        for i, n in enumerate(own.tolist())
    ]
    return torch.stack(found)


@pytest.mark.parametrize(("n_values", "n_sites", "first"), [(3, 5, 0), (4, 4, 1), (2, 6, 1)])
def test_every_text_is_there_once(n_values, n_sites, first):
    found = constraint.of_texts(n_values, n_sites, END, first)
    every = np.array(list(itertools.product(range(n_values), repeat=n_sites)))
    texts, _ = texts_of(n_values, n_sites, first)
    inside = every[found.contains(every)]
    assert sorted(inside.tolist()) == sorted(texts.tolist())
    others, m = n_values - 1, n_sites - first
    lengths = sum(others**k for k in range(m)) + others**m
    assert found.n_inputs == len(texts) == others**first * lengths


@pytest.mark.parametrize("first", [0, 1])
def test_z_is_the_mean_loss_of_the_own_tokens(first):
    base = NormalizedModel(predicted_from=first)
    model = Ended(base, END, False)
    x, own = texts_of(3, 3, first)
    expected = own_loss(base, x, own)
    torch.testing.assert_close(model.output(x), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(model.conditional_logits(x)[0], expected, rtol=1e-6, atol=1e-6)
    assert (model.n_own(x) == own).all()
    assert not torch.allclose(base.output(x), expected, atol=1e-3)  # padding would count
    z, g = model.output_and_gradient(x)
    torch.testing.assert_close(z, expected, rtol=1e-6, atol=1e-6)
    whole = own == 3 - first
    torch.testing.assert_close(g[whole], base.output_and_gradient(x)[1][whole])


@pytest.mark.parametrize("temperature", [1.0, 1.7])
@pytest.mark.parametrize("prompt", [None, 2])
def test_probabilities_of_texts_sum_to_one(prompt, temperature):
    model = Ended(NormalizedRowsOnKvCache(), END, False)
    given = None if prompt is None else UniformPrompt(3, prompt, END)
    law = Law(model, temperature, given, gives_z=True)
    assert not law.gives_z
    x = model_inputs(3, 3)
    log_q = law.log_q(x, model.output(x))
    inside = constraint.of_texts(3, 3, END, prompt or 1).contains(x.numpy())
    assert ((log_q > -torch.inf).numpy() == inside).all()
    assert float(log_q.exp().sum()) == pytest.approx(1, abs=1e-6)
    u = torch.rand(20_000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    u[0], u[1] = 0.0, 1 - 2.0**-53
    drawn = law.draw(u)
    counts = (drawn[:, None] == x).all(dim=2).sum(dim=0).numpy()
    expected = 20_000 * log_q.exp().numpy()
    assert (counts[~inside] == 0).all()
    score = ((counts - expected)[inside] ** 2 / expected[inside]).sum()
    assert score < inside.sum() + 4 * np.sqrt(2 * inside.sum())


def model_inputs(n_values, n_sites):
    return torch.tensor(list(itertools.product(range(n_values), repeat=n_sites)))


@pytest.mark.parametrize("prefix", [None, [5, 3]])
def test_caches_of_a_decoder_have_the_same_rows(prefix, tmp_path):
    folder = save_decoder("gpt2", tmp_path)
    more = "" if prefix is None else f"prefix = {prefix}\n"
    config = input_file.parse(
        INPUT.format(folder=tmp_path, rounds=1, law="", more="",
                     model=f'kind = "causal-lm"\npath = "{folder}"\nlength = 6\n{more}', end=0), "",
    )  # fmt: skip
    model = models.build(config, "cpu")
    assert isinstance(model, Ended) and model.predicted_from == (prefix is None)
    random = torch.Generator().manual_seed(3)
    x = torch.randint(1, 20, (5, 6), generator=random)
    for row, n in enumerate([2, 4, 6, 1, 5]):
        x[row, n:] = 0
    z, rows = model.conditional_logits(x)
    torch.testing.assert_close(model.output(x), z, rtol=1e-5, atol=1e-5)
    whole = Ended(causal_lm.build(config.model, "cpu"), 0, True)
    cache, first = model.kv_cache(5), model.predicted_from
    torch.testing.assert_close(cache.evaluate(x), z, rtol=1e-5, atol=1e-5)
    current = torch.cat(list(cache.current_rows(first, 6)))
    torch.testing.assert_close(current.transpose(0, 1), rows[:, first:], rtol=1e-4, atol=1e-4)
    x_new = x.clone()
    x_new[:, 3] = torch.tensor([0, 7, 0, 0, 9])
    z_new, rows_new = whole.conditional_logits(x_new)
    torch.testing.assert_close(cache.propose(x_new, 3), z_new, rtol=1e-5, atol=1e-5)
    cache.begin(3)
    torch.testing.assert_close(cache.row(), rows_new[:, 3], rtol=1e-4, atol=1e-4)
    later = torch.cat(list(cache.rows_after(x_new[:, 3:-1])))
    torch.testing.assert_close(later.transpose(0, 1), rows_new[:, 4:], rtol=1e-4, atol=1e-4)
    cache.accept(torch.tensor([True, True, False, False, True]))
    assert cache is model.kv_cache(5) and model.kv_cache(4) is not cache
    assert model.render(x)[0] == "".join(WORDS[v] for v in [*(prefix or []), *x[0, :2]])


INPUT = """
[run]
output = "{folder}/run.h5"
seed = 1
rounds = {rounds}
burn_in = 3
[model]
{model}
[space]
end = {end}
{law}
[sampler]
walkers = 32
steps = 2
exchanges = 10
[ladder]
betas = [-4.0, 0.0, 4.0]
[bins]
lower = 0.0
upper = 6.0
width = 0.25
[samples]
every = 2
{more}
"""
MARKOV = 'kind = "python"\nfactory = "markov_model:markov"'
PROMPT = "[[0, 1], [2, 2], [4, 0], [0, 2]]"


def run(folder, **tables):
    file = folder / "input.toml"
    given = {"rounds": 16, "law": "", "more": "", "model": MARKOV, "end": END} | tables
    file.write_text(INPUT.format(folder=folder, **given))
    return launch.main([str(file)])


TEMPERED = """[law]
kind = "model"
temperature = 2.0
prompt = { kind = "uniform", sites = 2 }"""
OWN = '[law]\nkind = "model"'
METROPOLIS = '[kernel]\nname = "metropolis"'


@pytest.mark.slow
@pytest.mark.parametrize(("law", "more"), [("", ""), (OWN, METROPOLIS), (TEMPERED, "")])
def test_densities_of_runs_are_exact(law, more, tmp_path):
    """Against all texts, and their probabilities by the rows themselves."""
    assert run(tmp_path, law=law, more=more) == 0
    base = models.build(input_file.parse((tmp_path / "input.toml").read_text(), ""), "cpu")
    chain = base._models[0]
    x, own = texts_of(5, 6, 1)
    z = own_loss(chain, x, own).numpy()
    weight = weights(chain, x, own, law)
    with open_run(tmp_path / "run.h5") as found:
        density = density_of_run(found.data)
        recorded = next(found.samples())[0].reshape(-1, 6)
    assert constraint.of_texts(5, 6, END, 1).contains(recorded).all()
    assert density.measure == ("probability" if law else "count") and density.absolute
    exact = np.histogram(z, density.edges, weights=weight)[0]
    known = (exact > 0) & (density.log_g_error_b > 0) & (density.count_b > 50)
    score = (density.log_g_b[known] - np.log(exact[known])) / density.log_g_error_b[known]
    assert known.sum() > 8 and np.sqrt(np.mean(score**2)) < 1.7 and np.abs(score).max() < 4.5
    assert enumerate_.main([str(tmp_path / "input.toml"), "--output", str(tmp_path / "e.csv")]) == 0
    all_of_it = read_exact(tmp_path / "e.csv", density.edges)
    some = exact > 0
    np.testing.assert_allclose(all_of_it.log_g_b[some], np.log(exact[some]), atol=1e-5)
    with h5py.File(tmp_path / "run.h5") as file:
        assert int(file.attrs["n_inputs"]) == len(x)


def weights(chain, x, own, law):
    """Return the weight of each text: 1, or its probability by the chain's own rows."""
    if not law:
        return np.ones(len(x))
    b, n_prompt = (0.5, 2) if "temperature" in law else (1.0, 1)
    rows = torch.cat([torch.zeros(len(x), 1, 5), chain.table[x[:, :-1]]], dim=1) * b
    log_p = rows.double().log_softmax(-1).gather(2, x[:, :, None])[:, :, 0].numpy()
    site = np.arange(6)
    counted = (site >= n_prompt) & (site < 1 + own.numpy()[:, None])
    log_q = (log_p * counted).sum(axis=1) - n_prompt * np.log(4)
    return np.exp(log_q) * (x[:, :n_prompt] != END).all(dim=1).numpy()


@pytest.mark.parametrize(("tables", "said"), [
    ({"end": '"eos"'}, "give the value that ends"),
    ({"end": 5}, "space.end = 5 is not among the values"),
    ({"end": -1}, 'space.end: expected "eos" or a token id'),
    ({"end": f'{END}\npattern = "a*"'}, "does not go with space.pattern"),
    ({"end": f"{END}\nallowed = [[0]]"}, "does not go with space.pattern or lists"),
    ({"model": 'kind = "python"\nfactory = "toy_models:lattice"'},
     "needs a model with conditional_logits"),
    ({"more": '[kernel]\nname = "metropolis"\nsites = 2'}, "connected by changes of one site"),
    ({"more": '[kernel]\nname = "lm-conditional"'}, "does not keep to space.end"),
    ({"law": '[law]\nkind = "model"\nprompt = { kind = "python", factory = "a:b", sites = 2 }'},
     "may end before the prompt does"),
    ({"law": '[law]\nkind = "python"\nfactory = "small_models:make"\noptions = '
      '{ kind = "chain", sites = 6, values = 5 }'}, "its texts may end at site 0"),
    ({"law": '[law]\nkind = "model"\nprompt = { kind = "data", '
      'file = "{folder}/p.json", sites = 2 }'},
     "row 1 with the token of space.end"),
])  # fmt: skip
def test_what_is_not_defined_is_one_sentence(tables, said, tmp_path, capfd):
    (tmp_path / "p.json").write_text(PROMPT)
    law = tables.get("law", "").replace("{folder}", str(tmp_path))
    assert run(tmp_path, **{**tables, "law": law}) == 2
    assert not (tmp_path / "run.h5").exists()
    error = capfd.readouterr().err
    assert said in error and "Traceback" not in error


@pytest.mark.parametrize(("given", "said"), [
    ('[output]\nname = "text"\ntext = "a"', "reads what follows an input"),
    ('[output]\nname = "next"\ntargets = ["a"]', "reads what follows an input"),
])  # fmt: skip
def test_outputs_after_the_input_are_refused(given, said, tmp_path):
    model = 'kind = "causal-lm"\npath = "a"\nlength = 4'
    text = INPUT.format(folder=tmp_path, rounds=1, law=given, more="", model=model, end='"eos"')
    with pytest.raises(UserError, match=said):
        input_file.parse(text, "")


@pytest.mark.parametrize("tokens", ["all", "no-special"])
def test_the_end_of_text_token_of_a_folder(tokens, tmp_path):
    folder = save_decoder("gpt2", tmp_path)
    model = f'kind = "causal-lm"\npath = "{folder}"\nlength = 4\ntokens = "{tokens}"'
    text = INPUT.format(folder=tmp_path, rounds=1, law="", more="", model=model, end='"eos"')
    config = input_file.parse(text, "")
    with pytest.raises(UserError, match="has no eos_token"):
        constraint.end_id(config)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    if tokens == "all":
        assert constraint.end_id(config) == 0
        shown = models.table.display(config)
        x = np.array([[2, 3, 0, 0], [2, 3, 4, 5], [0, 0, 0, 0]])
        assert list(shown.show(x)) == ["ab", "abcd", ""]
        assert [len(row) for row in shown.tokens(x)] == [3, 4, 1]
        return
    with pytest.raises(UserError, match=r"'<end>' .* is not among the model's"):
        constraint.end_id(config)


def test_a_model_without_rows_is_refused():
    with pytest.raises(UserError, match="needs a model with conditional_logits"):
        of_ids(CoupledModel(), END, False)
