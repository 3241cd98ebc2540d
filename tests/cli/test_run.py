"""The command: exit codes, messages, files left alone; kills and resumes; stops in good order."""

import os
import re
import shutil
import signal
import subprocess
import sys

import h5py
import numpy as np
import pytest
from run_tools import (
    PATIENCE,
    ROOT,
    assert_same,
    command,
    environment,
    run,
    signal_all,
    wait_for_rounds,
)
from slow_models import held

from omniinput_hpc import __version__
from omniinput_hpc.cli import run as launch
from omniinput_hpc.runfile.reader import open_run


@pytest.fixture
def toml(tmp_path, lattice_toml):
    path = tmp_path / "lattice.toml"
    path.write_text(lattice_toml.format(output=tmp_path / "run.h5"))
    return path


def call(capfd, *arguments):
    """Run the program in this process; return its exit code and what it printed."""
    code = launch.main([str(a) for a in arguments])
    out, err = capfd.readouterr()
    return code, out + err


def settings(*words):
    return [part for word in words for part in ("--set", word)]


def test_check_prints_the_plan_and_writes_nothing(capfd, toml, tmp_path):
    code, text = call(capfd, toml, "--check")
    assert code == 0
    for word in ("4 rungs", "beta -2 to 4", "8 per rung", "writer", "device cpu"):
        assert word in text
    assert not (tmp_path / "run.h5").exists()


def test_an_input_that_no_run_file_could_give_back_is_refused(capfd, toml, tmp_path):
    """The limit of values is kept only until the keys that were left out are filled in."""
    text = toml.read_text()
    toml.write_text(text.replace("[sampler]", f"options.many = {[1] * 49_975}\n[sampler]"))
    code, text = call(capfd, toml, "--check")
    assert code == 2 and "not valid TOML: more than 50,000 values" in text


def test_a_finished_run_is_not_run_again(capfd, toml, tmp_path):
    assert call(capfd, toml)[0] == 0
    before = (tmp_path / "run.h5").stat().st_mtime_ns
    code, text = call(capfd, toml)
    assert code == 0
    assert "is complete (5 rounds); nothing to do" in text
    assert (tmp_path / "run.h5").stat().st_mtime_ns == before


