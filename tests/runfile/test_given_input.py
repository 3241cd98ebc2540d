"""The input that a command line names: a run file holds its own, wherever it is now."""

import pytest
from run_files import write_run
from run_tools import LATTICE

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import given_input


def test_an_input_file_and_a_run_file(tmp_path, monkeypatch):
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    (tmp_path / "a.toml").write_text(LATTICE.format(output="$SCRATCH/a.h5"))
    found = given_input.load(tmp_path / "a.toml", ["run.rounds=9"])
    assert (found.run.output, found.run.rounds) == (str(tmp_path / "a.h5"), 9)
    (tmp_path / "folder.h5").mkdir()
    with pytest.raises(UserError, match=r"folder\.h5 is a folder; expected a run file"):
        given_input.load(tmp_path / "folder.h5")


@pytest.mark.parametrize("name", ["it's \"5\" o'clock.h5", "a\nb.h5", "back\\slash.h5", "$NO.hdf5"])
def test_a_run_files_own_name_is_taken_as_it_is(tmp_path, monkeypatch, name):
    """Another node has other variables, or none; a name may hold any character."""
    monkeypatch.delenv("NO", raising=False)
    write_run(tmp_path / "a.h5", rounds=1)
    (tmp_path / "a.h5").rename(tmp_path / name)
    found = given_input.load(tmp_path / name, ["run.rounds=7"])
    assert (found.run.output, found.run.rounds) == (str(tmp_path / name), 7)
