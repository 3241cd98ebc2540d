"""Rescoring: another model's outputs of recorded samples; kills, resumes, refusals, messages."""

import importlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import model_pair
import numpy as np
import pytest
from configs import config_with
from huggingface_hub import constants
from language_folders import save_decoder
from potts_files import random_model, write_text
from run_tools import (
    LATTICE,
    PATIENCE,
    ROOT,
    assert_same,
    command,
    environment,
    run,
    said_until_its_end,
)
from sealed_changes import changing, seal
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel

from omniinput_hpc.cli import rescore
from omniinput_hpc.cli import run as launch
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import input_space
from omniinput_hpc.models.outputs import checks
from omniinput_hpc.parallel.signals import StopRequest
from omniinput_hpc.runfile import layout, rescored
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.runfile.rescored import find, open_rescored

MODULE = "omniinput_hpc.rescore"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Both models' input files and finished runs of 5 rounds."""
    folder = tmp_path_factory.mktemp("rescore")
    for which in ("good", "worse"):
        text = LATTICE.format(output=folder / f"{which}.h5")
        text = text.replace("toy_models:lattice", "toy_models:table")
        text = text.replace("upper = 4.625", "upper = 7.875")
        text = text.replace("[sampler]", f'options = {{ which = "{which}" }}\n[sampler]')
        (folder / f"{which}.toml").write_text(text)
        assert launch.main([str(folder / f"{which}.toml")]) == 0
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "runs")
    return tmp_path / "runs"


def call(capfd, *arguments):
    code = rescore.main([str(a) for a in arguments])
    out, err = capfd.readouterr()
    return code, out + err


def expected(path, which):
    with open_run(path) as done:
        x = np.stack([x for x, _ in done.samples()])
    return model_pair.table(which)[model_pair.number(x)]


def assert_right(side, path, which):
    with open_rescored(side) as found:
        assert found.rounds == found.rounds_planned == len(expected(path, which))
        for round_, z in enumerate(expected(path, which)):
            np.testing.assert_array_equal(found.z(round_), z)


def test_outputs_are_the_other_models(capfd, folder):
    code, text = call(capfd, folder / "good.h5", folder / "worse.toml")
    assert code == 0, text
    side = folder / "good.rescored.worse.h5"
    assert "round 5 of 5" in text and f"complete: {side}" in text
    assert_right(side, folder / "good.h5", "worse")
    with open_run(folder / "good.h5") as good, open_run(folder / "worse.h5") as worse:
        assert find(good, worse) == side
        with pytest.raises(UserError, match=r"omniinput rescore \S*worse.h5 \S*good.h5"):
            find(worse, good)
    before = side.stat().st_mtime_ns
    code, text = call(capfd, folder / "good.h5", folder / "worse.h5")  # a run file is an input, too
    assert code == 0 and "holds all 5 rounds" in text
    assert side.stat().st_mtime_ns == before
    assert not list(folder.glob("*.lock")) and not list(folder.glob("*.partial"))


def test_the_gathering_writer_gives_the_same_bytes(capfd, folder):
    assert call(capfd, folder / "good.h5", folder / "worse.toml")[0] == 0
    side = folder / "good.rescored.worse.h5"
    side.rename(folder / "other.h5")
    words = ["--set", "run.writer=gather", "--set", "sampler.walkers=7"]
    assert call(capfd, folder / "good.h5", folder / "worse.toml", *words)[0] == 0
    assert_same(side, folder / "other.h5")


def slow(folder):
    """Make the worse model's input file one that waits in the third round of the run's samples.

    After that the next look for a signal comes at move 31 at the latest, of 60.
    """
    text = (folder / "worse.toml").read_text()
    text = text.replace("toy_models:table", "slow_models:slow_table")
    more = f"hold = 29, hurry = '{folder / 'hurry'}'"
    path = folder / "slow.toml"
    path.write_text(text.replace('which = "worse"', f'which = "worse", {more}'))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 75)])
