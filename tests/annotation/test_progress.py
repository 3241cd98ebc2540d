"""How far all annotators are: a row each, without a score."""

from task_files import make_tasks

from omniinput_hpc.annotation.progress import as_html, progress_of
from omniinput_hpc.annotation.scores import Score, add_score_files, scores_path


def test_progress_of_nobody_of_judges_and_of_a_damaged_file(tmp_path):
    tasks = make_tasks(tmp_path, 5)
    assert "Nobody has scored" in as_html(progress_of(tasks), 5)
    when = "2026-01-02T03:04:05.678+00:00"
    line = Score(id="id0002", score=1.0, when=when, annotator="j", judge="r")
    add_score_files(tasks, {"j": [line]})
    scores_path(tasks.path, "zoe").write_text("{<b>\n")
    scores_path(tasks.path, "eva").write_text("")
    eva, zoe, judge = progress_of(tasks)
    assert (judge.name, judge.is_judge, judge.done, judge.seconds) == ("j", True, 1, None)
    assert (eva.name, eva.done, eva.last) == ("eva", 0, "")
    assert "zoe.jsonl" in zoe.name and zoe.problem
    text = as_html([judge, eva, zoe], 5)
    assert "j (judge)" in text and "2026-01-02 03:04:05 UTC" in text and "<b>" not in text
