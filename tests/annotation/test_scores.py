"""Score files: the last word counts, nothing acknowledged is lost, one process at a time."""

import errno
import multiprocessing
import os
import signal
from dataclasses import asdict

import pytest
from task_files import make_tasks, word

from omniinput_hpc.annotation import scores
from omniinput_hpc.annotation.jsonl import line_of
from omniinput_hpc.annotation.scores import NotSaved, ScoreFile, find_scores, read_scores
from omniinput_hpc.errors import UserError


@pytest.fixture
def tasks(tmp_path):
    return make_tasks(tmp_path)


@pytest.fixture
def path(tasks):
    return scores.scores_path(tasks.path, "ana")


def test_the_last_word_counts(tasks, path):
    with ScoreFile(path, tasks) as file:
        file.append(word("id0000", 0.1), word("id0001", 0.2), word("id0002", 0.3))
        file.append(word("id0000", 0.4))
        file.append(word("id0001", None, undo=True))
    back = read_scores(path, tasks)
    assert back.by_id() == {"id0000": 0.4, "id0002": 0.3}
    assert (back.annotator, back.judge, len(back.lines), back.notes) == ("ana", None, 5, [])
    assert back.lines[4].undo and not back.lines[3].undo
    assert [p.name for p in find_scores(tasks.path)] == ["toy.scores.ana.jsonl"]
    assert not list(path.parent.glob("*.lock*"))


def test_each_append_is_on_the_disk_when_it_returns(tasks, path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_size), real(fd)))
    with ScoreFile(path, tasks) as file:
        synced.clear()
        file.append(word("id0000", 0.5))
        assert synced == [path.stat().st_size]


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_last_line_cut_short_is_left_out_and_mended(tasks, path, cut):
    with ScoreFile(path, tasks) as file:
        file.append(word("id0000", 0.1))
        file.append(word("id0001", 0.2))
    path.write_bytes(path.read_bytes()[:-cut])
    back = read_scores(path, tasks)
    # a line that lacks its newline alone counts, and is what `ScoreFile` completes
    assert back.by_id() == {"id0000": 0.1} | ({"id0001": 0.2} if cut == 1 else {})
    assert ["cut short" in note for note in back.notes] == ([] if cut == 1 else [True])
    with ScoreFile(path, tasks) as file:
        assert ("completed" if cut == 1 else "cut off") in file.note
        file.append(word("id0002", 0.3))
    assert read_scores(path, tasks).by_id() == back.by_id() | {"id0002": 0.3}
    assert not read_scores(path).notes


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"id": "id0000", "score": 1.01', 'line 2: "score" must be a score from 0 to 1'),
        ('{"id": "id0000", "score": NaN', 'line 2: "score" must be a score from 0 to 1, got NaN'),
        ('{"id": "id0000", "score": "1"', 'line 2: "score" must be a score from 0 to 1, got "1"'),
        ('{"id": "id0000"', 'line 2: "score" is missing'),
        ('{"id": "other", "score": 1', "no task with the id other"),
        ('{"id": "id0000", "score": 1, "seconds": -1', 'line 2: "seconds" must be'),
        ('{"id": "id0000" "score": 1', "line 2: cut short or damaged"),
    ],
)
def test_a_damaged_line_names_itself_and_the_file_is_left_alone(tasks, path, line, words):
    with ScoreFile(path, tasks) as file:
        file.append(word("id0000", 0.1))
    with path.open("a") as handle:
        handle.write(line + ', "when": "now", "annotator": "ana"}\n')
    before = path.read_bytes()
    with pytest.raises(UserError, match=words):
        read_scores(path, tasks)
    with pytest.raises(UserError, match=words):
        ScoreFile(path, tasks)
    assert path.read_bytes() == before
    assert not path.with_name(path.name + ".lock").exists()


def test_two_annotators_in_one_file(tasks, path):
    with ScoreFile(path, tasks) as file:
        file.append(word("id0000", 0.1), word("id0000", 0.1, "ben"))
    with pytest.raises(UserError, match="several annotators"):
        read_scores(path)


def test_what_may_not_be_written(tasks, path):
    with ScoreFile(path, tasks) as file:
        for bad in (word("other", 0.5), word("id0000", 1.5), word("id0000", float("nan"))):
            with pytest.raises(UserError):
                file.append(bad)
    assert path.read_bytes() == b""


def test_a_second_process_is_refused_and_a_killed_one_is_not_in_the_way(tasks, path):
    with ScoreFile(path, tasks), pytest.raises(UserError, match="being written by another process"):
        ScoreFile(path, tasks)
    context = multiprocessing.get_context("fork")
    ready, process = context.Event(), None

    def hold():
        file = ScoreFile(path, tasks)
        file.append(word("id0003", 0.3))
        ready.set()
        signal.pause()

    process = context.Process(target=hold)
    process.start()
    assert ready.wait(20)
    with pytest.raises(UserError, match="being written by another process"):
        ScoreFile(path, tasks)
    os.kill(process.pid, signal.SIGKILL)
    process.join(20)
    with ScoreFile(path, tasks) as file:
        assert file.scores.by_id() == {"id0003": 0.3}


