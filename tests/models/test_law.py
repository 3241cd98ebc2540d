"""Tables [law] that cannot be used: one sentence that names the key, and nothing written."""

import json

import markov_model
import numpy as np
import pytest
import torch
from language_folders import save_decoder
from run_tools import ROOT

from omniinput_hpc import models
from omniinput_hpc.cli import run as launch
from omniinput_hpc.config import input_file
from omniinput_hpc.config.stored import parse as stored
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import law as laws

BASE = """
[run]
output = "{folder}/run.h5"
seed = 1
rounds = 2
[model]
{model}
{law}
[sampler]
method = "{method}"
walkers = 4
steps = 2
exchanges = 2
[ladder]
betas = [0.0, 1.0]
{kernel}
[bins]
lower = 0.0
upper = 12.0
width = 0.1
[samples]
every = 1
"""
MARKOV = 'kind = "python"\nfactory = "markov_model:markov"'
OWN = '[law]\nkind = "model"'


def text(folder, law=OWN, model=MARKOV, method="parallel-tempering", kernel=""):
    return BASE.format(folder=folder, law=law, model=model, method=method, kernel=kernel)


def refused(folder, capfd, **tables):
    """Return what a run says that ends with exit code 2 and writes nothing."""
    file = folder / "input.toml"
    file.write_text(text(folder, **tables))
    assert launch.main([str(file)]) == 2
    assert not (folder / "run.h5").exists()
    lines = capfd.readouterr().err.splitlines()
    assert not any("Traceback" in line for line in lines)
    return "\n".join(lines)


@pytest.mark.parametrize(("tables", "said"), [
    ({"law": '[law]\nkind = "python"\nfactory = "toy_models:lattice"\noptions = { n_values = 5 }'},
     "which this one lacks; give law.kind a model that has them"),
    ({"law": '[law]\nkind = "python"\nfactory = "law_models:chain"'},
     "law: its model has 40 sites of 20 values, but 6 sites of 5 values"),
    ({"law": '[law]\nkind = "python"\nfactory = "markov_model:weights"'}, "sums to"),
    ({"law": '[law]\nkind = "python"\nfactory = "law_models:leaky"'}, "sum to less than 1"),
    ({"law": '[law]\nkind = "python"\nfactory = "law_models:sorting"'},
     "law: output(x) must not write into x"),
    ({"law": f'{OWN}\ntemperature = 0'}, "law.temperature: expected a number above 0"),
    ({"law": '[law]\nkind = "modle"'}, 'law.kind: expected one of'),
    ({"method": "ancestral"}, 'sampler.method = "ancestral" draws from the model itself'),
    ({"kernel": '[kernel]\nname = "lm-conditional"'}, 'choose "from-law"'),
    ({"kernel": '[kernel]\nname = "from-law"', "law": ""}, "add a table [law]"),
    ({"law": f'{OWN}\nprompt = {{ kind = "uniform", sites = 7 }}'},
     "law.prompt.sites = 7 is more than the model's 6 sites"),
    ({"law": f'{OWN}\nprompt = {{ kind = "data", file = "/nowhere.txt", sites = 2 }}'}, "nowhere"),
])  # fmt: skip
def test_a_law_that_cannot_be_used_is_one_sentence(tables, said, tmp_path, capfd):
    assert said in refused(tmp_path, capfd, **tables)


@pytest.mark.parametrize(("rows", "said"), [
    ([[0, 1], [2], [0, 1, 2]],
     "rows 2, 3 of other lengths than law.prompt.sites = 2 (1, 3 tokens)"),
    ([[0, 1], [2, 5]], "row 2 with values that the model does not have"),
    ([[0, 1], [2, 10**20]], "row 2 with values that the model does not have"),
    ([], "holds no prompts"),
    ([[0, 1.5]], "expected a list of texts, or of lists of values"),
    (["a"], "texts need a model with a tokenizer"),
])  # fmt: skip
def test_prompts_that_do_not_fit_are_named(rows, said, tmp_path, capfd):
    (tmp_path / "p.json").write_text(json.dumps(rows))
    law = f'{OWN}\nprompt = {{ kind = "data", file = "{tmp_path}/p.json", sites = 2 }}'
    assert said in refused(tmp_path, capfd, law=law)


def test_a_file_of_prompts_may_move_but_not_change(tmp_path, capfd):
    law = f'{OWN}\nprompt = {{ kind = "data", file = "{tmp_path}/NAME.json", sites = 2 }}'
    for name, rows in (("a", [[0, 1], [2, 1]]), ("b", [[0, 1], [2, 1]]), ("c", [[0, 1]])):
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))

    def begun(name):
        file = tmp_path / "input.toml"
        file.write_text(text(tmp_path, law=law.replace("NAME", name)))
        return launch.main([str(file)])

    assert begun("a") == begun("b") == 0
    capfd.readouterr()
    assert begun("c") == 2 and "files or options have changed" in capfd.readouterr().err


