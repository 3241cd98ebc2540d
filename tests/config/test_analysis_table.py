"""The table [analysis]: free on resume, and what the job script takes its options from."""

import subprocess

import pytest
from run_tools import LATTICE, ROOT, contents, run

from omniinput_hpc.runfile.reader import open_run


@pytest.mark.slow
def test_another_analysis_resumes_with_the_same_bytes(tmp_path):
    """A run that began without the table goes on with one, then with another, as if without."""
    toml = tmp_path / "a.toml"
    toml.write_text(LATTICE.format(output=tmp_path / "without.h5"))
    assert run(toml).returncode == 0
    resumed = ("--set", f"run.output={tmp_path / 'with.h5'}")
    assert run(toml, *resumed, "--set", "run.rounds=2").returncode == 0
    for words in (["analysis.rule=a:b", "run.rounds=4"], ["analysis.side=high", "run.rounds=5"]):
        done = run(toml, *resumed, *(w for word in words for w in ("--set", word)))
        assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "with.h5") == contents(tmp_path / "without.h5")
    with open_run(tmp_path / "with.h5") as made:
        assert made.config["analysis"] == {"side": "high"}


def test_the_job_script_reads_keys_and_no_comments():
    text = (ROOT / "jobscripts/local.sh").read_text()
    assert "sed " not in text and "# rule" not in text
    for file in (ROOT / "inputs").glob("*.toml"):
        assert "# rule" not in file.read_text() and "# side" not in file.read_text()
    subprocess.run(["bash", "-n", str(ROOT / "jobscripts/local.sh")], check=True)
