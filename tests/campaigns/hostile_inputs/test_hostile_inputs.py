"""Untrusted input is refused in words: some cases here, all of them by the campaign."""

import os

import pytest
from hostile_inputs.campaign import LIMIT, all_cases, on_ranks, outcome, problem_of
from run_tools import ROOT

FEW = (
    "config.json: n_layer of 100000", "config.json: a pipe", "model.safetensors: /dev/zero",
    "weights of decoder: a huge shape", "TOML: 10^12 rungs", "TOML: 10^12 windows", "TOML: a pipe",
    "TOML: a key of 100,000 dots", "tokenizer.json: deep lists",
)  # fmt: skip


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    os.chdir(ROOT)
    return all_cases(tmp_path_factory.mktemp("hostile"))


def refusals(cases, names):
    wrong = {}
    for name in names:
        problem = problem_of(name, *outcome(cases[name]()))
        if problem:
            wrong[name] = problem
    return wrong


@pytest.mark.timeout(1800)
def test_some_are_refused_in_one_process(cases):
    assert len(cases) >= 250
    assert set(FEW) <= set(cases)
    assert refusals(cases, [*FEW, *list(cases)[5::40]]) == {}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_are_refused_in_one_process(cases):
    assert refusals(cases, cases) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["config.json: a pipe", "config.json: n_layer of 100000", "TOML: 10^12 rungs"]
)
def test_no_rank_is_left_behind(cases, name):
    code, text, seconds = on_ranks(cases[name](), 2)
    assert problem_of(name, code, text, min(seconds, LIMIT)) == ""


def test_an_archive_of_torch_export_is_an_unknown_format_everywhere(cases):
    names = [name for name in cases if name.startswith("an archive with two entries")]
    assert len(names) == 20
    assert refusals(cases, names) == {}
    assert not (ROOT / "ran").exists()


def test_a_case_that_is_not_refused_is_found():
    """The wrong variants."""
    assert problem_of("x", 0, "complete", 1.0) == "exit code 0: complete"
    assert "exit code 1" in problem_of("x", 1, "Traceback", 1.0)
    assert problem_of("x", 2, "", 1.0) and problem_of("x", 2, "a", 11.0) == "11.0 s"
    assert problem_of("x", 2, "a", 1.0) == ""