def test_a_killed_or_stopped_one_is_resumed(number, code, capfd, folder):
    """Killed, it ends at once; asked to stop, it says so and leaves with 75."""
    side = folder / "good.rescored.slow.h5"
    words = command(folder / "good.h5", slow(folder), module=MODULE, cold=number == signal.SIGKILL)
    process = subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, env=environment(), cwd=ROOT
    )
    end, rounds = time.monotonic() + PATIENCE, 0
    while rounds < 1 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
        if side.exists():
            with open_rescored(side) as so_far:
                rounds = so_far.rounds
    process.send_signal(number)
    (folder / "hurry").touch()
    _, text = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, text
    assert ("run again to resume" in text) == (code == 75)
    with open_rescored(side) as so_far:
        assert 1 <= so_far.rounds < 5
        left = so_far.rounds
        kept = so_far.z(0)
    put_z(side, 77.0)  # what is committed is not made again; the check looks at rung 0
    code, text = call(capfd, folder / "good.h5", slow(folder))
    assert code == 0, text
    assert f"round {left} of" not in text
    with open_rescored(side) as whole:
        assert whole.z(0)[-1, 0] == 77.0 and kept[-1, 0] != 77.0
    put_z(side, kept[-1, 0])
    assert_right(side, folder / "good.h5", "worse")


def put_z(side, value):
    """Put an output into a side file, and its checksum."""
    with h5py.File(side, "r+", locking=False) as file:
        file["samples/z"][0, -1, 0] = value
        shape = file["samples/z"].shape
        g = layout.Geometry(shape[0], shape[1], 1, 1, shape[2], 1, 2, 1)
        seal(file, rescored.fields_of(g), shape[1])


def test_a_wall_time_limit_stops_in_good_order(capfd, folder, monkeypatch):
    monkeypatch.setattr(rescore, "request", StopRequest())
    code, text = call(capfd, folder / "good.h5", slow(folder), "--max-walltime", "0.001")
    assert code == 75
    assert "--max-walltime 0.001 s is reached" in text
    assert "no round was committed since this start, and one takes about" in text


def test_a_longer_run_is_rescored_further(capfd, folder):
    assert call(capfd, folder / "good.h5", folder / "worse.toml")[0] == 0
    assert launch.main([str(folder / "good.h5"), "--set", "run.rounds=8"]) == 0
    code, text = call(capfd, folder / "good.h5", folder / "worse.toml")
    assert code == 0 and "round 8 of 8" in text
    assert_right(folder / "good.rescored.worse.h5", folder / "good.h5", "worse")


def test_an_edited_model_is_compared_with_what_was_rescored(capfd, folder, monkeypatch):
    monkeypatch.chdir(folder)
    code = "import toy_models\n\n\ndef make(device):\n    return toy_models.table(device, {})\n"
    given = [folder / "good.h5", folder / "worse.toml", "--set", "model.factory=my_table:make"]
    given += ["--set", "model.options={}"]

    def call_with(text):
        (folder / "my_table.py").write_text(text)
        monkeypatch.delitem(sys.modules, "my_table", raising=False)
        importlib.invalidate_caches()
        return call(capfd, *given)

    assert call_with(code.format("'worse'"))[0] == 0
    side = folder / "good.rescored.worse.h5"
    assert_right(side, folder / "good.h5", "worse")
    before = side.read_bytes()
    assert (
        "nothing to do" in call_with(code.format("'worse'") + "\n# a remark of another size\n")[1]
    )
    status, said = call_with(code.format("'good'") + "\n\n# another model, not a remark\n")
    assert (status, "holds outputs of another model" in said) == (2, True), said
    assert launch.main([str(folder / "good.h5"), "--set", "run.rounds=6"]) == 0
    status, said = call_with(code.format("'good'"))  # to be resumed, it would mix two models
    assert (status, "holds outputs of another model" in said) == (2, True), said
    assert side.read_bytes() == before


def test_a_file_that_the_model_reads_is_compared_too(capfd, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "reading.py").write_text(
        "import pathlib, toy_models\n\n\ndef make(device):\n"
        "    return toy_models.table(device, pathlib.Path('weights').read_text())\n"
    )
    given = [folder / "good.h5", folder / "worse.toml", "--set", "model.factory=reading:make"]
    said = []
    for weights in ("worse", "worse", "good"):
        (folder / "weights").write_text(weights)
        said.append(call(capfd, *given, "--set", "model.options={}"))
    assert [code for code, _ in said] == [0, 0, 2]
    assert "nothing to do" in said[1][1] and "holds outputs of another model" in said[2][1]