def test_an_output_that_is_a_link_stays_one(capfd, toml, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run.h5").symlink_to("disk/data.h5")
    for rounds in (2, 5):  # made, and made longer
        assert call(capfd, toml, *settings(f"run.rounds={rounds}"))[0] == 0
        assert (tmp_path / "run.h5").readlink().as_posix() == "disk/data.h5"
    with open_run(tmp_path / "disk/data.h5") as done:
        assert done.rounds == 5
    assert not list(tmp_path.rglob("*.lock")) and not list(tmp_path.rglob("*.partial"))


def test_a_wall_time_that_is_shorter_than_a_round_is_said(capfd, toml, tmp_path, monkeypatch):
    monkeypatch.setattr(launch.request, "reason", None)
    code, text = call(capfd, toml, "--max-walltime", "0.001")
    assert code == 75
    assert "no round was committed since this start, and one takes about" in text
    assert re.search(r"set --max-walltime, or the job's time limit, to \d+ s or more", text)
    assert "a smaller sampler.exchanges in a new run" in text
    assert "everything committed" not in text


def test_the_run_file_alone_is_enough_to_go_on(capfd, toml, tmp_path):
    assert call(capfd, toml, *settings("run.rounds=2"))[0] == 0
    toml.unlink()
    assert call(capfd, tmp_path / "run.h5", *settings("run.rounds=5"))[0] == 0
    with open_run(tmp_path / "run.h5") as done:
        assert done.rounds == 5


def test_recorded_outputs_are_those_of_the_recorded_inputs(capfd, toml, tmp_path):
    from toy_models import lattice

    assert call(capfd, toml)[0] == 0
    model = lattice("cpu")
    with open_run(tmp_path / "run.h5") as done:
        for x, z in done.samples():
            np.testing.assert_array_equal(model.energy.numpy()[x].sum(axis=-1) * model.unit, z)


@pytest.mark.slow
def test_warns_of_pairs_that_never_swap(capfd, toml):
    code, text = call(capfd, toml, *settings("ladder.betas=[0.0, 900.0]", "run.burn_in=60"))
    assert code == 0
    assert "rungs 0 and 1 never swapped: add a rung between beta = 0 and 900" in text


def test_warns_of_rungs_outside_the_bins(capfd, toml):
    outside = ("bins.lower=100.125", "bins.upper=104.875")
    code, text = call(capfd, toml, *settings(*outside, "run.burn_in=0"))
    assert code == 0
    assert "rung 3 (beta = 4): all outputs fell outside the bins" in text


def test_a_burn_in_outside_the_bins_ends_the_run_and_says_where_z_was(capfd, toml, tmp_path):
    said = r"all outputs of burn-in .* z ranged from 0.* to [34].*; bins begin at 100.125"
    for _ in range(2):  # the same command again must not go on
        code, text = call(capfd, toml, *settings("bins.lower=100.125", "bins.upper=104.875"))
        assert code == 2 and "Traceback" not in text
        assert re.search(said, text)
        with open_run(tmp_path / "run.h5") as done:
            assert (done.burn_in_committed, done.rounds) == (2, 0)


def test_a_burn_in_partly_outside_the_bins_says_where_z_was(capfd, toml):
    code, text = call(capfd, toml, *settings("bins.lower=1.125", "bins.upper=2.375"))
    assert code == 0
    assert re.search(r"of burn-in's outputs fell .* begin at 1.125 and bins end at 2.375", text)
    code, text = call(capfd, toml)
    assert "burn-in's outputs" not in text


BAD = {
    "no such file": (["nowhere.toml"], "no such input file"),
    "a folder": (["."], "is a directory"),
    "no argument": ([], "required"),
    "unknown option": (["{toml}", "--fast"], "--fast"),
    "bad restart": (["{toml}", "--restart", "maybe"], "invalid choice"),
    "bad walltime": (
        ["{toml}", "--max-walltime", "soon"],
        "seconds above 0, found 'soon'",
    ),
    "negative walltime": (["{toml}", "--max-walltime", "-1"], "seconds above 0, found '-1'"),
    "restart require": (["{toml}", "--restart", "require"], "there is no run file"),
    "unknown key": (["{toml}", "--set", "run.rondes=3"], 'did you mean "rounds"'),
    "not sorted": (["{toml}", "--set", "ladder.betas=[1.0, 0.0]"], "ascending"),
    "no weights folder": (
        ["inputs/toy.toml", "--set", "model.path=nowhere", "--set", "run.output={out}"],
        "model.path = nowhere: no such folder",
    ),
    "empty weights folder": (
        ["inputs/toy.toml", "--set", "model.path={empty}", "--set", "run.output={out}"],
        "no config.json",
    ),
    "too long": (
        ["inputs/toy.toml", "--set", "model.length=9", "--set", "run.output={out}"],
        "model.length = 9 is beyond the 8 positions",
    ),
    "no module": (["{toml}", "--set", "model.factory=nowhere:make"], "no module nowhere"),
    "no function": (["{toml}", "--set", "model.factory=toy_models:nothing"], "has no function"),
    "not a name": (["{toml}", "--set", "model.factory=toy_models"], '"module:function"'),
    "wrong options": (["{toml}", "--set", "model.options.colour=3"], "does not take"),
    "wrong shape": (["{toml}", "--set", "model.factory=toy_models:wrong_shape"], "float32 [8]"),
    "no n_sites": (["{toml}", "--set", "model.factory=toy_models:no_sites"], "n_sites must be"),
    "too many sites": (["{toml}", "--set", "kernel.sites=7"], "kernel.sites = 7"),
    "no gradients": (
        ["{toml}", "--set", "kernel.name=gibbs-with-gradients"],
        'kernel.name = "gibbs-with-gradients" needs a model with output_and_gradient',
    ),
    "a part without gradients": (
        [
            *("{toml}", "--set", "kernel.name=mixture", "--set"),
            'kernel.parts=[{{name="discrete-langevin"}}]',
        ],
        'kernel.name = "discrete-langevin" needs a model with output_and_gradient',
    ),
    "output is a folder": (["{toml}", "--set", "run.output={folder}"], "is a folder"),
    "output below a file": (["{toml}", "--set", "run.output={toml}/run.h5"], "is not a folder"),
    "output is no run": (["{toml}", "--set", "run.output={other}"], "not an omniinput_hpc run"),
    "output is text": (["{toml}", "--set", "run.output={text}"], "not a readable HDF5"),
    "input is no run": (["{other}"], "not an omniinput_hpc run"),
    "no gpu": (["{toml}", "--set", "run.device=cuda"], "torch sees no GPU"),
    "too many counts": (["{toml}", "--set", "sampler.exchanges=2000000000"], "overflow 32 bits"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name, capfd, toml, tmp_path):
    import torch

    if name == "no gpu" and torch.cuda.is_available():
        return
    places = {
        key: tmp_path / key for key in ("empty", "folder.h5", "text.h5", "other.h5", "out.h5")
    }
    places["empty"].mkdir()
    places["folder.h5"].mkdir()
    places["text.h5"].write_text("hello")
    with h5py.File(places["other.h5"], "w") as file:
        file["data"] = [1, 2, 3]
    words = {key.removesuffix(".h5"): str(place) for key, place in places.items()}
    arguments, expected = BAD[name]
    before = sorted(p.name for p in tmp_path.iterdir())
    code, text = call(capfd, *(a.format(toml=toml, **words) for a in arguments))
    assert code == 2, text
    assert expected in text
    assert "Traceback" not in text
    assert sorted(p.name for p in tmp_path.iterdir()) == before


OTHERS = [
    ("run.seed=8", "run.seed is 7 in the file and 8 here"),
    ("run.burn_in=4", "run.burn_in"),
    ("sampler.walkers=16", "sampler.walkers is 8 in the file and 16 here"),
    ("ladder.betas=[-2.0, 0.0, 1.5, 4.5]", "ladder.betas"),
    ("kernel.sites=2", "kernel.sites"),
    ("bins.upper=4.875", "bins.upper"),
    ("samples.every=2", "samples.every"),
    ("model.options.unit=0.5", "model.options"),
    ("run.rounds=3", "run.rounds can only be raised"),
]


def test_the_input_is_checked_before_torch_is_loaded():
    """Otherwise a mistake is reported only after torch has loaded, minutes later on a slow disk."""
    program = (
        "import os, sys; from omniinput_hpc.cli import run\n"
        "def ready(seconds):\n"
        "    os._exit(30 + len({'torch', 'transformers'} & set(sys.modules)))\n"
        "run.duration = ready; run.main(['inputs/toy.toml', '--check'])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT)
    assert done.returncode == 30


def test_another_run_is_not_touched(capfd, toml, tmp_path):
    assert call(capfd, toml)[0] == 0
    data = (tmp_path / "run.h5").read_bytes()
    for word, expected in OTHERS:
        code, text = call(capfd, toml, "--set", word)
        assert (code, expected in text) == (2, True), text
    code, text = call(capfd, toml, "--restart", "never")
    assert (code, "exists" in text) == (2, True)
    assert (tmp_path / "run.h5").read_bytes() == data


def test_what_changed_since_a_run_was_begun_is_said(capfd, toml, tmp_path, monkeypatch):
    """The package, the GPU, and the source of a Python model; z at the probe inputs is the same."""
    from omniinput_hpc.models import device

    monkeypatch.chdir(tmp_path)
    module = tmp_path / "my_lattice.py"
    module.write_text("from toy_models import lattice\n")
    words = settings("model.factory=my_lattice:lattice", "run.burn_in=0")
    assert call(capfd, toml, *words, "--set", "run.rounds=1")[0] == 0
    assert "warning" not in call(capfd, toml, *words, "--set", "run.rounds=2")[1]
    module.write_text("from toy_models import lattice\n\n# a remark\n")
    monkeypatch.setattr(launch, "__version__", "9.9")
    monkeypatch.setattr(device, "gpu", lambda name: {"gpu": "Imaginary 9", "gpu_driver": "1.2"})
    code, text = call(capfd, toml, *words, "--set", "run.rounds=3")
    assert code == 0, text
    assert "the file of model.factory has changed since this run began: my_lattice.py" in text
    assert f"omniinput_hpc {__version__} -> 9.9" in text
    assert "GPU none -> Imaginary 9" in text
    with h5py.File(tmp_path / "run.h5") as file:  # as it was begun
        assert file.attrs["package_version"] == __version__
        assert file.attrs["model_source"].startswith("my_lattice.py (sha256 ")


@pytest.fixture
def ladder(tmp_path, lattice_toml):
    """Return the input of a ladder up to beta = m = 5; it does not say whether it has anchors."""
    path = tmp_path / "ladder.toml"
    text = lattice_toml.format(output=tmp_path / "run.h5").replace("anchors = false\n", "")
    path.write_text(text.replace("toy_models:lattice", "markov_model:weights"))
    return [path, *settings("ladder.betas=[0.0, 2.0, 5.0, 6.0]", "run.rounds=1", "run.burn_in=0")]


ROWS = "beta = m = 5{}a row of the model's conditional_logits sums to 2.718, not to 1"


@pytest.mark.slow
@pytest.mark.parametrize("check", [[], ["--check"]])
def test_rows_that_are_no_probabilities_cannot_be_anchored(capfd, ladder, tmp_path, check):
    code, text = call(capfd, *ladder, *settings("ladder.anchors=true"), *check)
    assert (code, "Traceback" in text) == (2, False), text
    words = " and above require draws from the model, but "
    assert "omniinput_hpc: ladder.anchors = true: rungs of " + ROWS.format(words) in text
    assert not (tmp_path / "run.h5").exists()
    code, text = call(capfd, *ladder, *check)  # anchors were not asked for
    assert code == 0, text
    assert [line for line in text.splitlines() if "] anchors " in line or "anchors  " in line] == [
        "anchors   none at " + ROWS.format(": ")
    ]
    hot = settings("ladder.betas=[0.0, 1.0, 2.0, 4.0]", "ladder.anchors=true", "run.output=hot.h5")
    code, text = call(capfd, *ladder, *hot, "--check")  # no rung is as cold as the model
    assert (code, "conditional_logits" in text) == (0, False), text
    drawn = settings("sampler.method=ancestral", "samples.every=1", "ladder.anchors=true",
                     "run.output=hot.h5")  # fmt: skip
    code, text = call(capfd, *ladder, *drawn, "--check")
    assert (code, "conditional_logits" in text) == (0, False), text


@pytest.mark.slow
def test_one_ranks_rows_decide_for_all_ranks(ladder, tmp_path):
    words = settings("model.options.rank=1")
    done = run(*ladder, *words, "--set", "ladder.anchors=true", ranks=2)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("ladder.anchors = true: rungs of beta = m = 5") == 1
    assert not (tmp_path / "run.h5").exists()
    done = run(*ladder, *words, "--check", ranks=2)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("none at beta = m = 5") == 1


def test_other_weights_are_refused(capfd, tmp_path):
    folder = shutil.copytree(ROOT / "inputs/models/toy", tmp_path / "model")
    words = settings(
        f"run.output={tmp_path}/toy.h5", f"model.path={folder}", "run.rounds=1", "run.burn_in=0",
        "sampler.walkers=4", "sampler.exchanges=1",
    )  # fmt: skip
    assert call(capfd, ROOT / "inputs/toy.toml", *words)[0] == 0
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    code, text = call(capfd, ROOT / "inputs/toy.toml", *words)
    assert (code, "files or options have changed" in text) == (2, True), text


def test_a_read_only_folder_is_bad_input(capfd, toml, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    code, text = call(capfd, toml)
    assert (code, "cannot be written" in text) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "words", "expected"),
    [
        (3, [], "3 ranks do not divide the ladder's 4 rungs"),
        (3, ["ladder.betas=[0.0, 1.0]"], "3 ranks are more than the ladder's 2 rungs"),
        (4, ["run.rondes=3"], "unknown key"),
    ],
)
def test_bad_input_on_several_ranks(ranks, words, expected, toml):
    done = run(toml, *settings(*words), ranks=ranks)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stderr.count("omniinput_hpc:") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SLURM_STEP_NUM_TASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_a_launcher_that_connects_nobody_is_refused(name, capfd, toml, tmp_path, monkeypatch):
    monkeypatch.setenv(name, "4")
    code, text = call(capfd, toml)
    assert (code, f"4 processes were launched ({name})" in text) == (2, True)
    assert not (tmp_path / "run.h5").exists()
    monkeypatch.setenv(name, "1")
    assert call(capfd, toml, "--check")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_nan_ends_all_ranks_and_names_the_input(ranks, toml, tmp_path):
    words = ["model.factory=toy_models:nan", "ladder.betas=[-20.0, -8.0, 0.0, 1.0]"]
    done = run(toml, *settings(*words), ranks=ranks)
    assert done.returncode in (1, 1 | signal.SIGKILL)  # MPICH ors in its own kill of the others
    assert "not finite" in done.stderr
    assert "3-3-3" in done.stderr
    assert re.search(r"\[rank \d on ", done.stderr)  # whichever meets it first
    assert re.search(r"in rung [0-3] \(beta = -?\d+\)", done.stderr)


@pytest.mark.slow
def test_our_own_mistakes_show_a_traceback(toml):
    done = run(toml, *settings("model.factory=toy_models:fails"), ranks=2)
    assert done.returncode == 1
    assert "the factory itself is broken" in done.stderr
    assert "Traceback" in done.stderr


def start(toml, ranks, *words):
    return subprocess.Popen(
        command(toml, *settings(*words), ranks=ranks),
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=ROOT,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["mpio", "gather"])
def test_killed_and_resumed_is_the_same_as_never_killed(writer, toml, tmp_path):
    hurry = tmp_path / "hurry"
    words = [f"run.writer={writer}", "run.rounds=12", *held(300, hurry)]
    whole, path = tmp_path / "whole.h5", tmp_path / "run.h5"
    process = start(toml, 2, *words)
    committed = wait_for_rounds(process, path, 3)
    signal_all(process, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    with open_run(path) as left:
        assert committed <= left.rounds < 12
    hurry.touch()
    done = run(toml, *settings(*words), ranks=4)  # and on other ranks
    assert done.returncode == 0, done.stderr
    assert launch.main(list(map(str, [toml, *settings(*words, f"run.output={whole}")]))) == 0
    assert_same(whole, path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signals_stop_the_run_in_good_order(number, toml, tmp_path):
    hurry = tmp_path / "hurry"
    process = start(toml, 1, "run.rounds=400", *held(600, hurry))
    wait_for_rounds(process, tmp_path / "run.h5", 1)
    process.send_signal(number)
    hurry.touch()
    _, text = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75, text
    assert f"stopped early ({number.name})" in text
    with open_run(tmp_path / "run.h5") as left:
        assert 1 <= left.rounds < 400


@pytest.mark.slow
def test_max_walltime_stops_all_ranks_with_75(toml, tmp_path):
    done = run(toml, *settings("run.rounds=100000"), "--max-walltime", 3, ranks=2)
    assert done.returncode == 75, done.stderr
    assert "--max-walltime 3 s is reached" in done.stderr


@pytest.mark.slow
def test_a_wall_time_shorter_than_the_start_of_cold_rungs_is_said_and_resumed(toml, tmp_path):
    """Of two ranks only that of the cold rung has a start that takes long; both end with 75."""
    words = (
        "model.factory=markov_model:drawn_together", "ladder.betas=[0.0, 7.0]",
        "ladder.anchors=true", "kernel.name=lm-conditional", "bins.upper=8.125", "run.rounds=3",
    )  # fmt: skip
    done = run(toml, *settings(*words), "--max-walltime", 0.001, ranks=2)
    assert done.returncode == 75, done.stderr
    assert "this start did not reach its first move: raise --max-walltime" in done.stderr
    assert run(toml, *settings(*words), ranks=2).returncode == 0
    (tmp_path / "run.h5").rename(tmp_path / "resumed.h5")
    assert launch.main([str(toml), *settings(*words)]) == 0
    assert_same(tmp_path / "run.h5", tmp_path / "resumed.h5")


@pytest.mark.parametrize("wrong", ["rule=regex:(", "rule=toy_rules:nothing", "test_data=no.csv"])
def test_a_check_warns_of_an_analysis_that_cannot_begin(wrong, capfd, toml):
    assert launch.main([str(toml), "--check", "--set", f"analysis.{wrong}"]) == 0
    assert f"warning: analysis.{wrong.replace('=', ' = ')}" in capfd.readouterr().err
