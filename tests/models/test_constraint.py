"""Constrained spaces: exact counts, densities of runs, tokens that are bytes, bad input."""

import itertools
import random
import re
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from language_folders import V, save_decoder
from law_models import counts_of_letters, letters
from tokenizers import Tokenizer, decoders, models

from omniinput_hpc.cli import enumerate as enumerate_
from omniinput_hpc.cli import own_data
from omniinput_hpc.cli import run as launch
from omniinput_hpc.config import input_file
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.models import constraint
from omniinput_hpc.runfile.reader import open_run
from omniinput_zoo.census import command

INPUT = """
[run]
output = "{folder}/run.h5"
seed = 1
rounds = {rounds}
burn_in = 2
[model]
{model}
[space]
{space}
{law}
[sampler]
method = "{method}"
walkers = 16
steps = 2
exchanges = 20
[ladder]
betas = [0.0, 0.9]
{kernel}
[bins]
lower = -0.125
upper = 12.125
width = 0.25
[samples]
every = {every}
"""
DEFAULTS = {
    "space": 'pattern = "(a|b)+"', "law": "", "method": "parallel-tempering", "kernel": "",
    "every": 2, "rounds": 20,
    "model": 'kind = "python"\nfactory = "law_models:letters"\noptions = { n_sites = 8 }',
}  # fmt: skip


def text(folder, **tables):
    return INPUT.format(folder=folder, **(DEFAULTS | tables))


def of(folder, model, /, **tables):
    return constraint.of(input_file.parse(text(folder, **tables), ""), model)


def every_input(n_values, n_sites):
    return np.array(list(itertools.product(range(n_values), repeat=n_sites)))


def some_pattern(source, depth=0):
    kind = source.random()
    if depth > 3 or kind < 0.3:
        return source.choice(["a", "b", "ab", "c", "[ab]", "[^a]", "."])
    one = some_pattern(source, depth + 1)
    if kind < 0.5:
        return one + some_pattern(source, depth + 1)
    if kind < 0.7:
        return f"(?:{one}|{some_pattern(source, depth + 1)})"
    return f"(?:{one})" + source.choice(["*", "+", "?", "{2}", "{1,3}"])


def test_counts_of_random_patterns_are_those_of_brute_force():
    source, tokens, n_found = random.Random(4), ["a", "b", "c", "ab"], []
    x, texts = every_input(4, 4), [token.encode() for token in tokens]
    while len(n_found) < 30:
        pattern = some_pattern(source)
        next_qv, accepting_q = constraint.over_values(*constraint.byte_automaton(pattern), texts)
        found = constraint.Automaton(next_qv, accepting_q, None, 4)
        truth = [re.fullmatch(pattern, "".join(tokens[v] for v in row)) is not None for row in x]
        assert found.contains(x).tolist() == truth and found.n_inputs == sum(truth), pattern
        n_found += [sum(truth)] if sum(truth) else []
    assert len(set(n_found)) > 8


@pytest.mark.parametrize(
    ("anchored", "plain"),
    [("^a", "[^a]"), ("(^|.* )x", r"\^a"), (r"\Aa|b", r"\\A"), ("(?m)b|^a", "[a^]"),
     ("[^a]^b", "[]^]x"), (r"[\]]^", r"[\]^]"), ("[[^a]&&b]^", "[[^a]&&^]")],
)  # fmt: skip
def test_the_beginning_of_a_text_is_found_in_a_pattern(anchored, plain):
    """It would match nothing: a branch with it would be lost without a word."""
    assert constraint._has_beginning(anchored) and not constraint._has_beginning(plain)


def test_lists_and_a_pattern_hold_together(tmp_path):
    lists = [[0, 1], [0, 1, 2, 3], [1, 2], [0, 1, 2, 3], [0, 3]]
    space = f'allowed = {lists}\npattern = "[a-c]*d?"'
    found, x = of(tmp_path, letters(n_sites=5), space=space), every_input(4, 5)
    truth = [
        all(v in some for v, some in zip(row, lists, strict=True)) and 3 not in row[:-1]
        for row in x.tolist()
    ]
    assert found.contains(x).tolist() == truth and found.n_inputs == sum(truth)


def test_a_number_of_inputs_is_exact_however_long(tmp_path):
    found = of(tmp_path, letters(n_sites=8000), space='pattern = "[a-c]*"')
    assert found.n_inputs == 3**8000
    stored = found.attributes()
    assert len(stored["n_inputs"]) == 3817 and stored["log_inputs"] == pytest.approx(
        8000 * np.log(3), rel=1e-14
    )