def test_a_full_disk_leaves_the_file_as_it_was(tasks, path, monkeypatch):
    with ScoreFile(path, tasks) as file:
        file.append(word("id0000", 0.1))
        before, real = path.read_bytes(), os.write

        def short(descriptor, data):
            return real(descriptor, data[: len(data) // 2])

        def none(descriptor, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        for write in (short, none):
            monkeypatch.setattr(os, "write", write)
            with pytest.raises(NotSaved, match=r"disk is full|No space left"):
                file.append(word("id0001", 0.2))
            monkeypatch.setattr(os, "write", real)
            assert path.read_bytes() == before
        file.append(word("id0001", 0.2))
    assert read_scores(path).by_id() == {"id0000": 0.1, "id0001": 0.2}


def test_a_part_of_a_line_that_stays_ends_the_writing(tasks, path, monkeypatch):
    """A good line after it would be joined to it, and both be lost."""
    with ScoreFile(path, tasks) as file:
        file.append(word("id0000", 0.1))
        real = os.write

        def fail(*_):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "write", lambda to, data: real(to, data[: len(data) // 2]))
        monkeypatch.setattr(os, "ftruncate", fail)
        with pytest.raises(NotSaved, match="the part that was written remains"):
            file.append(word("id0001", 0.2))
        monkeypatch.undo()
        broken = path.read_bytes()
        with pytest.raises(NotSaved, match="left a part; restart"):
            file.append(word("id0002", 0.3))
        assert path.read_bytes() == broken
    with ScoreFile(path, tasks) as file:
        assert "cut off" in file.note
        file.append(word("id0002", 0.3))
    assert read_scores(path, tasks).by_id() == {"id0000": 0.1, "id0002": 0.3}


@pytest.mark.parametrize("name", ["a\x1b[2J", "a$\\x$", "a,b", "a.b", "é", "a" * 41])
def test_a_name_inside_a_score_file_is_checked(tasks, path, name):
    path.write_text(line_of(asdict(word("id0000", 0.5, name))).decode())
    with pytest.raises(UserError, match="letters, digits") as caught:
        read_scores(path, tasks)
    assert str(caught.value).isprintable()


def test_what_a_judge_is_called_is_printable(tasks, path):
    with ScoreFile(path, tasks) as file:
        file.append(word("id0000", 0.5, judge="rule\x1b[2J"))
    assert read_scores(path).judge == r"rule\x1b[2J"


def test_a_file_taken_away_or_replaced_is_noticed(tasks, path):
    with ScoreFile(path, tasks) as file:
        path.rename(path.with_name("elsewhere"))
        with pytest.raises(NotSaved, match="was moved or removed"):
            file.append(word("id0000", 0.1))
        path.write_text("")
        with pytest.raises(NotSaved, match="was replaced"):
            file.append(word("id0000", 0.1))
    assert path.read_bytes() == b"" == path.with_name("elsewhere").read_bytes()


def test_a_lock_taken_over_stops_the_writing(tasks, path):
    with ScoreFile(path, tasks) as file:
        lock = path.with_name(path.name + ".lock")
        lock.write_text(lock.read_text().replace('"pid": ', '"pid": 1'))
        with pytest.raises(NotSaved, match="has taken over"):
            file.append(word("id0000", 0.1))
    assert path.read_bytes() == b""


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "-a", "é", "a" * 41, "a.b"])
def test_names_that_are_refused(tasks, name):
    with pytest.raises(UserError, match="letters, digits"):
        scores.scores_path(tasks.path, name)


def test_find_scores_takes_only_score_files(tasks):
    for name in (
        "toy.scores.a.jsonl",
        "toy.scores.b.jsonl.lock",
        "toy.scores.c.csv",
        "x.scores.a.jsonl",
    ):
        tasks.path.with_name(name).write_text("")
    assert [p.name for p in find_scores(tasks.path)] == ["toy.scores.a.jsonl"]


def test_names_that_differ_in_case_only_are_one_file_on_some_systems(tasks, path):
    with ScoreFile(path, tasks) as file:
        file.append(word("id0000", 0.1))
    other = scores.scores_path(tasks.path, "Ana")
    with pytest.raises(UserError, match=r"toy\.scores\.ana\.jsonl would differ only in case"):
        ScoreFile(other, tasks)
    given = {name: [word("id0000", 0.0, name)] for name in ("ben", "Ana")}
    with pytest.raises(UserError, match="differ only in case"):
        scores.add_score_files(tasks, given)
    assert [p.name for p in find_scores(tasks.path)] == ["toy.scores.ana.jsonl"]
    other.write_bytes(path.read_bytes().replace(b'"ana"', b'"Ana"'))  # where both are there already
    for one in (path, other):
        with ScoreFile(one, tasks) as file:
            file.append(word("id0001", 0.2, read_scores(one).annotator))


@pytest.mark.parametrize(
    ("save", "words"),
    [
        (lambda data: data.decode().encode("utf-16"), "is saved as UTF-16; save it as UTF-8"),
        (lambda data: data.replace(b"\n", b"\r"), "lines end with CR"),
    ],
)
def test_what_another_program_has_saved_is_read_or_left_as_it_is(tasks, path, save, words):
    """Else the last line would be taken for one that was cut short, and cut off."""
    with ScoreFile(path, tasks) as file:
        file.append(word("id0000", 0.1), word("id0001", 0.2))
    plain = path.read_bytes()
    for kept in (b"\xef\xbb\xbf" + plain, plain.replace(b"\n", b"\r\n")):
        path.write_bytes(kept)
        with ScoreFile(path, tasks) as file:
            file.append(word("id0002", 0.3))
        assert path.read_bytes().startswith(kept)
        assert read_scores(path, tasks).by_id() == {"id0000": 0.1, "id0001": 0.2, "id0002": 0.3}
    path.write_bytes(save(plain))
    for read in (read_scores, ScoreFile):
        with pytest.raises(UserError, match=words):
            read(path, tasks)
    assert path.read_bytes() == save(plain) and not list(path.parent.glob("*.lock*"))
