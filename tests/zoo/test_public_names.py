"""Modules of `omniinput_zoo` under the names that pages and input files have for them."""

import importlib.util

import pytest
from run_tools import ROOT, run

from omniinput_hpc.plugins import load_function, source_of

ZOO = ROOT / "omniinput_zoo"
MODULES = sorted(path.stem for path in ZOO.glob("[a-z]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_zoo_has_its_public_name(name):
    assert importlib.util.find_spec(f"omniinput_hpc.zoo.{name}").origin == str(ZOO / f"{name}.py")


def test_a_rule_and_the_source_of_a_factory_go_by_public_names():
    rule = load_function("omniinput_hpc.zoo.toy:is_valid", "--rule")
    assert rule.__module__ == "omniinput_hpc.zoo.toy"
    assert source_of("omniinput_hpc.zoo.exact:lattice").startswith("exact.py (sha256 ")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["zoo.toy", "census", "benchmark"])
def test_a_command_is_known_by_its_public_name(module):
    done = run("--help", module=f"omniinput_hpc.{module}")
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert done.stdout.startswith(f"usage: python -m omniinput_hpc.{module} ")