def test_rounds_that_were_sampled_again_are_not_mixed_with_old_ones(capfd, folder):
    """As after salvage, on another machine: the run is the same one, with other inputs."""
    good, worse = folder / "good.h5", folder / "worse.toml"
    assert call(capfd, good, worse)[0] == 0
    with changing(good) as file:
        file["samples/x"][3] = file["samples/x"][2]
    with open_run(good) as run, open_run(folder / "worse.h5") as other:
        with open_rescored(folder / "good.rescored.worse.h5") as side:
            assert not side.belongs_to(run)
        with pytest.raises(UserError, match="has not evaluated the samples of"):
            find(run, other)
    code, text = call(capfd, good, worse)
    assert code == 2 and "was computed from other samples than" in text


def test_refusals(capfd, folder, tmp_path):
    good, worse = folder / "good.h5", folder / "worse.toml"
    sites = tmp_path / "sites.toml"
    sites.write_text(
        LATTICE.format(output="a.h5").replace("[sampler]", "options.n_sites=5\n[sampler]")
    )
    values = tmp_path / "values.toml"
    values.write_text(
        LATTICE.format(output="a.h5").replace("[sampler]", "options.n_values=5\n[sampler]")
    )
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["a"] = 1
    for arguments, words in [
        ([good, sites], "different input spaces: "),
        ([good, sites], "has 6 sites, "),
        ([good, values], "has 4 values per site, "),
        ([tmp_path / "none.h5", worse], "no such run file"),
        ([tmp_path / "foreign.h5", worse], "not an omniinput_hpc run"),
        ([good, tmp_path / "none.toml"], "no such input file"),
        ([good, worse, "--set", "model.factory=nowhere:make"], "no module nowhere"),
        ([good, worse, "--set", "run.rondes=3"], 'did you mean "rounds"'),
        ([good, worse, "--max-walltime", "soon"], "--max-walltime"),
        ([good], "required"),
    ]:
        code, text = call(capfd, *arguments)
        assert (code, "Traceback" in text) == (2, False)
        assert words in text, text
    assert not list(folder.glob("*rescored*"))


def test_side_files_of_something_else_are_left_alone(capfd, folder):
    good, worse = folder / "good.h5", folder / "worse.toml"
    side = folder / "good.rescored.worse.h5"
    assert call(capfd, good, worse)[0] == 0
    before = side.read_bytes()
    code, text = call(capfd, good, worse, "--set", "model.options.which=good")
    assert code == 2 and "holds the outputs of a model other than" in text
    good.unlink()
    assert launch.main([str(folder / "good.toml"), "--set", f"run.output={good}"]) == 0
    with changing(good) as file:
        file.attrs["created"] = "another time"
    code, text = call(capfd, good, worse)
    assert code == 2 and "was computed from other samples than" in text
    assert side.read_bytes() == before
    side.write_bytes(before[:500])
    code, text = call(capfd, good, worse)
    assert code == 2 and "not a readable HDF5 file" in text
    shutil.copy(good, side)
    code, text = call(capfd, good, worse)
    assert code == 2 and "not a file of rescored samples" in text


def test_a_run_without_rounds_is_refused(capfd, folder):
    with changing(folder / "good.h5") as file:
        file["progress/rounds_committed"][0] = 0
    code, text = call(capfd, folder / "good.h5", folder / "worse.toml")
    assert code == 2 and "no committed round" in text