WORDS = ["<end>", "<pad>", "Ã", "©", "Ã©", "a", "b", "Ġ", "Ġa", "ð", "Ł", "Ļ", "Ĥ"]
"""Names of bytes: é is C3 A9, as two tokens or one; the last four make an emoji."""


def byte_level(folder):
    save_decoder("gpt2", folder)
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(WORDS)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>", "<pad>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer, f'kind = "causal-lm"\npath = "{folder}"\nlength = 4'


@pytest.mark.parametrize(
    "pattern", ["(é|a)+", "[^b]*", r"(\w+ )*\w+", ".", "(\N{SLIGHTLY SMILING FACE}|é|a)+"]
)
def test_tokens_may_be_parts_of_a_character(pattern, tmp_path):
    tokenizer, model = byte_level(tmp_path)
    space = f"pattern = '{pattern}'"
    found = of(tmp_path, SimpleNamespace(n_values=V, n_sites=4), space=space, model=model)
    x = every_input(len(WORDS), 4)
    texts = tokenizer.decode_batch(x.tolist(), skip_special_tokens=False)
    truth = [
        re.fullmatch(pattern, text) is not None and "\ufffd" not in text and min(row) > 1
        for text, row in zip(texts, x.tolist(), strict=True)
    ]
    assert found.contains(x).tolist() == truth and found.n_inputs == sum(truth) > 0
    assert not found.contains(np.array([[5, 5, 5, V - 1]])).any()  # it stands for no token


def run(folder, **tables):
    file = folder / "input.toml"
    file.write_text(text(folder, **tables))
    return launch.main([str(file)])


def z_scores(density, exact):
    """Return the z-scores of the bins that a run saw; all its bins must exist."""
    log_g_b, error_b = density.log_g_b, density.log_g_error_b
    seen = np.flatnonzero(density.count_b)
    z = np.round((density.edges[seen] + 0.125) / 0.25) * 0.25
    truth = np.log([exact[one] for one in z])
    known = error_b[seen] > 0
    return (log_g_b[seen] - truth)[known] / error_b[seen][known]


@pytest.mark.parametrize("space", [
    'pattern = "([bcd]*a[bcd]*a)*[bcd]*"',
    "allowed = [[0], [0, 1], [0, 1, 2], [1, 2, 3], [0, 1], [1, 2], [0, 1, 2, 3], [1]]",
    'pattern = "((ab)+[cd]?)*"',
])  # fmt: skip
def test_densities_of_runs_are_exact(space, tmp_path):
    assert run(tmp_path, space=space) == 0
    automaton = of(tmp_path, letters(n_sites=8), space=space)
    exact = counts_of_letters(automaton)
    with open_run(tmp_path / "run.h5") as found:
        density = density_of_run(found.data)
        x = next(found.samples())[0].reshape(-1, 8)
    assert automaton.contains(x).all()
    assert density.measure == "count" and density.absolute
    assert density.log_measure == pytest.approx(np.log(sum(exact.values())))
    scores = z_scores(density, exact)
    assert len(scores) > 3 and np.abs(scores).max() < 4.5
    with h5py.File(tmp_path / "run.h5") as file:
        assert int(file.attrs["n_inputs"]) == automaton.n_inputs == sum(exact.values())
    assert enumerate_.main([str(tmp_path / "input.toml"), "--output", str(tmp_path / "e.csv")]) == 0
    all_of_it = np.loadtxt(tmp_path / "e.csv", delimiter=",", skiprows=1, ndmin=2)
    assert np.exp(all_of_it[:, 2]).sum() == pytest.approx(automaton.n_inputs)


def test_a_long_text_is_counted_by_dynamic_programming(tmp_path):
    model = DEFAULTS["model"].replace("8", "24")
    space = 'pattern = "([abc]+d){3}[abc]*"'
    assert run(tmp_path, space=space, model=model, rounds=12) == 0
    exact = counts_of_letters(of(tmp_path, letters(n_sites=24), space=space, model=model))
    with open_run(tmp_path / "run.h5") as found:
        scores = z_scores(density_of_run(found.data), exact)
    assert len(scores) > 12 and 0.5 < np.sqrt(np.mean(scores**2)) < 1.6


