"""The traditional evaluation: its scores by hand, its files, its mistakes."""

import numpy as np
import pytest
from run_tools import ROOT

from omniinput_hpc import test_sets
from omniinput_hpc.errors import UserError
from omniinput_hpc.results.tables import read_test_sets

INPUT = str(ROOT / "inputs/digits-mlp.toml")


def test_scores_by_hand():
    positive, negative = np.array([4.0, 3.0, 1.0]), np.array([2.0, 0.0])
    aupr, auroc, fpr95 = test_sets.scores(positive, negative)
    assert auroc == pytest.approx(5 / 6)  # of 6 pairs one is the wrong way round
    assert fpr95 == pytest.approx(0.5)  # all three positives are found at z >= 1
    # precision 1, 1, 2/3, 3/4 at recall 1/3, 2/3, 2/3, 1, joined by straight lines
    assert aupr == pytest.approx(2 / 3 + (2 / 3 + 3 / 4) / 2 / 3)
    assert test_sets.scores(negative, positive)[1] == pytest.approx(1 / 6)
    many = np.arange(100.0)
    assert test_sets.scores(many, np.array([4.5, 5.5, -1.0, -2.0]))[2] == pytest.approx(0.25)


@pytest.mark.slow
def test_the_digits_family_on_its_own_test_set(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = tmp_path / "z.csv"
    arguments = [INPUT, "--positives", "digits:1", "--negatives", "digits:0", "--negatives",
                 "digits:2,3,4,5,6,7,8,9", "--output", str(path)]  # fmt: skip
    assert test_sets.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    auroc = {line.split()[0]: float(line.split()[3]) for line in lines[2:4]}
    assert auroc["digits:0"] > 99
    assert auroc["digits:2,3,4,5,6,7,8,9"] < auroc["digits:0"]
    rows = path.read_text().splitlines()
    assert rows[1] == "set,role,z" and rows[2].startswith("digits:1,positive,")
    assert len(rows) == 2 + len(test_sets.read_set("digits"))


@pytest.mark.parametrize(
    ("positives", "said"),
    [
        ("digit:1", "no such set"),
        ("digits:11", "no images of class 11"),
        ("digits:one", "whole numbers"),
        ("mnist", "expected mnist:FOLDER"),
        ("mnist:/nowhere", "fetch it"),
        ("cifar10:/nowhere:1", "fetch cifar-10-binary.tar.gz"),
    ],
)
def test_mistakes_are_bad_input(positives, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    arguments = [INPUT, "--positives", positives, "--negatives", "digits:0"]
    assert test_sets.main([*arguments, "--output", str(tmp_path / "z.csv")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "z.csv").exists()


def test_a_language_model_is_refused(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    arguments = ["inputs/toy.toml", "--positives", "digits:1", "--negatives", "digits:0"]
    assert test_sets.main(arguments) == 2
    assert "image-classifier" in capsys.readouterr().err


def test_the_table_is_written_whole_or_a_plain_message_says_why_not(tmp_path):
    name, z = 'mnist:a "folder", b', [np.array([1.5, 1 / 3]), np.array([-2.0])]
    path = tmp_path / "new" / "z.csv"
    test_sets.write_outputs(path, "here", [name, "digits:0"], z)
    assert [p.name for p in path.parent.iterdir()] == ["z.csv"]
    found = read_test_sets(path)
    assert list(found) == [name, "digits:0"]
    np.testing.assert_allclose(found[name], z[0], rtol=1e-6)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/z.csv cannot be written"):
        test_sets.write_outputs(tmp_path / "file" / "z.csv", "here", ["a"], z[:1])
