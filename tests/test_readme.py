"""The README's own model runs as printed, and its statements about layout and keys hold."""

import re
import subprocess
import sys

from run_tools import ROOT, environment

from omniinput_hpc import config
from omniinput_hpc.runfile import layout
from omniinput_hpc.runfile.reader import open_run

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language, after):
    return re.search(rf"```{language}\n(.*?)```", TEXT[TEXT.index(after) :], re.DOTALL).group(1)


def test_the_model_of_ones_own_runs_as_printed(tmp_path):
    code = block("python", "## A model of your own")
    assert len(code.strip().splitlines()) <= 15
    (tmp_path / "my_model.py").write_text(code)
    (tmp_path / "my_model.toml").write_text(block("toml", "## A model of your own"))
    done = subprocess.run(
        [sys.executable, "-m", "omniinput_hpc", "my_model.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    with open_run(tmp_path / "runs/my_model.h5") as run:
        assert run.rounds == 20
        assert run.outside_k2().sum() == 0


def test_every_dataset_is_in_the_readme():
    table = TEXT[TEXT.index("## The run file") : TEXT.index("## What is where")]
    for name in layout.layout(layout.Geometry(1, 2, 1, 1, 1, 1, 2, 1)):
        group, _, leaf = name.partition("/")
        assert f"{group}/" in table and f"{leaf}`" in table, name


def test_every_key_is_in_the_readme():
    table = TEXT[TEXT.index("## The input file") : TEXT.index("## The analysis")]
    owners = [
        owner
        for owner in vars(config).values()
        if isinstance(owner, type) and config.Table in owner.__mro__ and owner is not config.Config
    ]
    assert len(owners) > 8
    for owner in owners:
        for key in owner.model_fields:
            assert f"`{key}" in table or f" {key}`" in table, key


def test_every_file_of_the_package_has_its_place_in_the_tree():
    tree = TEXT[TEXT.index("## What is where") : TEXT.index("## What is not built")]
    for path in (ROOT / "omniinput_hpc").glob("*.py"):
        if path.name not in ("__init__.py", "errors.py"):
            assert path.name in tree, path.name