def test_a_resumed_run_keeps_its_space(tmp_path, capfd):
    assert run(tmp_path, rounds=2) == 0
    model = DEFAULTS["model"].replace("n_sites = 8", 'n_sites = 8, tokens = ["b", "c", "a", "d"]')
    file = (tmp_path / "input.toml").read_text().replace("rounds = 2", "rounds = 3")
    (tmp_path / "input.toml").write_text(file)
    assert launch.main([str(tmp_path / "input.toml")]) == 0
    for tables in ({"model": model}, {"space": 'pattern = "(a|c)+"'}):
        assert run(tmp_path, rounds=3, **tables) == 2
    assert "space.pattern is '(a|b)+' in the file" in capfd.readouterr().err


LAW = '[law]\nkind = "python"\nfactory = "law_models:chain"'
LANGUAGE = 'kind = "causal-lm"\npath = "{}"\nlength = 4'


@pytest.mark.parametrize(("tables", "said"), [
    ({"space": 'pattern = "e+"'}, "space.pattern leaves no input of 8 sites (the whole text"),
    ({"space": 'pattern = "^a+$|b"'}, "the whole text must match, so leave out ^"),
    ({"space": 'pattern = "a+"'}, "leaves only one input"),
    ({"space": 'pattern = "[a-e]+"'}, "space.pattern leaves out no input; leave it out"),
    ({"space": 'pattern = "a)|(b"'}, "cannot be read"),
    ({"space": 'pattern = "a(?=b)"'}, "such as look-around"),
    ({"space": "allowed = []"}, "has 0 lists of values, but inputs have 8 sites"),
    ({"space": f"allowed = {[[0, 1]] * 7}"}, "has 7 lists of values, but inputs have 8 sites"),
    ({"space": f"allowed = {[*[[0, 1]] * 7, []]}"}, "list 8 is empty"),
    ({"space": f"allowed = {[*[[0, 1]] * 7, [4]]}"}, "list 8: the value 4 is not from 0 to 3"),
    ({"space": f"allowed = {[[0, 1, 2, 3]] * 8}"}, "leaves out no input"),
    ({"space": 'allowed = [[0], ["a"]]'}, "space.allowed: expected a list of values for each site"),
    ({"space": 'allowed = "tokens"'}, 'space.allowed: expected "tokenizer", or a list'),
    ({"law": LAW}, "space.pattern is for inputs that all weigh the same; leave out [law]"),
    ({"method": "ancestral", "every": 1}, 'set it to "parallel-tempering"'),
    ({"kernel": '[kernel]\nname = "lm-conditional"'}, "does not keep to space.pattern"),
    ({"kernel": '[kernel]\nname = "metropolis"'}, "may not be connected by changes"),
    ({"model": 'kind = "python"\nfactory = "toy_models:lattice"\noptions = { n_values = 5 }'},
     "give the model an attribute tokens, a list of 5 texts"),
])  # fmt: skip
def test_a_constraint_that_cannot_be_used_is_one_sentence(tables, said, tmp_path, capfd):
    assert run(tmp_path, **tables) == 2
    assert not (tmp_path / "run.h5").exists()
    error = capfd.readouterr().err
    assert said in error and "Traceback" not in error


def test_a_tokenizer_of_another_kind_is_refused(tmp_path):
    _, model = byte_level(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(constraint.UserError, match="whose tokens stand for bytes"):
        of(tmp_path, SimpleNamespace(n_values=V, n_sites=4), model=model)


def test_ids_are_no_places_among_the_tokens_that_are_left(tmp_path):
    """Two special tokens come first: 4 and 5 would be the tokens 6 and 7."""
    model = byte_level(tmp_path)[1]
    shape, space = SimpleNamespace(n_values=11, n_sites=4), f"allowed = {[[4, 5]] * 4}"
    assert of(tmp_path, shape, model=model, space=space).n_inputs == 16
    with pytest.raises(constraint.UserError, match=r"space\.allowed: with model.tokens = \"no-sp"):
        of(tmp_path, shape, model=model + '\ntokens = "no-special"', space=space)


def test_what_is_for_whole_spaces_is_refused(tmp_path, capfd):
    file = tmp_path / "input.toml"
    file.write_text(text(tmp_path))
    assert command.main([str(file), "--below", "1"]) == 2
    assert "a census is for all inputs" in capfd.readouterr().err
    with pytest.raises(constraint.UserError, match="cannot be compared with test data"):
        own_data.check_space("mine", input_file.parse(text(tmp_path), ""))
