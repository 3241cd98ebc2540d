"""``[[observables]]``: recorded while a run samples, on any number of blocks, after a resume."""

import json
import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from run_tools import LATTICE, run

from omniinput_hpc.cli import run as launch
from omniinput_hpc.cli.salvage import salvage_file
from omniinput_hpc.config import input_file, stored
from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import side_checkpoint
from omniinput_hpc.runfile.reader import open_run

OWN = '[[observables]]\nname = "{}"\nfunction = "small_observables:{}"\n'
TWO = '[[observables]]\nname = "distinct"\n' + OWN.format("mine", "second")


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    text = "def second(x):\n    return x[:, 1] * 0.5\ndef wrong(x):\n    return x\n"
    text += "def crowded(x):\n    return x[:, 0] * 0 + len(x)\n"
    (tmp_path / "small_observables.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])


def begin(name, more=TWO, *options):
    Path(f"{name}.toml").write_text(LATTICE.format(output=f"{name}.h5") + more)
    return launch.main([f"{name}.toml", *options])


def recorded(name):
    with h5py.File(f"{name}.h5") as file:
        return {key: file[f"observables/{key}"][...] for key in file["observables"]}


def test_they_are_those_of_the_samples():
    assert begin("a") == 0
    with open_run("a.h5") as opened:
        assert opened.geometry.observables == ("distinct", "mine")
        (x, _) = next(iter(opened.samples([3])))
        np.testing.assert_array_equal(opened.slab("observables/mine", 3), x[..., 1] * 0.5)
        flat = x.reshape(-1, x.shape[-1])
        several = np.array([len(set(one)) for one in flat.tolist()]).reshape(x.shape[:2])
        np.testing.assert_array_equal(opened.slab("observables/distinct", 3), several)
    assert all(y.dtype == np.float64 for y in recorded("a").values())


def test_blocks_and_a_resume_record_the_same():
    assert begin("a") == 0
    assert begin("b", TWO, "--set", "sampler.blocks=2") == 0
    with h5py.File("b.h5") as file:
        np.testing.assert_array_equal(file["observables/mine"][...], file["samples/x"][..., 1] / 2)
    assert begin("c", TWO, "--set", "run.rounds=2") == 0
    assert begin("c", TWO) == 0
    for name, y in recorded("a").items():
        np.testing.assert_array_equal(y, recorded("c")[name])


def test_a_run_without_them_is_as_before():
    assert begin("a") == begin("b", "") == 0
    with h5py.File("a.h5") as one, h5py.File("b.h5") as other:
        assert "observables" not in other
        assert (one["samples/x"][...] == other["samples/x"][...]).all()
        assert (one["state/x"][...] == other["state/x"][...]).all()


def test_a_resumed_run_has_the_same_ones(capsys):
    assert begin("a") == 0
    assert begin("a", "", "--set", "run.rounds=9") == 2
    assert "observables.mine is 'small_observables:second' in the file" in capsys.readouterr().err


def test_a_resume_says_that_their_code_has_changed(capfd):
    assert begin("a", TWO, "--set", "run.rounds=2") == 0
    assert begin("a", TWO, "--set", "run.rounds=3") == 0
    assert "has changed since" not in capfd.readouterr().err
    own = Path("small_observables.py")
    own.write_text(own.read_text() + "\n\n# a remark\n")
    assert begin("a") == 0
    said = "the file of [[observables]] has changed since this run began: small_observables.py"
    assert said in capfd.readouterr().err


def test_they_survive_salvage():
    assert begin("a") == 0
    side = side_checkpoint.read(Path("a.h5"))
    assert side.geometry.observables == ("distinct", "mine")
    salvage_file(Path("a.h5"), Path("b.h5"))
    for name, y in recorded("a").items():
        np.testing.assert_array_equal(y, recorded("b")[name])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('[[observables]]\nname = "a/b"\n', "expected at most 60 letters"),
        (TWO + '[[observables]]\nname = "mine"\n', "mine is there twice"),
        ('[[observables]]\nname = "legnth"\n', "observables.legnth = legnth: expected one of"),
        ('[[observables]]\nname = "brightness"\n', "is for images"),
        (OWN.format("bad", "wrong"), "observables.bad = small_observables:wrong: expected 8"),
        (
            OWN.format("bad", "crowded"),
            "bad gives an input 8 beside others, but 1 on its own",
        ),
        (OWN.format("bad", "no"), "has no function no"),
        ('[[observables]]\nname = "a"\nfuntion = "x"\n', "did you mean"),
    ],
)
def test_mistakes_are_bad_input(more, words, capsys):
    assert begin("a", more) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not Path("a.h5").exists()


