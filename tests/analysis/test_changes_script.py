"""changes.py as a user calls it: tables, pictures, the inputs that change most, plain messages."""

import json

import numpy as np
import pandas
import pytest
from lattice import independent_run
from rules_file import RULE, write_rules
from script_tools import inside, is_plain, is_png
from two_outputs import EDGES, MODEL, drawn, other_of, put, put_rescored

__all__ = ["inside"]

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path, inside):
    found = drawn(1)
    put_rescored(put(tmp_path / "a.h5", found), "other", other_of(found.x_rksd))
    write_rules(tmp_path)
    return found


def test_tables_pictures_and_lines(run, inside, tmp_path):
    rule = ["--rule", RULE, "--show", 2, "--show-below", 2.0]
    code, out, err = inside("changes.py", "a.h5", "a.rescored.other.h5", *rule)
    assert (code, err) == (0, "")
    table = pandas.read_csv("a.changes.other.csv")
    assert list(table) == [
        "z_lower", "z_upper", "draws", "effective", "mean_change", "mean_change_error", "sd_change",
    ]  # fmt: skip
    assert table["draws"].sum() == run.z_rks.size and (table["mean_change"] > 0).mean() > 0.8
    both = pandas.read_csv("a.log_g_changes.other.csv")
    np.testing.assert_allclose(both["other_log_g"] - both["log_g"], both["change"])
    assert is_png(tmp_path / "a.changes.other.png")
    assert "a: converged" in out and "other: converged" in out
    assert "AUPR of a " in out and ", change -" in out
    shown = [line for line in out.splitlines() if ", z' " in line and "(z " in line]
    changes = [float(line.split()[0]) for line in shown]
    assert len(shown) == 4 and changes == sorted(changes, reverse=True)
    d = other_of(run.x_rksd)[run.z_rks <= 2.0].astype(float) - run.z_rks[run.z_rks <= 2.0]
    assert changes[0] == pytest.approx(d.max(), abs=1e-4)
    assert changes[-1] == pytest.approx(d.min(), abs=1e-4)
    (entry,) = json.loads((tmp_path / "a.results.json").read_text())["analyses"]
    assert entry["analysis"] == "changes" and "change of the AUPR" in entry["values"]
    code, _, _ = inside("changes.py", "a.h5", "a.rescored.other.h5", "--width", 1.0)
    assert code == 0
    wide = pandas.read_csv("a.changes.other.csv")
    assert len(wide) <= len(table) / 2 + 1 and wide["draws"].sum() == run.z_rks.size


def test_of_fewer_rounds_those_draws_count(run, inside, tmp_path):
    side = put_rescored(tmp_path / "a.h5", "part", other_of(run.x_rksd)[:6])
    code, out, _ = inside("changes.py", "a.h5", side.name)
    assert code == 0 and "6 rounds rescored" in out
    assert pandas.read_csv("a.changes.part.csv")["draws"].sum() == run.z_rks[:6].size


def test_what_is_refused(run, inside, tmp_path):
    chains = independent_run(MODEL, np.array([0.0, 1.0]), EDGES, moves=8)
    put_rescored(put(tmp_path / "b.h5", chains), "other", other_of(chains.x_rksd))
    empty = put_rescored(tmp_path / "a.h5", "empty", other_of(run.x_rksd)[:0])
    for arguments, word in [
        (["b.h5", "b.rescored.other.h5"], "holds chains"),
        (["a.h5", "b.rescored.other.h5"], "of other samples than those of"),
        (["a.h5", empty.name], "no committed round"),
        (["a.h5", "none.h5"], "none.h5"),
        (["a.h5", "a.rescored.other.h5", "--show", -1], "--show"),
        (["a.h5", "a.rescored.other.h5", "--width", 0], "--width"),
        (["a.h5", "a.rescored.other.h5", "--side", "low"], "give --rule, too"),
        (["a.h5", "a.rescored.other.h5", "--recall-range=1:2"], "give --rule, too"),
    ]:
        code, _, err = inside("changes.py", *arguments)
        assert is_plain(code, err, word), (arguments, err)
