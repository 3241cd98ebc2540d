"""Every broken input is refused in words: all of them in this process, a handful on 4 ranks."""

import pytest
from bad_inputs.campaign import on_ranks
from bad_inputs.table import cases, is_refused, left_alone, places

from omniinput_hpc.cli import run

pytestmark = pytest.mark.slow

FEW = (
    "--set run.rondes=3", "--set ladder.betas=[0.0, 1.0, 2.0]", "[wang_landau] windows apart",
    "[kernel] a part without gradients", "line: no such file",
)  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    found = places(tmp_path_factory.mktemp("bad"))
    return found, cases(found)


def test_all_in_one_process(table, capfd):
    found, all_cases = table
    assert len(all_cases) >= 80
    strange = {}
    for name, (arguments, word) in all_cases.items():
        if name == "--set ladder.betas=[0.0, 1.0, 2.0]":
            continue  # wrong on 4 ranks only
        code = run.main(arguments)
        out, err = capfd.readouterr()
        if not is_refused(code, out + err, word) or not left_alone(found):
            strange[name] = (code, word, out + err)
    assert not strange


@pytest.mark.parametrize("name", FEW)
def test_on_four_ranks(name, table):
    found, all_cases = table
    problem = on_ranks(*all_cases[name], found)[1]
    assert not problem
