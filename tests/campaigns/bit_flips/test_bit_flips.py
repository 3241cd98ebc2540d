"""Bits that flip in a run file, the short form of `campaign.py`; and a reader that is caught."""

import pytest
from bit_flips.campaign import METHODS, Campaign, make_all, outcome

from omniinput_hpc.runfile import checksums

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    some = {name: METHODS[name] for name in ("parallel tempering", "gaussian")}
    return make_all(tmp_path_factory.mktemp("flips"), some)


@pytest.fixture
def campaign(files, tmp_path, hdf5_trials):
    return Campaign(tmp_path, 3, files)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("method", ["parallel tempering", "gaussian"])
def test_no_flip_is_harmful_and_undetected(campaign, method):
    campaign.flips(method, 36)
    print("\n".join(campaign.lines()))
    assert not campaign.problems
    found = [counts for (name, _), counts in campaign.table.items() if name == method]
    assert sum(counts["flips"] for counts in found) == 36
    assert sum(counts["found"] for counts in found) > 10


@pytest.mark.timeout(1800)
def test_a_reader_that_compares_nothing_is_caught(campaign, monkeypatch):
    """A variant that is wrong on purpose: everything fits its checksum."""
    monkeypatch.setattr("omniinput_hpc.runfile.checked_datasets.CheckedDatasets._compare", nothing)
    monkeypatch.setattr(checksums, "wrong_attributes", lambda *_: iter(()))
    campaign.flips("gaussian", 30)
    assert any("did not notice" in problem for problem in campaign.problems)


def nothing(*_):
    pass


def test_outcomes():
    good, no = ["a", "b", []], ["refused", "why"]
    assert outcome(["a", "b", ["unused bytes differ"]], good)[0] == "harmless"
    assert outcome([no, no, ["found"]], good)[0] == "found"
    assert outcome([no, no, []], good)[0] == "harmful"
    assert outcome(["c", no, ["found"]], good)[0] == "harmful"
    assert outcome([no, "b", ["found"]], good)[0] == "harmful"
    assert outcome(["a", "c", ["found"]], good)[0] == "harmful"
    assert outcome([no, ["failed", "IndexError"], []], good) == ("failed", "IndexError")
