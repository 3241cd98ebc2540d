"""The CSV files and the comparison with exact values."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
from lattice import BETA_K, MODEL, first_is_zero, independent_run
from lattice import LEVEL_EDGES as EDGES
from run_files import write_exact

from omniinput_hpc.cli import test_sets
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison.to_exact import (
    compare_curve,
    compare_density,
    offset,
)
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores
from omniinput_hpc.models.table import ConfidentSide
from omniinput_hpc.results.curve import CurveResult
from omniinput_hpc.results.density import DensityResult
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.tables import (
    read_exact,
    read_table,
    read_test_sets,
    write_table,
)


def test_tables_come_back_as_written(tmp_path):
    path = tmp_path / "t.csv"
    columns = {"a": np.array([1, 2**60]), "b": np.array([0.1, np.inf]), "c": np.array([-np.inf, 2])}
    write_table(path, columns)
    assert path.read_text().splitlines() == ["a,b,c", "1,0.1,-inf", f"{2**60},inf,2"]
    assert list(pandas.read_csv(path)) == list(columns)
    path.write_text("# one, with comma\n# two\n" + path.read_text())  # as earlier versions wrote
    header, back = read_table(path, ["a", "c"])
    assert header == ["one, with comma", "two"]
    for name in columns:
        np.testing.assert_array_equal(back[name], columns[name].astype(float))
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column z_lower"),
        ("# only a header\n", "no column z_lower"),
        ("z_lower,z_upper\n0,1\n", "no column log_g"),
        ("z_lower,z_upper,log_g\n", "no rows"),
        ("z_lower,z_upper,log_g\n0,1\n", "line 2: cut short"),
        ("z_lower,z_upper,log_g\n0,1,2\n0,1\n", "line 3: cut short"),
        ("z_lower,z_upper,log_g\n0,1,x\n", 'line 2: log_g must be a number, got "x"'),
        ("z_lower,z_upper,log_g\n0.1,0.2,1\n", "not one of the run's bins"),
        ("z_lower,z_upper,log_g\n70,71,1\n", "not one of the run's bins"),
    ],
)
def test_bad_exact_files_get_plain_messages(tmp_path, text, message):
    path = tmp_path / "exact.csv"
    path.write_text(text)
    with pytest.raises(EstimateError, match=message):
        read_exact(path, EDGES)


def test_tables_that_a_spreadsheet_has_saved(tmp_path):
    path = tmp_path / "t.csv"
    plain = "# one, with comma\nz_lower,z_upper,log_g,note\n0,0.5,-inf,x\n0.5,1,-1.25,\n"
    german = plain.replace(",", ";").replace("0.5", "0,5").replace("1.25", "1,25")
    for text in (plain, german.replace("\n", ";;\r\n"), german.upper()):
        path.write_bytes(text.encode("utf-8" if text == plain else "utf-16"))
        _, back = read_table(path, ["z_lower", "z_upper", "log_g"])
        np.testing.assert_array_equal(back["z_upper"], [0.5, 1.0])
        np.testing.assert_array_equal(back["log_g"], [-np.inf, -1.25])
    path.write_text(german.replace("0,5", "0.5"))
    with pytest.raises(EstimateError, match="use only one of them"):
        read_table(path, ["z_lower", "z_upper", "log_g"])


def test_texts_that_a_spreadsheet_would_run_are_made_safe(tmp_path):
    path = tmp_path / "t.csv"
    columns = {"name": np.array(["=1+1", "-1.5", "plain"]), "z": np.array([-1.5, -2.0, -np.inf])}
    write_table(path, columns)
    lines = path.read_text().splitlines()
    assert lines == ["name,z", "'=1+1,-1.5", "-1.5,-2", "plain,-inf"]


def test_missing_or_binary_exact_file(tmp_path):
    with pytest.raises(EstimateError, match="no such file"):
        read_exact(tmp_path / "none.csv", EDGES)
    (tmp_path / "binary.csv").write_bytes(b"\x89HDF\xff\xfe")
    with pytest.raises(EstimateError, match="not a text file"):
        read_exact(tmp_path / "binary.csv", EDGES)
    write_table(tmp_path / "d.csv", {n: np.ones(1) for n in ("z_lower", "z_upper", "log_g")})
    with pytest.raises(EstimateError, match="no column r"):
        read_exact(tmp_path / "d.csv", EDGES, ["r"])


def test_comparison_with_the_exact_density(tmp_path):
    write_exact(tmp_path / "exact.csv")
    exact = read_exact(tmp_path / "exact.csv", EDGES)
    density = density_of_run(independent_run(MODEL, BETA_K, EDGES, walkers=16, seed=1))
    result = compare_density(density, exact, 1000)
    assert result.n_bins == (MODEL.count_l() >= 1000).sum() and result.n_missing == 0
    wanted = MODEL.count_l() >= 1000
    delta = density.log_g_b[wanted] - exact.log_g_b[wanted]
    assert result.largest_delta == np.abs(delta).max() < 0.2
    assert 0.5 < result.rms_z < 1.6
    assert result.largest_error == density.log_g_error_b[wanted].max()
    assert "truth >= 1,000 inputs: 13 bins" in str(result)


def test_relative_densities_are_laid_on_the_exact_one(tmp_path):
    write_exact(tmp_path / "exact.csv")
    exact = read_exact(tmp_path / "exact.csv", EDGES, ["r"])
    run = independent_run(MODEL, BETA_K[BETA_K != 0], EDGES, walkers=16, seed=2)
    density = density_of_run(run)
    assert not density.absolute
    assert compare_density(density, exact, 1000).largest_delta < 0.2
    poor_b = density.log_g_b.copy()
    poor_b[4] += 5.0  # a bin with a huge error must not move the others
    error_b = density.log_g_error_b.copy()
    error_b[4] = 50.0
    poor = replace(density, log_g_b=poor_b, log_g_error_b=error_b)
    assert offset(poor, exact) == pytest.approx(offset(density, exact), abs=0.01)
    curve = rule_curve(density, sum_scores(run, density, first_is_zero), whole=True)
    truth = compare_curve(density, curve, exact, "low")
    assert abs(truth.sampled_common - truth.aupr_common) < 4.3 * curve.aupr_error


def test_missed_bins_are_counted(tmp_path):
    write_exact(tmp_path / "exact.csv")
    exact = read_exact(tmp_path / "exact.csv", EDGES)
    density = density_of_run(independent_run(MODEL, np.array([0.0]), EDGES, moves=5))
    result = compare_density(density, exact, 1)
    assert result.n_missing > 0
    assert result.n_bins + result.n_missing == (MODEL.count_l() > 0).sum()
    assert f"{result.n_missing} bins missed" in str(result)


def test_columns_and_header_lines():
    run = independent_run(MODEL, BETA_K, EDGES, walkers=16, seed=3)
    density = density_of_run(run)
    result = DensityResult([run], [density])
    columns = result.table()
    assert list(columns)[:5] == ["z_lower", "z_upper", "log_g", "log_g_error", "count"]
    assert list(columns)[5:] == ["effective_count", "log_g_upper", "log10_g"]
    np.testing.assert_allclose(10 ** columns["log10_g"], np.exp(columns["log_g"]))
    assert columns["count"].sum() == run.counts_kb.sum() and (columns["count"] > 0).all()
    np.testing.assert_allclose(columns["z_upper"] - columns["z_lower"], MODEL.unit)
    header = result.about()
    assert header[0].startswith("absolute: yes") and header[1] == "converged: yes"
    assert any("memory.h5, 16 of 16 rounds, 8 sites of 4 values" in line for line in header)
    curve = rule_curve(density, sum_scores(run, density, first_is_zero), whole=True)
    found = CurveResult([run], [density], curve, "r", ConfidentSide("low", ""))
    assert list(found.table())[:7] == [
        "threshold", "precision", "precision_low", "precision_high",
        "log_recall", "log_recall_low", "log_recall_high",
    ]  # fmt: skip
    assert any(line.startswith(f"AUPR: {curve.aupr:.6f}") for line in found.about())
    assert "z >= threshold" in replace(found, curve=replace(curve, side="high")).about()[0]
    assert "converged: yes" in result.summary()
    assert "converged: yes" in found.lines()


def test_what_is_wrong_stands_in_the_header():
    run = independent_run(MODEL, BETA_K[BETA_K != 0], EDGES, walkers=1, rounds=2, moves=100)
    run.rounds_planned = 9
    density = density_of_run(run)
    result = DensityResult([run], [density])
    header = result.about()
    assert header[0].startswith("absolute: no (no rung has beta = 0)")
    assert "converged: no" in header and any("one lane" in line for line in header)
    assert any("2 of 9 rounds, not finished" in line for line in header)
    assert any("relative" in line for line in result.summary())


def test_outputs_of_test_sets_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "z.csv"
    z = [np.array([1.5, -2.0]), np.array([0.25])]
    names = ("digits:1", "digits:2,3")
    parts = zip(names, z, strict=True)
    made = [test_sets.Outputs(name, "data", part, np.zeros((len(part), 8))) for name, part in parts]
    test_sets.write_outputs(path, made, Record(tmp_path / "toy.h5", "test-sets", "", {}))
    found = read_test_sets(path)
    assert list(found) == ["digits:1", "digits:2,3"]
    assert all(np.array_equal(found[name], part) for name, part in zip(found, z, strict=True))
    path.write_text("\ufeffSet;Role;Z;\r\ndigits:1;data;1,5;\r\n;;;\r\n#2;data;-2;\r\n")
    back = {name: z.tolist() for name, z in read_test_sets(path).items()}
    assert back == {"digits:1": [1.5], "#2": [-2.0]}
    for text, wanted in (
        ("", "has no column set or role or z in its first line"),
        ("set,role,z\n", "holds no outputs"),
        ("set,role,z\na,positive,high\n", 'line 2: z must be a number, got "high"'),
        ("set,role,z\na,positive,1\nb\n", "line 3: cut short"),
    ):
        path.write_text(text)
        with pytest.raises(EstimateError, match=wanted):
            read_test_sets(path)
    with pytest.raises(EstimateError, match="no such file"):
        read_test_sets(tmp_path / "nothing.csv")
