"""Seven files, the short form of `campaign.py`; and runs that the campaign must catch."""

import pytest
from salvage.campaign import DAMAGE, Campaign

from omniinput_hpc.runfile import salvage, side_checkpoint
from omniinput_hpc.runfile.layout import checkpoint_of

pytestmark = pytest.mark.slow


@pytest.mark.timeout(1800)
def test_every_round_of_seven_files_comes_back(tmp_path):
    campaign = Campaign(tmp_path, seed=5)
    for number in (0, 1, 2, 3, 5, 6, 11):  # each damage once; all of one process
        campaign.one(number)
    print("\n".join(campaign.lines()))
    assert not campaign.problems
    assert len(campaign.table) == len(DAMAGE)
    assert all(counts["salvaged"] == 1 for counts in campaign.table.values())
    assert not any(counts["readable"] for counts in campaign.table.values())


def test_without_a_side_file_nothing_comes_back(tmp_path):
    class Without(Campaign):
        def look(self, path, *others):
            checkpoint_of(path).unlink()
            yield from super().look(path, *others)

    campaign = Without(tmp_path, seed=5)
    campaign.one(1)
    assert "has no side file" in campaign.problems[0]


def test_a_side_file_that_is_one_round_wrong_is_caught(tmp_path, monkeypatch):
    """A variant that is wrong on purpose: salvaging drops the newest round."""
    states = salvage.OldFile.states
    monkeypatch.setattr(salvage.OldFile, "states", lambda old: states(old)[1:] or states(old))
    monkeypatch.setattr(side_checkpoint, "EVERY", 1e9)
    campaign = Campaign(tmp_path, seed=5)
    campaign.one(3)
    assert any("rounds are there" in problem for problem in campaign.problems)
