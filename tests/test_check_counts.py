"""The count of the tests that ran: a file in no part of the serial tests, or in two, is told."""

import subprocess
import sys
import xml.etree.ElementTree as ET

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


@pytest.mark.parametrize("at", [1, 40])
def test_two_parts_that_are_all(tmp_path, at):
    parts = [write(tmp_path / "1.xml", FILES[:at]), write(tmp_path / "2.xml", FILES[at:])]
    assert counts.problems_of_serial(parts) == []


@pytest.mark.parametrize(("first", "second", "times"), [(FILES, FILES[:1], 2), (FILES[1:], [], 0)])
def test_a_file_that_is_in_no_part_or_in_two(tmp_path, first, second, times):
    parts = [write(tmp_path / f"{n}.xml", part) for n, part in enumerate((first, second)) if part]
    expected = f"{counts.junit_name(FILES[0])} is in {times} parts of the serial tests"
    assert counts.problems_of_serial(parts) == [expected]


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
    found = counts.skips([tmp_path / "report.xml"])
    assert found == {"no disk": 2, "no net": 1, "known": 1}
    assert not counts.MAY_BE_MISSING & set(found)


def test_names_of_tests():
    name = counts.junit_name("tests/a/test_b.py::TestC::test_d[x::y.py]")
    assert name == "tests.a.test_b.TestC.test_d[x::y.py]"