@pytest.mark.slow
def test_an_output_that_is_not_finite_ends_it(folder):
    words = ["--set", "model.factory=toy_models:nan", "--set", "model.options={}"]
    done = run(folder / "good.h5", folder / "worse.toml", *words, module=MODULE)
    assert done.returncode == 1
    assert "returned a z that is not finite" in done.stderr
    with open_rescored(folder / "good.rescored.worse.h5") as side:
        assert side.rounds == 0


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["mpio", "gather"])
def test_a_rank_that_fails_alone_ends_all(folder, tmp_path, writer):
    """It must not close a parallel file, which the others do not: all would wait for ever."""
    mark = tmp_path / "mark"
    failure = {"FAILURE": "nan", "FAILING_RANK": "1", "FAILING_CALL": "20",
               "FAILURE_MARK": str(mark)}  # fmt: skip
    words = ["--set", "model.factory=failing_model:failing", "--set", "model.options={}",
             "--set", f"run.writer={writer}"]  # fmt: skip
    process = subprocess.Popen(
        command(folder / "good.h5", folder / "worse.toml", *words, ranks=2, module=MODULE),
        stderr=subprocess.PIPE, text=True, env={**environment(), **failure}, cwd=ROOT,
        start_new_session=True,
    )  # fmt: skip
    text = said_until_its_end(process)
    assert process.returncode in (1, 1 | signal.SIGKILL)
    assert "[rank 1 on " in text and "not finite" in text
    with open_rescored(folder / "good.rescored.worse.h5") as side:
        assert 0 < side.rounds < 5


@pytest.mark.parametrize(("factory", "words"), [
    ("toy_models:wrong_shape", "output(x) must return float32 [8]"),
    ("toy_models:doubles", "found float64 [8]"),
    ("toy_models:no_tensor", "must return a tensor, found list"),
])  # fmt: skip
def test_outputs_that_are_none_are_refused(capfd, folder, factory, words):
    given = ["--set", f"model.factory={factory}", "--set", "model.options={}"]
    code, text = call(capfd, folder / "good.h5", folder / "worse.toml", *given)
    assert (code, "Traceback" in text) == (2, False)
    assert words in text
    code, text = call_verify(capfd, folder / "good.h5", "--rescore", "10", *given)
    assert (code, "Traceback" in text) == (2, False)
    assert words in text
    assert not list(folder.glob("*rescored*"))


def call_verify(capfd, path, *words):
    code = launch.main([str(path), "--verify", *words])
    return code, "".join(capfd.readouterr())


def test_a_model_that_is_no_function_is_refused(capfd, folder):
    given = ["--set", "model.factory=toy_models:noisy", "--set", "model.options={}"]
    code, text = call(capfd, folder / "good.h5", folder / "worse.toml", *given)
    assert code == 2 and "it is not a function of the input (dropout" in text
    assert not list(folder.glob("*rescored*"))
    given += ["--set", "model.noise=true"]
    assert call(capfd, folder / "good.h5", folder / "worse.toml", *given)[0] == 0


def test_a_damaged_side_file_does_not_hide_a_whole_one(capfd, folder):
    assert call(capfd, folder / "good.h5", folder / "worse.toml")[0] == 0
    side, first = (folder / f"good.rescored.{name}.h5" for name in ("worse", "a"))
    first.write_bytes(side.read_bytes()[:500])
    with open_run(folder / "good.h5") as good, open_run(folder / "worse.h5") as worse:
        assert find(good, worse) == side
        side.unlink()
        with pytest.raises(UserError, match=r"good.rescored.a.h5 is not a readable HDF5 file"):
            find(good, worse)


def tokenizer(folder, tokens, added=()):
    folder.mkdir(parents=True)
    made = Tokenizer(WordLevel({token: number for number, token in enumerate(tokens)}, "the"))
    made.add_tokens(list(added))
    made.save(str(folder / "tokenizer.json"))


def ended(path, end, kind="causal-lm", **more):
    length = {"length": 8} if kind == "causal-lm" else {}
    model = {"kind": kind, "path": str(path), **length, **more}
    return config_with(model=model, **({"space": {"end": end}} if end else {}))


def space(path, end=None, **more):
    return input_space.space_of(Path(path).name, ended(path, end, **more), 8, 4)


