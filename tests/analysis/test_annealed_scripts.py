"""What the scripts say of an annealed run, alone and beside a ladder."""

import pytest

from omniinput_hpc.cli import run as launch
from omniinput_hpc.cli.verbs import compare, diagnose, precision_recall, reweight

pytestmark = pytest.mark.usefixtures("undrawn")

INPUT = """
[run]
output = "{output}"
seed = {seed}
rounds = 24
burn_in = {burn_in}
[model]
kind = "python"
factory = "markov_model:markov"
[sampler]
method = "{method}"
walkers = 64
steps = 2
exchanges = 2
[ladder]
betas = {betas}
[kernel]
name = "lm-conditional"
[bins]
lower = 0.0
upper = 8.0
width = 0.25
[samples]
every = 1
"""
CASES = {
    "annealed": {"seed": 1, "burn_in": 0, "betas": [5.0, 6.0, 7.0]},
    "parallel-tempering": {"seed": 2, "burn_in": 4, "betas": [0.0, 2.5, 5.0, 6.0, 7.0]},
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    for method, case in CASES.items():
        toml, found[method] = folder / f"{method}.toml", folder / f"{method}.h5"
        toml.write_text(INPUT.format(output=found[method], method=method, **case))
        assert launch.main([str(toml)]) == 0
    return found


def test_constants_are_printed(paths, capsys):
    reweight.main([str(paths["annealed"])])
    said = capsys.readouterr().out
    assert "converged: yes" in said and "absolute" in said
    assert "beta = 5: ln Z = 1.6094 +- 0.0000 (standard error; 768 populations" in said  # ln 5
    diagnose.main([str(paths["annealed"])])
    said = capsys.readouterr().out
    assert "beta = 7: ln Z = " in said and "not of what they weigh" in said


def test_both_kinds_of_runs_join_and_agree(paths, capsys):
    one, other = map(str, paths.values())
    reweight.main([one, other])
    said = capsys.readouterr().out
    assert "disagree" not in said and "ln Z = " in said
    compare.main([other, one])
    assert "agree within their errors" in capsys.readouterr().out


def test_a_curve_by_a_rule(paths, capsys):
    """Draws are weighted to all inputs of a bin, so that both runs' curves are of one model."""
    values = []
    for path in paths.values():
        precision_recall.main([str(path), "--rule", "toy_rules:begins_with_zero"])
        said = capsys.readouterr().out
        assert "Traceback" not in said
        values.append(said)
    assert all(".pr.csv" in said for said in values)
