"""Verifying a run file: a good one agrees, and each kind of damage is found by its check."""

import shutil
import subprocess
import time

import h5py
import numpy as np
import pytest
from run_tools import LATTICE, PATIENCE, ROOT, command, environment
from sealed_changes import changing

from omniinput_hpc.cli import run as launch
from omniinput_hpc.cli.verify import choose_samples, verify_file
from omniinput_hpc.runfile import layout
from omniinput_hpc.runfile.reader import open_run

K, W, B, S = 4, 8, 19, 40  # rungs, walkers, bins, samples a rung and round
SETTINGS = ["--set", "samples.every=3"]  # the last move of a round is a sample


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run: 3 burn-in rounds and 5 counted ones of 15 moves and 3 exchanges."""
    folder = tmp_path_factory.mktemp("verify")
    toml = folder / "lattice.toml"
    toml.write_text(LATTICE.format(output=folder / "run.h5"))
    assert launch.main([str(toml), *SETTINGS]) == 0
    return folder / "run.h5"


@pytest.fixture
def path(whole, tmp_path):
    return shutil.copy(whole, tmp_path / "run.h5")


def call(capfd, *arguments):
    code = launch.main([str(a) for a in arguments])
    out, err = capfd.readouterr()
    return code, out + err


def test_a_whole_run_agrees(capfd, path):
    code, text = call(capfd, "--verify", path)
    assert code == 0
    assert "5 of 5 rounds and 3 of burn-in committed; 4 rungs of 8 walkers, 800 samples" in text
    assert "all agrees" in text
    assert verify_file(path)[1] == []


def change(name, where, value):
    """Return damage that sets an element, or changes it by a function of the old one."""

    def damage(file):
        old = file[name][where]
        file[name][where] = value(old) if callable(value) else value

    return damage


def swap(name, one, other):
    def damage(file):
        a, b = file[name][one], file[name][other]
        assert not np.array_equal(a, b)
        file[name][one], file[name][other] = b, a

    return damage


def move_a_count(name, where):
    """Return damage that moves one count to the neighbouring bin."""

    def damage(file):
        row = file[name][where]
        b = int(np.argmax(row > 0))
        row[b] -= 1
        row[b + 1] += 1
        file[name][where] = row

    return damage


def replace(name, **how):
    """Return damage that stores a dataset in another way, with the same content."""

    def damage(file):
        data = file[name][...]
        del file[name]
        file.create_dataset(name, data=data, **how)

    return damage


def replace_outside(file):
    data = file["samples/z"][...]
    del file["samples/z"]
    data.tofile(file.filename + ".raw")
    file.create_dataset(
        "samples/z", data.shape, data.dtype, external=[(file.filename + ".raw", 0, data.nbytes)]
    )


def delete(file):
    del file["exchange/round_trips"]


def set_config(old, new):
    def damage(file):
        assert old in file.attrs["config"]
        file.attrs["config"] = file.attrs["config"].replace(old, new)

    return damage


# The attribute of the last round's slot is 0: round 4 of 5.
DAMAGE = {
    "a count too many": (
        change("histogram/counts", (2, 1, 5), lambda n: n + 1),
        ["histogram: round 2, rung 1: 121 counts for 120 moves"],
    ),
    "a count below the bins": (change("histogram/outside", (0, 3, 0), 1), ["histogram: round 0"]),
    "a count in another bin": (
        move_a_count("histogram/counts", (3, 2)),
        ["cumulative histogram: rung 2"],
    ),
    "a lane's count in another bin": (
        move_a_count("histogram/lane_counts", (0, 0, 3)),
        ["cumulative histogram: rung 0"],
    ),
    "a lane's count gone": (
        change("histogram/lane_counts", (0, 1, 0), 0),
        ["cumulative histogram: rung 1"],
    ),
    "another sum of z": (
        change("histogram/z_sum", (0, 1), lambda z: z + 0.13 * np.maximum(z, 1)),
        ["sums of z: rung 1"],
    ),
    "a sum of z that is no number": (
        change("histogram/z_sum", (0, 3, 2), np.nan),
        ["sums of z: rung 3"],
    ),
    "moves not attempted": (change("kernel/attempted", (4, 0, 0), 119), ["moves: round 4, rung 0"]),
    "more moves accepted than attempted": (
        change("kernel/accepted", (1, 2, 0), 121),
        ["moves: round 1, rung 2: [121] accepted of [120] attempted moves"],
    ),
    "negative moves": (change("kernel/accepted", (1, 2, 0), -1), ["moves: round 1, rung 2"]),
    "swaps at the wrong parity": (
        swap("exchange/attempted", (2, slice(0, 1)), (2, slice(1, 2))),
        ["swaps: round 2, rungs 0 and 1: 16 attempted, not 8", "rungs 1 and 2: 8 attempted"],
    ),
    "more swaps accepted than attempted": (
        change("exchange/accepted", (2, 0), 99),
        ["swaps: round 2, rungs 0 and 1: 99 accepted of 8 attempted"],
    ),
    "a round trip too many": (change("exchange/round_trips", (0, 7), 4), ["round trips: round 0"]),
    "a negative round trip": (change("exchange/round_trips", (0, 7), -1), ["round trips: round 0"]),
    "a walker doubled": (
        change("exchange/walker", (1, 0), lambda w: np.roll(w, 1)),
        ["walkers: round 1, exchange/walker: walkers lost or doubled in lanes 0, 1, 2"],
    ),
    "walkers of one lane swapped": (
        swap("exchange/walker", (1, 0, slice(4, 5)), (1, 1, slice(4, 5))),
        ["walkers: round 2, samples/walker: not the walkers that the previous round left there"],
    ),
    "a sample's walker doubled": (
        swap("samples/walker", (3, 1, slice(9, 10)), (3, 1, slice(10, 11))),
        ["walkers: round 3, samples/walker, sample 1: lost or doubled in lanes 1, 2"],
    ),
    "a value that does not exist": (
        change("samples/x", (0, 0, 0, 0), 4),
        ["samples: round 0, rung 0: a value of x is 4, not below 4"],
    ),
    "an output that is no number": (
        change("samples/z", (2, 3, 5), np.inf),
        ["samples: round 2, rung 3: 1 outputs are not finite"],
    ),
    "outputs that were not counted": (
        change("samples/z", (2, 3), 4.5),
        ["samples: round 2, rung 3", "outputs that the histogram did not count"],
    ),
    "an output outside the bins": (
        change("samples/z", (2, 3, 0), 90.0),
        ["samples: round 2, rung 3: 1 outputs that the histogram did not count"],
    ),
    "a state's output is no number": (change("state/z", (0, 2, 1), np.nan), ["state: 1 outputs"]),
    "another output in the state": (change("state/z", (0, 2, 1), 0.3), ["state: x or z differ"]),
    "another input in the state": (
        change("state/x", (0, 2, 1), lambda x: (x + 1) % 4),
        ["state: x or z differ from the last samples of walkers"],
    ),
    "a state's value that does not exist": (
        change("state/x", (0, 3, 7, 5), 255),
        ["state: a value of x is 255"],
    ),
    "a state's walkers doubled": (
        swap("state/walker", (0, 1, slice(2, 3)), (0, 1, slice(3, 4))),
        ["state: walkers lost or doubled in lanes 2, 3"],
    ),
    "a state's walkers swapped": (
        swap("state/walker", (0, 1), (0, 2)),
        ["state: state/walker differs from exchange/walker"],
    ),
    "no such direction": (change("state/direction", (0, 0, 0), 3), ["state: a direction"]),
    "another ladder": (change("ladder/beta", 1, 0.5), ["layout: ladder/beta"]),
    "other bins": (change("bins/edges", 3, 0.6), ["layout: bins/edges"]),
    "burn-in not over": (
        change("progress/burn_in_committed", 0, 2),
        ["counters: 2 of 3 burn-in rounds committed before 5 counted ones"],
    ),
    "more rounds than there are": (
        change("progress/rounds_committed", 0, 6),
        ["layout: ", "counters are out of range"],
    ),
    "a dataset gone": (delete, ["layout: ", "round_trips"]),
    "a dataset of another type": (
        replace("kernel/accepted", dtype=np.int32),
        ["layout: ", "kernel/accepted has the wrong shape or type"],
    ),
    "a dataset in pieces": (
        replace("samples/z", chunks=(1, 1, S)),
        ["samples/z is not contiguous"],
    ),
    "a dataset in another file": (replace_outside, ["samples/z is not contiguous"]),
    "another number of walkers in the input": (
        set_config("walkers = 8", "walkers = 4"),
        ["layout: 8 walkers, but the stored input says 4"],
    ),
    "another length of a round in the input": (
        set_config("exchanges = 3", "exchanges = 6"),
        ["histogram: round 0, rung 0: 120 counts for 240 moves", "histogram: and 15 more"],
    ),
    "an input that is none": (set_config("[sampler]", "[simpler]"), ["stored input: ", "simpler"]),
}


UNREADABLE = (
    "more rounds than there are", "a dataset gone", "a dataset of another type",
    "a dataset in pieces", "a dataset in another file",
)  # fmt: skip
"""Damage for which no reader opens a file."""


def damage_and_checksums():
    """Yield each damage with checksums that differ, and with new ones that fit it."""
    for name in DAMAGE:
        if name != "burn-in not over":  # the counter's checksum says that it is over
            yield pytest.param(name, False, id=f"{name}, checksums differ")
        if name not in UNREADABLE:  # no checksums of that
            yield pytest.param(name, True, id=f"{name}, checksums fit")


@pytest.mark.parametrize(("name", "sealed"), list(damage_and_checksums()))
def test_damage_is_found(name, sealed, path):
    damage, expected = DAMAGE[name]
    with changing(path) if sealed else h5py.File(path, "r+", locking=False) as file:
        damage(file)
    _, findings = verify_file(path)
    assert findings
    for words in expected:
        assert any(words in line for line in findings), findings
    assert any(line.startswith("checksums: ") for line in findings) or sealed or name in UNREADABLE


def test_damage_is_told_and_ends_with_1(capfd, path):
    with h5py.File(path, "r+", locking=False) as file:
        file["samples/z"][2, 3, 5] = np.nan
    code, text = call(capfd, "--verify", path)
    assert code == 1
    assert "WRONG  samples: round 2, rung 3: 1 outputs are not finite" in text
    assert "Traceback" not in text


def test_a_round_that_the_file_does_not_hold_is_found(path):
    with open_run(path) as run:
        longer = layout.Geometry(**{**vars(run.geometry), "rounds": 7})
        toml = run.config_toml.replace("rounds = 5", "rounds = 7")
    layout.grow(path, longer, toml)
    assert verify_file(path)[1] == []
    with h5py.File(path, "r+", locking=False) as file:
        file["progress/rounds_committed"][0] = 6
    assert any("histogram: round 5, rung 0: 0 counts" in line for line in verify_file(path)[1])


def test_a_run_in_burn_in_is_verified_too(path):
    with changing(path) as file:
        file["progress/rounds_committed"][0] = 0
        file["progress/burn_in_committed"][0] = 2  # burn-in round -2: slot 0
    assert verify_file(path, 10)[1] == []
    with h5py.File(path, "r+", locking=False) as file:
        file["state/walker"][0, 0, 0] = 1
    assert any("state: walkers lost" in line for line in verify_file(path)[1])


def test_a_disk_that_fails_is_a_finding(path, monkeypatch):
    def fail(*arguments):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("omniinput_hpc.cli.verify._cumulative", fail)
    assert any("reading: " in line for line in verify_file(path)[1])


def test_what_is_no_run_file_is_bad_input(capfd, path, tmp_path):
    text_file, other = tmp_path / "text.h5", tmp_path / "other.h5"
    text_file.write_text("hello")
    with h5py.File(other, "w") as file:
        file["data"] = [1, 2]
    for arguments, words in [
        (["--verify", tmp_path / "nothing.h5"], "no such run file"),
        (["--verify", text_file], "not a readable HDF5"),
        (["--verify", other], "not an omniinput_hpc run"),
        (["--verify"], "RUN.h5"),
        (["--verify", path, "--rescore", "0"], "a whole number of at least 1, found '0'"),
        (["--verify", path, "--doctor"], "not allowed with"),
        (["input.toml", "--rescore", "3"], "--rescore requires --verify"),
        (["--verify", path, "--rescore", "3", "--set", "model.factory=nowhere:make"], "no module"),
    ]:
        code, text = call(capfd, *arguments)
        assert code == 2
        assert words in text
        assert "Traceback" not in text


def test_rescored_samples_agree_and_are_spread(capfd, path):
    code, text = call(capfd, "--verify", path, "--rescore", "100")
    assert code == 0
    assert "rescored 100 samples on " in text
    assert "largest difference 0 " in text
    assert "0 in a different bin" in text
    assert "rescored 800 samples" in verify_file(path, 10_000)[0][1]
    with open_run(path) as run:
        parts = choose_samples(run, 20)
        assert set(parts) == {(r, k) for r in range(5) for k in range(4)}
        assert sum(map(len, choose_samples(run, 100).values())) == 100


def test_another_input_beside_an_output_is_found_by_rescoring_alone(path):
    with changing(path) as file:
        file["samples/x"][2, 1, 7] = (file["samples/x"][2, 1, 7] + 2) % 4
    assert verify_file(path)[1] == []
    findings = verify_file(path, 10_000)[1]
    assert len(findings) == 1
    assert "rescored: round 2, rung 1, sample 7: stored z = " in findings[0]


def test_another_model_is_found(path):
    findings = verify_file(path, 50, ["model.options.unit=0.5"])[1]
    assert any("model: its files or options have changed" in line for line in findings)
    assert any("rescored: round" in line for line in findings)
    findings = verify_file(path, 50, ["model.options.n_sites=5"])[1]
    assert any(
        "model: 5 sites of 4 values; the run's model has 6 of 4" in line for line in findings
    )
    nan = verify_file(path, 800, ["model.factory=toy_models:nan"])[1]
    assert any("the model gives nan" in line for line in nan)


@pytest.mark.slow
def test_a_live_run_can_be_verified(tmp_path):
    toml, path = tmp_path / "lattice.toml", tmp_path / "run.h5"
    toml.write_text(LATTICE.format(output=path))
    # a round that takes less time than to read the file twice cannot be verified: here over 1.8 s
    settings = [
        "run.rounds=10000",
        "run.burn_in=0",
        "model.factory=slow_models:slow",
        "model.options.seconds=0.03",
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    process = subprocess.Popen(
        command(toml, *words), stderr=subprocess.PIPE, env=environment(), cwd=ROOT
    )
    try:
        end, seen = time.monotonic() + PATIENCE, set()
        while len(seen) < 2 and time.monotonic() < end:
            if path.exists():
                with open_run(path) as run:
                    seen.add(run.rounds)
                assert verify_file(path)[1] == []
            time.sleep(0.1)
        assert len(seen) == 2
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


METHODS = {
    "ancestral": [
        "model.factory=markov_model:markov", "ladder.betas=[0.0, 2.5, 5.0, 7.0]",
        "samples.every=1", "bins.lower=0.0", "bins.upper=8.0",
    ],
    "annealed": [
        "model.factory=markov_model:markov", "ladder.betas=[5.0, 6.0, 7.0, 8.0]",
        "samples.every=1", "bins.lower=0.0", "bins.upper=8.0", "run.burn_in=1",
        "kernel.name=lm-conditional",
    ],
    "wang-landau": ["run.burn_in=6", "wang_landau.windows=2", "ladder.betas=[0.0, 2.0]"],
    "parallel-tempering": ["run.burn_in=8", "ladder.tune=true", "samples.every=1"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_runs_of_the_other_methods_agree(method, capfd, tmp_path):
    toml, path = tmp_path / "lattice.toml", tmp_path / "run.h5"
    toml.write_text(LATTICE.format(output=path))
    words = [f"sampler.method={method}", *METHODS[method]]
    code, text = call(capfd, toml, *(part for word in words for part in ("--set", word)))
    assert code == 0, text
    notes, findings = verify_file(path, 50)
    assert findings == []
    assert "rescored 50 samples" in notes[-1]
    with h5py.File(path, "r+") as file:
        swaps = file["exchange/attempted"][...]
        assert (method in ("ancestral", "annealed")) == (not swaps.any())
        file["exchange/attempted"][1, 2] += 1  # also where none are due
    assert any(line.startswith("swaps: round 1") for line in verify_file(path)[1])