def test_inputs_of_another_version_are_read():
    tables = input_file._read(LATTICE.format(output="a.h5") + TWO, "a")
    tables["observables"].append({"name": "b/c"})
    assert stored.of_tables(tables).observed == {
        "distinct": "distinct", "mine": "small_observables:second",
    }  # fmt: skip
    with pytest.raises(UserError, match="b/c"):
        input_file.checked(json.loads(json.dumps(tables)), "a")


def test_a_function_that_fails_on_one_rank_ends_all(tmp_path):
    (tmp_path / "fails_late.py").write_text(
        "calls = []\ndef late(x):\n    calls.append(len(x))\n"
        "    return x[:, 0] / (0.0 if len(calls) > 6 and (x[:, 0] > 0).any() else 1.0)\n"
    )
    more = '[[observables]]\nname = "late"\nfunction = "fails_late:late"\n'
    Path("a.toml").write_text(LATTICE.format(output="a.h5") + more)
    done = run(tmp_path / "a.toml", ranks=2, cwd=tmp_path, timeout=120)
    assert done.returncode == 2
    assert "observables.late = fails_late:late gives" in done.stderr


SECOND = 'lambdas = {}\nobservable = "{}"\n'


@pytest.mark.parametrize(
    ("lambdas", "observable", "more", "words"),
    [
        ([0.0, 0.0, 1.0, 2.0], "other", {}, 'ladder.observable = "other" is not the name of one'),
        ([0.0, 1.0], "distinct", {}, "lambdas has 2 entries for 4 rungs"),
        ([1.0, 0.0, 0.0, 0.0], "distinct", {}, "expected rungs of lambda = 0 first"),
        ([0.0, 0.0, 0.0, 0.0], "distinct", {}, "expected rungs of lambda = 0 first"),
        ([0.0, 0.0, 1.0, 2.0], "distinct", {"ladder.tune": "true"}, "lambdas and tune exclude"),
        ([0.0, 1.0, 1.0, 1.0], "distinct", {"ladder.betas": "[0.0, 1.0, 2.0, 1.0]"},
         "two rungs have the same beta and lambda"),
        ([0.0, 0.0, 1.0, 2.0], "distinct", {"kernel.name": "gibbs-with-gradients"},
         'kernel.name = "gibbs-with-gradients" cannot weigh inputs by an observable'),
    ],
)  # fmt: skip
def test_a_wrong_second_direction_is_refused(lambdas, observable, more, words):
    table = LATTICE.format(output="a.h5").replace(
        "[ladder]\n", "[ladder]\n" + SECOND.format(lambdas, observable)
    )
    changes = [f"{key}={value}" for key, value in more.items()]
    with pytest.raises(UserError, match=re.escape(words)):
        input_file.parse(table + TWO, "a.toml", changes)


def test_half_a_second_direction_is_refused():
    table = LATTICE.format(output="a.h5").replace("[ladder]\n", "[ladder]\nlambdas = [0.0]\n")
    with pytest.raises(UserError, match="requires both lambdas, a list, and observable"):
        input_file.parse(table + TWO, "a.toml", [])
