"""What is at the output's path: each refusal, and what a resumed run may change."""

import errno
import logging
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
from run_tools import LATTICE
from runs_in_progress import FINGERPRINT, WORLD, begin, config_of, identity_of, sampled
from sealed_changes import changing

from omniinput_hpc import models
from omniinput_hpc.cli.salvage import salvage_file
from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import side_checkpoint
from omniinput_hpc.runfile.layout import checkpoint_of
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.sampling import build, loop, restart
from omniinput_hpc.sampling.restart import Existing, check_resume, find_existing

SMALL = ("run.rounds=2", "run.burn_in=1", "sampler.exchanges=1", "sampler.steps=4")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with the finished run of two rounds."""
    folder = tmp_path_factory.mktemp("restart")
    sampled(folder, *SMALL)
    return folder


def refusal(config, way="auto", fingerprint=FINGERPRINT):
    with pytest.raises(UserError) as caught:
        find_existing(config, fingerprint, way)
    return str(caught.value)


def test_a_free_path_is_a_new_run(tmp_path):
    for way in ("auto", "never"):
        assert find_existing(config_of(tmp_path / "new"), FINGERPRINT, way) == Existing()
    assert not (tmp_path / "new").exists()
    words = refusal(config_of(tmp_path), "require")
    assert words == f"--restart require: there is no run file {tmp_path}/run.h5 to resume"


@pytest.mark.parametrize(("exchanges", "least"), [(1, 6), (2, 2)])
def test_a_burn_in_that_moves_no_beta_is_refused(tmp_path, exchanges, least):
    def given(burn_in):
        length = (f"sampler.exchanges={exchanges}", "run.rounds=1", f"run.burn_in={burn_in}")
        return config_of(tmp_path, "ladder.tune=true", *length)

    words = f"run.burn_in = {least - 1}: ladder.tune needs at least {least} rounds"
    assert refusal(given(least - 1)) == words
    assert find_existing(given(least), FINGERPRINT, "auto") == Existing()
    for burn_in, moves in ((least, True), (least - 1, False)):
        run = begin(given(burn_in))
        loop.sample(run)
        run.writer.close()
        (tmp_path / "run.h5").unlink()
        assert ([rung.ensemble.beta for rung in run.rungs] != run.config.beta_k.tolist()) == moves


def test_paths_that_cannot_be_used(tmp_path):
    (tmp_path / "run.h5").mkdir()
    assert refusal(config_of(tmp_path)).endswith("run.h5 is a folder; it must name a file")
    (tmp_path / "file").touch()
    assert refusal(config_of(tmp_path / "file/x")).endswith(f"{tmp_path}/file is not a folder")
    (tmp_path / "run.h5").rmdir()
    (tmp_path / "run.h5").write_text("no run")
    assert "not a readable HDF5" in refusal(config_of(tmp_path))


def test_links_are_followed_or_refused(finished, tmp_path):
    config, link = config_of(tmp_path, *SMALL), tmp_path / "run.h5"
    link.symlink_to("later.h5")
    assert find_existing(config, FINGERPRINT, "auto") == Existing()
    for target in ("missing/run.h5", "run.h5"):  # the second leads to itself
        link.unlink()
        link.symlink_to(target)
        words = f"run.h5 is a link to {target}, whose folder does not exist; create (or mount)"
        assert words in refusal(config)
        assert link.is_symlink() and len(list(tmp_path.iterdir())) == 1
    link.unlink()
    link.symlink_to(finished / "run.h5")
    assert find_existing(config, FINGERPRINT, "auto").rounds == 2


@pytest.mark.parametrize("denied", ["folder", "file"])
def test_paths_that_cannot_be_written(finished, tmp_path, monkeypatch, denied):
    monkeypatch.setattr(restart.os, "access", lambda path, how: False)
    config = config_of(finished if denied == "file" else tmp_path, *SMALL)
    assert "cannot be written" in refusal(config)


def test_a_finished_run_is_found(finished):
    found = find_existing(config_of(finished, *SMALL), FINGERPRINT, "auto")
    assert found == find_existing(config_of(finished, *SMALL), FINGERPRINT, "require")
    assert (found.resume, found.rounds, found.burn_in) == (True, 2, 1)
    assert (found.rounds_planned, found.walkers) == (2, 8)
    assert found.attributes["numpy"] == np.__version__
    assert "--restart never" in refusal(config_of(finished, *SMALL), "never")


@pytest.mark.parametrize("change", [
    "run.rounds=9", "run.threads=2", "run.device=cpu", "run.writer=gather", "analysis.side=high",
])  # fmt: skip
def test_what_is_free_to_change(finished, change):
    assert find_existing(config_of(finished, *SMALL, change), FINGERPRINT, "auto").resume


@pytest.mark.parametrize(("change", "words"), [
    ("run.seed=8", "run.seed is 7 in the file and 8 here"),
    ("run.burn_in=2", "run.burn_in is 1 in the file and 2 here"),
    ("run.precision=tf32", "run.precision is 'highest' in the file and 'tf32' here"),
    ("sampler.walkers=4", "sampler.walkers is 8 in the file and 4 here"),
    ("ladder.tune=true", "ladder.tune is False in the file and True here"),
    ("kernel.sites=2", "kernel.sites is 1 in the file and 2 here"),
    ("bins.width=0.125", "bins.width is 0.25 in the file and 0.125 here"),
    ("samples.every=2", "samples.every is 4 in the file and 2 here"),
    ("ladder.anchors=true", "ladder.anchors is False in the file and True here"),
    ("model.options.unit=0.5", "model.options is {} in the file and {'unit': 0.5} here"),
])  # fmt: skip
def test_what_makes_it_another_run(finished, change, words):
    lines = refusal(config_of(finished, *SMALL, change)).splitlines()
    assert "holds another run" in lines[0] and lines[1:] == [f"  {words}"]


@pytest.mark.parametrize(("betas", "kept"), [
    ([-2.0, 0.0, 1.5, 4.0, 6.0, 9.0], "[4.0, 6.0, 9.0]"),
    ([-4.0, -2.0, 0.0, 1.5, 4.0], "[-4.0, -2.0]"),
    ([-2.0, 0.0, 0.7, 1.5, 4.0], "[0.0, 0.7, 1.5]"),
])  # fmt: skip
def test_a_ladder_that_is_extended_gets_a_run_of_its_own(finished, betas, kept):
    said = refusal(config_of(finished, *SMALL, f"ladder.betas={betas}"))
    *_, how = said.splitlines()
    assert "with another run.output, another run.seed" in how and f"betas = {kept} " in how
    file = finished / "run.h5"
    assert f"reweight {file} {finished}/NEW.h5, and" in how
    assert how.endswith(f"precision-recall {file}+{finished}/NEW.h5")
    with_seed = config_of(finished, *SMALL, f"ladder.betas={betas}", "run.seed=8")
    assert "to add betas, start" in refusal(with_seed)
    # bins of another width cannot be joined, and other betas are another ladder
    without = [beta for beta in betas if beta != 1.5]
    for change in ("bins.width=0.125", f"ladder.betas={without}"):
        other = config_of(finished, *SMALL, f"ladder.betas={betas}", change)
        assert "to add betas" not in refusal(other)


def test_older_files_store_true_where_anchors_are_left_out(tmp_path):
    plain = LATTICE.replace("anchors = false\n", "").format(output=tmp_path / "run.h5")
    for there, here in [(["ladder.anchors=true"], []), ([], ["ladder.anchors=true"])]:
        stored, given = (input_file.parse(plain, "a.toml", words) for words in (there, here))
        assert restart._differences(stored, given) == []


def test_other_files_and_fewer_rounds_are_refused(finished):
    words = refusal(config_of(finished, *SMALL), fingerprint="other")
    assert words.endswith("the model's files or options have changed")
    fewer = refusal(config_of(finished, *SMALL, "run.rounds=1"))
    assert "run.rounds = 1" in fewer and "run.rounds can only be raised" in fewer


@pytest.fixture(scope="module")
def rebuilt(finished):
    """The run, built again: what `check_resume` is given."""
    config = config_of(finished, *SMALL)
    built = build.build(WORLD, config, None)
    return config, built.geometry, identity_of(built), find_existing(config, FINGERPRINT, "auto")


def test_the_same_model_may_resume(rebuilt, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("omniinput_hpc"), "propagate", True)
    config, g, here, found = rebuilt
    check_resume(config, replace(g, rounds=9), here, found)
    assert not caplog.records
    check_resume(config, g, replace(here, environment={"numpy": "0.1"}), found)
    assert caplog.records[0].getMessage().endswith(f"numpy {np.__version__} -> 0.1")


def test_large_outputs_may_differ_in_their_last_digits(rebuilt):
    """As on another processor: float32 near 1e4 are 1e-3 apart."""
    config = rebuilt[0]
    assert models.same_outputs([1e4, 1.0], [1e4 + 5.0, 1.0], config)
    assert not models.same_outputs([1e4, 1.0], [1e4 + 20.0, 1.0], config)
    assert not models.same_outputs([1e4, 1.0], [1e4, 1.002], config)
    assert not models.same_outputs([1.0], [np.nan], config)


@pytest.mark.parametrize("fault", ["outputs", "number of outputs", "sites"])
def test_another_model_may_not_resume(rebuilt, fault):
    config, g, here, found = rebuilt
    if fault == "outputs":
        here = replace(here, probe_z=[z + 0.25 for z in here.probe_z])
    elif fault == "number of outputs":
        here = replace(here, probe_z=here.probe_z[:-1])
    else:
        g = replace(g, n_sites=g.n_sites + 1)
    words = "n_sites is 6 in the file and 7 here" if fault == "sites" else "its outputs differ"
    with pytest.raises(UserError, match=rf"holds a run of another model \({words}\)"):
        check_resume(config, g, here, found)
    check_resume(config, g, here, Existing())  # nothing to resume, nothing to compare


def test_damaged_walkers_are_refused(rebuilt, tmp_path):
    config, g, here, found = rebuilt
    copy = tmp_path / "run.h5"
    with open(config.run.output, "rb") as whole:
        copy.write_bytes(whole.read())
    with changing(copy) as file:
        file["state/x"][...] = 200  # beyond the four values
    moved = config_of(tmp_path, *SMALL)
    with pytest.raises(UserError, match="stored walkers are damaged"):
        check_resume(moved, g, here, found)


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    """A run of 3 rounds, whose side file is of 1."""
    folder = tmp_path_factory.mktemp("longer")
    path = sampled(folder, *SMALL, "run.rounds=3", until=1)
    with open_run(path) as run:
        side = side_checkpoint.of_run(run)
    sampled(folder, *SMALL, "run.rounds=3")
    side_checkpoint.write(checkpoint_of(path), side)
    return path


@pytest.mark.parametrize(("round_", "words"), [
    (2, r"z of round 2, rung 0 does not.*; omniinput salvage RUN.h5 NEW.h5 goes back to round 1"),
    (0, r"z of round 0, rung 0 does not.*; its side file cannot restore this round: no rounds"),
])  # fmt: skip
def test_a_damaged_old_round_is_refused_with_what_can_be_done(longer, tmp_path, round_, words):
    for file in (longer, checkpoint_of(longer)):
        shutil.copy(file, tmp_path)
    path = tmp_path / longer.name
    with h5py.File(path, "r+", locking=False) as file:
        file["samples/z"][round_, 0, 0] += 1
    restart.check_rounds(path, range(2, 4))  # another rank's rungs
    with pytest.raises(UserError, match=words):
        restart.check_rounds(path, range(4))
    if round_ == 2:
        assert salvage_file(path, tmp_path / "new.h5")[1] == []
        restart.check_rounds(tmp_path / "new.h5", range(4))


def test_a_path_that_cannot_be_used_is_refused(tmp_path, monkeypatch):
    long = f"run.output={tmp_path / ('a' * 300)}.h5"
    assert refusal(config_of(tmp_path, *SMALL, long)).endswith("be used: File name too long")

    def denied(path, **_):
        raise PermissionError(errno.EACCES, "Permission denied")

    config = config_of(tmp_path, *SMALL)
    monkeypatch.setattr(restart.os, "stat", denied)
    assert refusal(config).endswith("run.h5 cannot be used: Permission denied")