def resumed(folder, capfd, rounds, **tables):
    """Begin a run, or resume it for more rounds; return the exit code and what is said."""
    file = folder / "input.toml"
    file.write_text(text(folder, **tables))
    code = launch.main([str(file), "--set", f"run.rounds={rounds}"])
    return code, capfd.readouterr().err


def test_a_law_with_other_numbers_is_not_resumed(tmp_path, capfd):
    """Its factory reads a file, which no fingerprint covers."""
    log_p = np.log(np.random.default_rng(1).dirichlet(np.ones(5), size=6)).astype(np.float32)
    law = '[law]\nkind = "python"\nfactory = "law_models:independent"\n'
    law += f'options = {{ file = "{tmp_path}/law.npy" }}'
    for rounds, last, code in ((2, log_p[5], 0), (3, log_p[5] + 1e-4, 0), (4, log_p[4], 2)):
        np.save(tmp_path / "law.npy", np.vstack([log_p[:5], last]))
        found, said = resumed(tmp_path, capfd, rounds, law=law)
        assert (found, "holds a run under another law" in said) == (code, code == 2), said


def test_prompts_with_other_tokens_are_not_resumed(tmp_path, capfd):
    save_decoder("gpt2", tmp_path / "one")
    (tmp_path / "prompts.txt").write_text("ab\nba\nac\n")
    model = f'kind = "causal-lm"\npath = "{tmp_path}/one"\nlength = 4'
    law = f'{OWN}\nprompt = {{ kind = "data", file = "{tmp_path}/prompts.txt", sites = 2 }}'
    assert resumed(tmp_path, capfd, 2, law=law, model=model)[0] == 0
    assert resumed(tmp_path, capfd, 3, law=law, model=model)[0] == 0
    tokens = json.loads((tmp_path / "one" / "tokenizer.json").read_text())
    vocabulary = tokens["model"]["vocab"]
    vocabulary["a"], vocabulary["d"] = vocabulary["d"], vocabulary["a"]
    (tmp_path / "one" / "tokenizer.json").write_text(json.dumps(tokens))
    code, said = resumed(tmp_path, capfd, 4, law=law, model=model)
    assert code == 2 and "the tokens of its prompts differ" in said, said


