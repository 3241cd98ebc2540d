"""Two files, the short form of `campaign.py`; and a salvage that the campaign must catch."""

import pytest
from salvage.campaign import Campaign

from omniinput_hpc.runfile.layout import checkpoint_of

pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)
def test_every_round_of_two_files_comes_back(tmp_path):
    campaign = Campaign(tmp_path, seed=5)
    for number in (1, 6):
        campaign.one(number)
    print("\n".join(campaign.lines()))
    assert not campaign.problems
    assert sum(counts["files"] for counts in campaign.table.values()) == 2


@pytest.mark.timeout(600)
def test_a_run_without_side_files_is_caught(tmp_path):
    """A variant that is wrong on purpose: the side file goes before the file is destroyed."""

    class Without(Campaign):
        def look(self, path, intact, new, committed):
            checkpoint_of(path).unlink()
            yield from super().look(path, intact, new, committed)

    campaign = Without(tmp_path, seed=5)
    campaign.one(1)
    assert any("has no side file" in problem for problem in campaign.problems)
