"""The count of the tests that ran: a file whose tests were not run is reported."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from run_tools import ROOT, loaded

counts = loaded("tests/mpi/check_counts.py")

FILES = [
    str(path.relative_to(ROOT))
    for path in sorted((ROOT / "tests").rglob("test_*.py"))
    if path.relative_to(ROOT / "tests").parts[0] not in counts.RUN_APART
]


def write(path, files):
    """Write a junit file of a test of each file, the last one's module having skipped itself."""
    suite = ET.Element("testsuite")
    for file in files[:-1]:
        ET.SubElement(suite, "testcase", classname=counts.junit_name(file), name="test_a[1]")
    ET.SubElement(suite, "testcase", classname="", name=counts.junit_name(files[-1]))
    ET.ElementTree(suite).write(path)
    return path


def test_a_report_of_all_files(tmp_path):
    assert counts.problems_of_serial(write(tmp_path / "serial.xml", FILES), []) == []


@pytest.mark.parametrize("left_out", [FILES[3], str(Path(FILES[3]).parent)])
def test_a_file_that_was_not_run(tmp_path, left_out):
    report = write(tmp_path / "serial.xml", [file for file in FILES if file != FILES[3]])
    assert counts.problems_of_serial(report, []) == [f"no test of {FILES[3]} was run"]
    assert counts.problems_of_serial(report, [left_out]) == []


def test_skipped_tests_are_counted_by_reason(tmp_path):
    """Of a file that is written here, whose tests skip and fail on purpose to be counted."""
    (tmp_path / "test_a.py").write_text(
        "import pytest\n"
        "@pytest.mark.skipif(True, reason='no disk')\n"
        "@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_a(n): pass\n"
        "def test_b(): pytest.skip('no net')\n"
        "def test_c(): pytest.xfail('known')\n"
        "def test_d(): pass\n"
    )
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junitxml=report.xml", "."]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    found = counts.skips(tmp_path / "report.xml")
    assert found == {"no disk": 2, "no net": 1, "known": 1}
    assert not counts.MAY_BE_MISSING & set(found)


def test_names_of_tests():
    name = counts.junit_name("tests/a/test_b.py::TestC::test_d[x::y.py]")
    assert name == "tests.a.test_b.TestC.test_d[x::y.py]"
