"""Two lost files, the short form of `campaign.py`; and a writer that the campaign must catch.

tests/runfile/test_open_file.py has all ways, without a launcher.
"""

import pytest
from lost_file.campaign import WRITERS, Campaign

pytestmark = pytest.mark.slow


@pytest.mark.timeout(1800)
def test_lost_files_are_noticed(tmp_path):
    campaign = Campaign(tmp_path)
    campaign.lose("replaced by a copy", WRITERS[0])
    campaign.lose("folder renamed", WRITERS[-1])
    assert campaign.problems == []


@pytest.mark.timeout(1800)
def test_a_writer_that_does_not_look_is_caught(tmp_path):
    campaign = Campaign(tmp_path, module="lost_file.wrong")
    campaign.lose("deleted", "gather")
    assert any("exit code 0" in problem for problem in campaign.problems)