def test_vocabularies_are_compared_by_their_tokens(tmp_path):
    tokenizer(tmp_path / "a", ["the", "of", "and", "end"])
    tokenizer(tmp_path / "b", ["of", "the", "and", "end"])
    tokenizer(tmp_path / "c", ["the", "of", "and"], added=["end"])
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "vocab.json").write_text(json.dumps({"the": 0, "of": 1, "and": 2, "end": 3}))
    (tmp_path / "d" / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "e").mkdir()
    a = space(tmp_path / "a")
    for name in "acdef":  # e has no tokenizer, and f is not there: nothing speaks against them
        input_space.require_same(a, space(tmp_path / name))
    with pytest.raises(UserError, match="the values of a and b stand for different tokens"):
        input_space.require_same(a, space(tmp_path / "b"))
    with pytest.raises(UserError, match=r"model\.tokens is 'words' in a and 'all' in c"):
        input_space.require_same(space(tmp_path / "a", tokens="words"), space(tmp_path / "c"))
    (tmp_path / "e" / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be read"):
        space(tmp_path / "e")


def test_vocabularies_of_a_hubs_models_are_compared(tmp_path, monkeypatch):
    """Opposite vocabularies, named by names of a hub, passed as one space."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for name, tokens in (("one", ["a", "b", "c", "d"]), ("two", ["d", "c", "b", "a"])):
        model = tmp_path / f"models--someone--{name}"
        tokenizer(model / "snapshots" / ("0" * 40), tokens)
        (model / "refs").mkdir()
        (model / "refs" / "main").write_text("0" * 40)
    one = space("someone/one")
    input_space.require_same(one, one)
    with pytest.raises(UserError, match="the values of one and two stand for different tokens"):
        input_space.require_same(one, space("someone/two"))


def test_letters_of_potts_models_are_compared(tmp_path):
    h, j = random_model(8, 5)
    np.savez(tmp_path / "a.npz", h=h, J=j, alphabet="-ACGU")
    np.savez(tmp_path / "b.npz", h=h, J=j, alphabet="ACGU-")
    write_text(tmp_path / "c.dat", h, j)  # RNA, as its values are only numbered
    a, b, c, gone = (
        space(tmp_path / name, kind="potts") for name in ("a.npz", "b.npz", "c.dat", "gone.npz")
    )
    for other in (c, gone):
        input_space.require_same(a, other)
    with pytest.raises(UserError, match=r"letters of a\.npz are -ACGU, those of b\.npz ACGU-"):
        input_space.require_same(a, b)
    input_space.require_same(space(tmp_path / "b.npz", kind="potts", alphabet="-ACGU"), a)


def test_shapes_of_pictures_are_compared():
    """A site of one would be another pixel, or another colour, of the other."""
    keys = {"kind": "image-classifier", "factory": "a:b", "n_values": 2, "label": 0}
    square, flat, colour = (
        space("net.safetensors", shape=shape, **keys) for shape in ([6, 6], [4, 9], [3, 4, 3])
    )
    input_space.require_same(square, square)
    for other in (flat, colour):
        with pytest.raises(UserError, match=r"the pictures of .* are 6 x 6 x 1"):
            input_space.require_same(square, other)


def test_the_tokens_that_end_texts_are_compared(tmp_path):
    """A base model and its chat model have one vocabulary and other ends."""
    for name, end in (("base", "<end>"), ("chat", "<pad>"), ("same", "<end>")):
        save_decoder("gpt2", tmp_path / name)
        (tmp_path / name / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}))
    base, chat, same, gone = (
        space(tmp_path / name, end="eos") for name in ("base", "chat", "same", "gone")
    )
    for other in (same, gone):
        input_space.require_same(base, other)
    with pytest.raises(UserError, match=r"space\.end is the value 0 in base and 1 in chat"):
        input_space.require_same(base, chat)
    config = ended(tmp_path / "base", "eos")  # the end of a difference's texts is the run's
    checks.require_same_inputs(config, ended(tmp_path / "chat", None).model, [(8, 4)] * 2)


def test_values_without_special_tokens_are_those_of_the_same_tokens(tmp_path):
    """Values count the tokens that are not special: here the others begin with `the`, or `of`."""
    for name, special in (("a", "of"), ("b", "the"), ("c", "of")):
        added = [AddedToken(special, special=True)]
        tokenizer(tmp_path / name, ["the", "of", "and", "end"], added)
    a, b, c = (space(tmp_path / name, tokens="no-special") for name in "abc")
    input_space.require_same(a, c)
    with pytest.raises(UserError, match="the values of a and b stand for different tokens"):
        input_space.require_same(a, b)
    input_space.require_same(space(tmp_path / "a"), space(tmp_path / "b"))  # all tokens
