"""Names of outputs: the first analysis keeps the plain one, and no other takes it."""

from pathlib import Path

import pytest

from omniinput_hpc.results.names import MAX_LENGTH, claim_name, names_of, words_of
from omniinput_hpc.results.record import Record


def analyse(run, words, analysis="precision-recall", ending=".pr.csv"):
    """Claim a name, write the file as an analysis does; return its name."""
    record = Record(run, analysis, "typed", {"words": list(words)})
    path = run.with_name(f"{run.stem}.pr{claim_name(record, ending, words)}.csv")
    path.write_text(" ".join(words))
    record.files.append(str(path))
    record.save()
    return path.name


def test_the_first_keeps_the_plain_name_and_others_theirs(tmp_path):
    run = tmp_path / "toy.h5"
    one, two = words_of("m:one", []), words_of("m:two", [])
    for _ in range(2):
        assert analyse(run, one) == "toy.pr.csv"
        assert analyse(run, two) == "toy.pr.m.two.csv"
        assert analyse(run, words_of("m:one", [], "high")) == "toy.pr.m.one-side=high.csv"
    assert (tmp_path / "toy.pr.csv").read_text() == " ".join(one)
    (tmp_path / "toy.pr.csv").unlink()  # whoever deletes it makes the name free
    assert analyse(run, two) == "toy.pr.csv" and analyse(run, one) == "toy.pr.m.one.csv"


def test_patterns_that_differ_only_in_signs_have_names_of_their_own(tmp_path):
    run, rules = tmp_path / "toy.h5", ["contains:!", "contains:?", "regex:^a", "regex:$a"]
    rules += ["contains:a:b", "contains:a.b", "regex:a", "contains:" + "x!" * 50]
    names = [analyse(run, words_of(rule, [])) for rule in rules]
    assert len(set(names)) == len(rules)
    assert names == [analyse(run, words_of(rule, [])) for rule in rules]
    assert names[6] == "toy.pr.regex.a.csv" and words_of("words:a/b", [])[0] == "words.a/b"


def test_another_analysis_of_the_same_words_is_another(tmp_path):
    run = tmp_path / "toy.h5"
    assert analyse(run, ["a"]) == "toy.pr.csv"
    assert analyse(run, ["a"], "another") == "toy.pr.a.csv"


def test_runs_of_one_name_are_numbered():
    assert names_of([Path("a/toy.h5"), Path("b/worse.h5")]) == ["toy", "worse"]
    assert names_of([Path("a/toy.h5"), Path("b/toy.h5")]) == ["1-toy", "2-toy"]


def test_scores_are_named_by_who_gave_them():
    files = [Path(f"runs/toy.scores.{name}.jsonl") for name in ("ben", "ana")]
    assert words_of(None, files) == ["ana+ben", ""]
    judge = Path("runs/toy.judge-scores.rule.jsonl")
    assert words_of(None, files, judges=[judge]) == ["ana+ben", "", "judge=rule"]
    assert words_of(None, [judge]) == ["judge-rule", ""]


def test_a_comparison_by_a_judge_of_two_runs_has_a_name_and_no_digest(tmp_path):
    """As in docs/comparing.md, where the names of both files are longer than a tag may be."""
    names = ("ten", "ten-worse")
    files = [Path(f"runs/{name}.judge-scores.by_ten.jsonl") for name in names]
    analyse(tmp_path / "toy.h5", ["first"])
    found = analyse(tmp_path / "toy.h5", ["toy-worse", *words_of(None, files)])
    assert found == "toy.pr.toy-worse-judge-by_ten+judge-by_ten.csv"


@pytest.mark.parametrize("words", [["x" * 500], ["a/b:c d", "../../e"]])
def test_names_are_short_and_have_no_folder(tmp_path, words):
    run = tmp_path / "toy.h5"
    analyse(run, ["first"])
    name = analyse(run, words)
    assert len(name) <= len("toy.pr..csv") + MAX_LENGTH and "/" not in name
    assert (tmp_path / name).exists()
    other = analyse(run, [words[0] + "y", *words[1:]])
    assert other != name
