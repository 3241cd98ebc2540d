"""Two numbers of ranks and a kill, the short form of `campaign.py`; and streams keyed by ranks."""

import pytest
from lane_blocks.campaign import Campaign

pytestmark = pytest.mark.slow


@pytest.mark.timeout(1800)
def test_blocks_on_one_rank_and_on_four(tmp_path):
    campaign = Campaign(tmp_path)
    campaign.compare(2, "gather")
    campaign.kill(8, 4)
    assert campaign.problems == []


@pytest.mark.timeout(1800)
def test_random_numbers_that_depend_on_ranks_are_caught(tmp_path):
    campaign = Campaign(tmp_path, module="lane_blocks.wrong")
    campaign.compare(8, "gather")
    assert any("samples/x" in problem for problem in campaign.problems)
