"""FASTA files of a model of letters: of representatives, of chosen tasks, of test sets."""

import json
import stat

import numpy as np
import pytest
from potts_files import energies, random_model
from run_files import CONFIG, write_run

from omniinput_hpc.annotation.tasks import read_key, read_tasks
from omniinput_hpc.cli import test_sets
from omniinput_hpc.cli.verbs import choose, representatives
from omniinput_hpc.results.tables import read_test_sets
from omniinput_hpc.untrusted import fasta

H, J = random_model(8, 4, seed=5)


@pytest.fixture
def model(tmp_path):
    """Return the [model] table of a Potts model with the shape of the lattice's runs."""
    np.savez(tmp_path / "p.npz", h=H, J=J, alphabet="ACGU")
    return f'kind = "potts"\npath = "{tmp_path}/p.npz"'


def read(path):
    """Return the headers, as dicts of what they say, and the sequences."""
    headers, sequences = fasta.read(path, "result", 1 << 20)
    return [
        dict(("name", part) if "=" not in part else part.split("=") for part in header.split())
        for header in headers
    ], sequences


def test_representatives(tmp_path, model, capsys):
    write_run(tmp_path / "run.h5", model=model)
    representatives.main([str(tmp_path / "run.h5"), "--per-bin", "2"])
    path = tmp_path / "run.representatives.fasta"
    assert str(path) in capsys.readouterr().out.splitlines()
    headers, sequences = read(path)
    rows = (tmp_path / "run.representatives.csv").read_text().splitlines()
    assert len(rows) == len(sequences) + 1 > 10
    for row, header, sequence in zip(rows[1:], headers, sequences, strict=True):
        lower, upper, z, draws = row.split(",")[:4]
        assert (header["z"], header["draws"]) == (z, draws)
        assert header["bin"] == f"{float(lower):.6g}..{float(upper):.6g}"
        assert f'"{sequence}"' in row and set(sequence) <= set("ACGU") and len(sequence) == 8
    record = json.loads((tmp_path / "run.results.json").read_text())
    assert path.name in record["analyses"][0]["files"]
    representatives.main([str(tmp_path / "run.h5"), "--mask", "--results", str(tmp_path / "m")])
    assert not list((tmp_path / "m").glob("*.fasta"))


def test_choose_hides_z_from_annotators(tmp_path, model, capsys):
    write_run(tmp_path / "run.h5", model=model)
    words = ["--per-bin", "3", "--width", "1", "--range", "-0.125", "2.875"]
    choose.main([str(tmp_path / "run.h5"), *words])
    path = tmp_path / "run.tasks.key.fasta"
    assert f"{path} (not for annotators)" in capsys.readouterr().out.splitlines()
    assert not stat.S_IMODE(path.stat().st_mode) & 0o077
    headers, sequences = read(path)
    tasks = read_tasks(tmp_path / "run.tasks.jsonl")
    key = read_key(tmp_path / "run.tasks.key.jsonl", tasks.tasks_id)
    items = {item.id: item for item in key.items if item.repeats is None}
    text = {task.id: task.text for task in tasks.tasks}
    assert {header["name"] for header in headers} == set(items)
    for header, sequence in zip(headers, sequences, strict=True):
        item = items[header["name"]]
        assert text[item.id] == sequence and float(header["z"]) == pytest.approx(item.z)
        assert header["bin"] == f"{item.bin_lower:.6g}..{item.bin_lower + 1:.6g}"


def test_texts_of_words_get_no_fasta(tmp_path, capsys):
    write_run(tmp_path / "run.h5")
    representatives.main([str(tmp_path / "run.h5")])
    assert not list(tmp_path.glob("*.fasta"))


def test_test_sets_read_and_write_fasta(tmp_path, model, capsys):
    text = CONFIG.format(
        seed=1, rounds=1, model=model, walkers=16, moves=10, betas=[0.0, 1.0], lower=-20.0,
        upper=20.0, width=0.5,
    )  # fmt: skip
    (tmp_path / "p.toml").write_text(text)
    mine = ">one of\nacgu\nACGU\n>short\nACG\n>gap\nAC-UACGU\n>two\nUUUUUUUUU\n"
    (tmp_path / "mine.fa").write_text(mine)
    words = [str(tmp_path / "p.toml"), "--data", str(tmp_path / "mine.fa"), "--output"]
    assert test_sets.main([*words, str(tmp_path / "z.csv")]) == 0
    out = capsys.readouterr().out
    assert "1 of 4 texts left out: fewer than 8 tokens" in out and str(tmp_path / "z.fasta") in out
    headers, sequences = fasta.read(tmp_path / "z.fasta", "result", 1000)
    assert sequences == ["ACGUACGU", "UUUUUUUU"]
    z = energies(H, J, np.array([[0, 1, 2, 3] * 2, [3] * 8]))
    assert [header.rpartition(" z=")[0] for header in headers] == ["one of", "two"]
    found = [float(header.rpartition("=")[2]) for header in headers]
    np.testing.assert_allclose(found, z, rtol=1e-5)
    np.testing.assert_allclose(read_test_sets(tmp_path / "z.csv")[words[2]], z, rtol=1e-5)
    assert test_sets.main([*words, str(tmp_path / "mine.csv")]) == 0  # mine.fa is kept
    (tmp_path / "mine.fa").rename(tmp_path / "mine.fasta")
    words[2] = str(tmp_path / "mine.fasta")
    assert test_sets.main([*words, str(tmp_path / "mine.csv")]) == 2
    assert "is one of the input files" in capsys.readouterr().err