def test_observables_with_other_numbers_are_told_at_a_resume(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "import pathlib\n\n\ndef y(x):\n    return x[:, 0] * float({}.read_text())\n"
    (tmp_path / "of_file.py").write_text(code.format("pathlib.Path('factor')"))
    law = '[[observables]]\nname = "mine"\nfunction = "of_file:y"'
    for rounds, factor, told in ((2, "1.5", False), (3, "1.5", False), (4, "1.6", True)):
        (tmp_path / "factor").write_text(factor)
        found, said = resumed(tmp_path, capfd, rounds, law=law)
        assert (found, "[[observables]] give other numbers" in said) == (0, told), said


def test_a_law_of_other_tokens_is_refused(tmp_path, capfd):
    for name in ("one", "two"):
        save_decoder("gpt2", tmp_path / name)
    tokens = json.loads((tmp_path / "two" / "tokenizer.json").read_text())
    vocabulary = tokens["model"]["vocab"]
    first, second = list(vocabulary)[:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (tmp_path / "two" / "tokenizer.json").write_text(json.dumps(tokens))
    model = f'kind = "causal-lm"\npath = "{tmp_path}/one"\nlength = 4'
    law = f'[law]\nkind = "causal-lm"\npath = "{tmp_path}/two"'
    assert "stand for other tokens" in refused(tmp_path, capfd, law=law, model=model)


def test_without_a_law_the_kernel_is_as_before_and_with_one_a_mixture(tmp_path):
    read = input_file.parse(text(tmp_path, law=""), "")
    assert read.kernel.name == "metropolis" and read.measure == "count" and read.law is None
    assert "law" not in read.model_dump(exclude_none=True)
    read = input_file.parse(text(tmp_path), "")
    assert read.kernel.names == ("from-law", "metropolis") and read.measure == "probability"


def test_a_stored_law_of_another_version_is_still_a_law(tmp_path):
    later = stored(text(tmp_path, law='[law]\nkind = "later"\nkey = 1'))
    assert later.measure == "probability" and later.law.kind == "later"


def test_prompts_of_texts_are_these_texts_without_special_tokens(tmp_path, monkeypatch):
    """The special token of the English model is the first of its tokens."""
    monkeypatch.chdir(ROOT)
    model = "kind = 'causal-lm'\npath = 'inputs/models/english'\nlength = 4\ntokens = 'no-special'"
    said = " the name"
    (tmp_path / "prompts.txt").write_text(said)
    prompt = f"{{ kind = 'data', file = '{tmp_path}/prompts.txt', sites = 2 }}"
    law = f"[law]\nkind = 'model'\nprompt = {prompt}"
    (tmp_path / "input.toml").write_text(text(tmp_path, law=law, model=model))
    config = input_file.load(tmp_path / "input.toml", [])
    built = models.build(config, "cpu")
    rows = laws.build(config, "cpu", built).prompt
    values = np.concatenate([rows, np.zeros((1, 2), dtype=np.int64)], axis=1)
    assert models.display(config).show(values)[0].startswith(said)
    (tmp_path / "prompts.txt").rename(tmp_path / "prompts.json").write_text("[[5, 6]]")
    law = law.replace("prompts.txt", "prompts.json")
    (tmp_path / "input.toml").write_text(text(tmp_path, law=law, model=model))
    config = input_file.load(tmp_path / "input.toml", [])
    with pytest.raises(UserError, match=r"numbered without the special ones, .*; give texts"):
        laws.build(config, "cpu", built)


def test_a_users_own_attribute_base_is_not_the_model(tmp_path, monkeypatch):
    """`base` is the program's own name for the model below an output."""
    made = markov_model.markov

    def with_base(**options):
        model = made(**options)
        model.base = torch.nn.Linear(2, 2)
        return model

    monkeypatch.setattr(markov_model, "markov", with_base)
    config = input_file.parse(text(tmp_path), "")
    model = models.build(config, "cpu")
    assert laws.build(config, "cpu", model).model is model


def test_rows_of_a_prompt_must_be_log_probabilities(tmp_path, capfd):
    prompt = "{ kind = 'python', factory = 'markov_model:weights', sites = 6 }"
    law = f"[law]\nkind = 'model'\nprompt = {prompt}"
    assert "law.prompt: " in refused(tmp_path, capfd, law=law)


def test_an_output_that_is_not_the_loss_of_its_rows_is_refused(tmp_path, capfd, monkeypatch):
    markov = markov_model.markov

    def summed(device="cpu", **options):
        found = markov(device, **options)
        found.output = lambda x: 5.0 * type(found).output(found, x)
        return found

    monkeypatch.setattr(markov_model, "summed", summed, raising=False)
    law = "[law]\nkind = 'python'\nfactory = 'markov_model:summed'"
    assert "law: the output of its model is not the mean" in refused(tmp_path, capfd, law=law)


def test_prompts_of_a_fasta_file_are_its_sequences(tmp_path):
    (tmp_path / "a.fa").write_text(">one\nMK\n>two\nvi\n")
    assert laws._read(tmp_path / "a.fa") == ["MK", "VI"]


def test_prompts_of_a_text_file_end_only_at_line_feeds(tmp_path):
    lines = ["a\u2028b", "c\x85d\x0ce"]
    (tmp_path / "a.txt").write_bytes("\r\n".join([*lines, ""]).encode())
    assert laws._read(tmp_path / "a.txt") == lines


def test_a_law_of_a_decoder_names_what_its_model_lacks(tmp_path, capfd):
    save_decoder("gpt2", tmp_path / "one")
    decoder = f'kind = "causal-lm"\npath = "{tmp_path}/one"'
    law = f"[law]\n{decoder}"
    lists = 'kind = "masked-lm"\npath = "nowhere"\nlength = 4\ntokens = ["a", "b"]'
    config = input_file.parse(text(tmp_path, law=law, model=lists), "")
    with pytest.raises(UserError, match=r"^law: kind = .* takes no list of model\.tokens"):
        laws.preflight(config, {"n_sites": 4, "bytes": 1})
    single = 'kind = "python"\nfactory = "a:b"'
    config = input_file.parse(text(tmp_path, law=law, model=single), "")
    with pytest.raises(UserError, match=r"^law: kind = .* needs 2 sites or more, not 1"):
        laws.preflight(config, {"n_sites": 1, "bytes": 1})
    prompt = f"{OWN}\nprompt = {{ {decoder.replace(chr(10), ', ')}, sites = 1 }}"
    config = input_file.parse(text(tmp_path, law=prompt, model=single), "")
    with pytest.raises(UserError, match=r"^law\.prompt: kind = .* needs 2 sites or more, not 1"):
        laws.preflight(config, {"n_sites": 4, "bytes": 1})
