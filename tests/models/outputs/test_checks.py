"""What an output needs is checked before a run: exit 2, one sentence, nothing written."""

import pytest
import tomli_w
from language_folders import save_classifier, save_decoder
from output_cases import TABLES, built, config_of
from run_tools import ROOT, run

from omniinput_hpc import models
from omniinput_hpc.cli import run as launch
from omniinput_hpc.errors import UserError

LENGTH = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_decoder("gpt2", tmp_path_factory.mktemp("gpt2"))


def refused(folder, table, **keys):
    """Return the sentence with which an output is refused."""
    with pytest.raises(UserError) as error:
        built({"path": str(folder), "length": LENGTH, **keys}, table)
    return str(error.value)


def next_of(targets, **keys):
    return {"name": "next", "targets": targets, **keys}


BAD = {
    "several tokens": (next_of(["a", "bc"]), "output.targets: 'bc' is 2 tokens of .* ('b', 'c')"),
    "no such id": (next_of([29]), "output.targets: the token 29 is not one of the model's 29"),
    "against, several": (next_of([2], against=["ab"]), "output.against: 'ab' is 2 tokens of"),
    "both": (next_of(["a", "b"], against=[3]), "output.against: the token 'b' (3) is among"),
    "after": (next_of([2], after=[40]), "output.after: the token 40 is not one of"),
    "text": ({"name": "text", "text": [2, 99]}, "output.text: the token 99 is not one of"),
    "too long": (
        next_of([2], after=[3] * 12),
        'output.name = "next": inputs with the tokens before and after them have 17 tokens, '
        "beyond the 16 positions of",
    ),
    "a long text": ({"name": "text", "text": "a" * 13}, "have 17 tokens, beyond the 16 positions"),
}


@pytest.mark.parametrize("case", BAD)
def test_tokens_that_cannot_be_read_are_named(folder, case):
    table, words = BAD[case]
    said = refused(folder, table)
    assert all(part in said for part in words.split(".*")) and "\n" not in said


def test_the_longest_that_fits_is_taken(folder):
    keys = {"path": str(folder), "length": LENGTH}
    assert built(keys, next_of([2], after=[3] * 11)).n_sites == LENGTH
    assert built(keys, {"name": "text", "text": "a" * 12}).n_sites == LENGTH
    table = {"name": "text", "text": "a" * 12}
    assert "have 17 tokens" in refused(folder, table, prefix=[3])


def test_texts_need_a_tokenizer_and_ids_do_not(tmp_path):
    bare = save_decoder("gpt2", tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    for table in (next_of(["a"]), next_of([2], after="a"), {"name": "text", "text": "a"}):
        assert "as text needs a tokenizer in" in refused(bare, table)
    assert built({"path": str(bare), "length": 4}, next_of([2], after=[3])).n_sites == 4


def test_fingerprints_tell_outputs_apart(folder, tmp_path):
    judge = save_classifier(tmp_path / "judge")
    path = str(judge)
    tables = [
        None, next_of(["a"]), next_of(["b"]), next_of(["a"], after="b"),
        next_of(["a"], against=[3]), next_of(["a", "b"], aggregate="max"),
        {"name": "text", "text": "a"}, {"name": "classifier", "path": path, "class": 0},
        {"name": "classifier", "path": path, "class": 1},
        {"name": "python", "function": "toy_models:lattice"},
        {"name": "python", "function": "toy_models:table"},
    ]  # fmt: skip
    configs = [config_of({"path": str(folder), "length": LENGTH}, table) for table in tables]
    found = [models.preflight(config)["fingerprint"] for config in configs]
    assert len(set(found)) == len(tables)
    for config, fingerprint in zip(configs, found, strict=True):
        about = models.preflight(config, hashed=False)
        assert about["fingerprint"] is None
        assert models.pending_fingerprint(config, about).result() == fingerprint
    vocabulary = judge / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text().replace("##ed", "##es"))
    assert models.preflight(configs[7])["fingerprint"] not in found
    weights, alone = (models.preflight(config)["bytes"] for config in (configs[7], configs[0]))
    assert weights > alone + 1000


def written(folder, place, table):
    tables = {**TABLES, "model": {"kind": "causal-lm", "path": str(folder), "length": LENGTH}}
    tables["run"] = {**TABLES["run"], "output": str(place / "run.h5")}
    (place / "run.toml").write_text(tomli_w.dumps({**tables, "output": table}))
    return str(place / "run.toml")


COMMANDS = [
    next_of(["ab"]),
    {"name": "text", "text": "a" * 13},
    {"name": "difference", "other": {"kind": "causal-lm", "path": "nowhere"}},
    {"name": "classifier", "path": "nowhere", "class": 0},
    {"name": "python", "function": "nowhere:f"},
]


@pytest.mark.parametrize("table", COMMANDS, ids=lambda table: table["name"])
def test_bad_input_ends_the_command_with_2_and_writes_nothing(folder, tmp_path, capsys, table):
    assert launch.main([written(folder, tmp_path, table)]) == 2
    said = capsys.readouterr().err
    assert said.count("omniinput_hpc: ") == 1 and "output." in said and "Traceback" not in said
    assert [file.name for file in tmp_path.iterdir()] == ["run.toml"]


@pytest.mark.slow
@pytest.mark.parametrize("table", COMMANDS[:2], ids=lambda table: table["name"])
def test_bad_input_ends_all_ranks(folder, tmp_path, table):
    done = run(written(folder, tmp_path, table), ranks=2, cwd=ROOT)
    assert done.returncode == 2 and done.stderr.count("omniinput_hpc: ") == 1, done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["run.toml"]
