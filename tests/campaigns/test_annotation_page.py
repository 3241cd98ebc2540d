"""Two annotators on one folder, their servers killed at random: a short version of the campaign."""

import pytest
from annotation_page import kill_campaign

pytestmark = pytest.mark.slow


def test_every_acknowledged_score_is_in_the_files(tmp_path):
    rows = kill_campaign(tmp_path, 24, mean=8)
    assert [(name, done, lost) for name, done, _, _, lost in rows] == [
        ("ana", 24, 0),
        ("ben", 24, 0),
    ]
    assert sum(kills for _, _, kills, _, _ in rows) >= 3


def test_a_server_that_acknowledges_too_early_is_found_out(tmp_path):
    rows = kill_campaign(tmp_path, 12, mean=50, script="tests/helpers/forgetful_server.py")
    assert sum(lost for *_, lost in rows) > 0
