"""The distribution: the files of its wheel and sdist, its version, and the lock file."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser

import pytest
from packaging.requirements import Requirement
from run_tools import ROOT

from omniinput_hpc import __version__

PACKAGES = ("omniinput_hpc", "omniinput_zoo")
LOCK = ROOT / "jobscripts/constraints.txt"


def files_of_the_packages():
    """Return the names of all files of both packages, those behind links included."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_environment_for_conda_has_all_requirements():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    needed = config["options"]["install_requires"] + config["options.extras_require"]["run"]
    at_conda = {"torch": "pytorch", "matplotlib": "matplotlib-base", "xxhash": "python-xxhash"}
    lines = (ROOT / "jobscripts/environment.yml").read_text(encoding="utf-8").splitlines()
    listed = {re.split("[=>< ]", line.strip(" -"))[0] for line in lines if line.startswith("  - ")}
    names = {re.split("[=><]", one)[0] for one in needed.split()}
    assert "torch" in names
    assert {at_conda.get(name, name) for name in names} <= listed


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a folder with the wheel and the sdist, built from a copy and without a network."""
    source = tmp_path_factory.mktemp("source")
    for name in (*PACKAGES, "inputs"):
        left_out = shutil.ignore_patterns("__pycache__", "smollm2-*")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=left_out)
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.cfg"):
        shutil.copy(ROOT / name, source)
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", "."]
    done = subprocess.run(words, cwd=source, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    return source / "dist"


@pytest.mark.slow
def test_the_wheel_holds_all_files_of_the_packages(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert names == files_of_the_packages()
        model = "inputs/models/toy/model.safetensors"
        content = wheel.read(f"omniinput_hpc/examples/toy/{model}")
        assert content == (ROOT / model).read_bytes()


@pytest.mark.slow
def test_the_sdist_holds_what_the_wheel_is_built_from(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        files = {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}
    assert files_of_the_packages() | {"LICENSE", "README.md", "setup.cfg"} <= files


@pytest.mark.slow
def test_the_version_stands_in_one_place(built):
    assert {path.name.split("-")[1].removesuffix(".tar.gz") for path in built.iterdir()} == {
        __version__
    }
    for name in ("setup.cfg", "pyproject.toml", "CITATION.cff", "docs/site/conf.py"):
        assert __version__ not in (ROOT / name).read_text(encoding="utf-8"), name


def requirements(name, extra):
    """Return what a distribution needs; for this one as setup.cfg has it now."""
    if name != "omniinput-hpc":
        found = map(Requirement, importlib.metadata.requires(name) or ())
        return [r for r in found if r.marker is None or r.marker.evaluate({"extra": extra})]
    options = ConfigParser()
    options.read(ROOT / "setup.cfg")
    text = (
        options["options.extras_require"][extra]
        if extra
        else options["options"]["install_requires"]
    )
    return [Requirement(line) for line in text.split("\n") if line]


def needed(extra):
    """Return the names of all distributions that an extra needs, directly or not."""
    waiting, seen = [("omniinput-hpc", ""), ("omniinput-hpc", extra)], set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) not in seen:
            seen.add((name, wanted))
            for requirement in requirements(name, wanted):
                waiting += [(key(requirement.name), more) for more in ("", *requirement.extras)]
    return {name for name, _ in seen} - {"omniinput-hpc"}


def key(name):
    """Return the normalized name of a distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_file_names_each_package_as_it_is_installed():
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    pins = (line.split("==") for line in lines if "==" in line and line[0] != "#")
    locked = {key(name): version for name, version in pins}
    names = needed("test")
    assert len(names) > 100
    assert {name: locked.get(name) for name in names} == {
        name: importlib.metadata.version(name).partition("+")[0] for name in names
    }
