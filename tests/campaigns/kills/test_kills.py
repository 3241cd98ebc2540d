"""Six kills, the short form of `campaign.py`; and a writer that the campaign must catch."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from kills.campaign import CHAIN, Campaign
from machine import needs_parallel_hdf5

pytestmark = pytest.mark.slow


@pytest.mark.timeout(1800)
def test_nothing_is_lost_by_six_kills(tmp_path):
    campaign = Campaign(tmp_path, seed=5)
    chains = [(0, 2, "mpio", 0.002, CHAIN[:3]), (1, 1, "gather", 0.0, CHAIN[2:5])]
    with ThreadPoolExecutor(2) as pool:  # the long form has the gathering writer on 2 and 4 ranks
        list(pool.map(lambda chain: campaign.chain(*chain), chains))
    number = 2
    while not campaign.total("halfway") and number < 12:  # how long a write lasts is the machine's
        campaign.chain(number, 1, "gather", 0.0, ["in creation"])
        number += 1
    print("\n".join(campaign.lines()))
    assert not campaign.problems
    assert campaign.n_kills >= 5
    assert campaign.total("halfway") > 0
    assert campaign.total("salvaged") > 0


@pytest.mark.timeout(1800)
@needs_parallel_hdf5  # the wrong writer is a parallel one
def test_a_writer_that_counts_first_is_caught(tmp_path):
    campaign = Campaign(tmp_path, seed=5, module="kills.wrong")
    for number in range(30):  # a kill between the count and the round; where it is later, one more
        campaign.chain(number, 1, "mpio", 0.0, ["after a commit"])
        if campaign.problems:
            break
    assert any("does not match its checksum" in problem for problem in campaign.problems)
