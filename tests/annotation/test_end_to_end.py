"""README's sequence on the digits, made short: run, choose, score through the page, analyse."""

import pytest
from noisy_annotators import score_all, truths
from run_tools import run

from omniinput_hpc.annotation.join import join_scores
from omniinput_hpc.annotation.scores import find_scores
from omniinput_hpc.annotation.tasks import read_key, read_tasks
from omniinput_hpc.results.tables import read_table
from omniinput_zoo.digits import nearest_is_one

pytestmark = pytest.mark.slow

SHORT = [
    "run.rounds=1", "run.burn_in=1", "sampler.walkers=16", "samples.every=5",
    "ladder.betas=[-1.5, -0.6, 0.0]",
]  # fmt: skip
FEW = ["--side", "high", "--fewest-inputs", "10", "--fewest-lanes", "4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    words = [
        part for word in [*SHORT, f"run.output={folder / 'digits.h5'}"] for part in ("--set", word)
    ]
    call("omniinput_hpc", "inputs/digits-mlp.toml", *words)
    return folder


def call(program, *words):
    done = run(*words, module=program)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_the_run_to_the_curve_and_the_agreement(folder):
    file = folder / "digits.h5"
    call("analysis/choose.py", file, "--per-bin", 15, "--width", 2, "--range", -2, 6)
    tasks = read_tasks(folder / "digits.tasks.jsonl")
    key = read_key(folder / "digits.tasks.key.jsonl", tasks.tasks_id)
    assert tasks.kind == "image" and len(tasks.tasks) == 66
    right = truths(tasks, nearest_is_one)
    assert 0 < sum(right.values()) < len(right)
    for a, (name, shift) in enumerate((("ana", -0.06), ("ben", 0.0), ("cai", 0.06))):
        assert score_all(tasks, name, right, shift, 0.12, [1, a]) == 66
    scores = sorted(folder.glob("*.scores.*.jsonl"))
    joined = join_scores(key.runs[0].model_fingerprint, scores)
    assert joined.scored.score_ai.shape == (3, 60) and joined.first_ar.shape == (3, 6)
    out = call("analysis/precision_recall.py", file, "--scores", *scores, *FEW)
    assert "AUPR by annotator, over recall 10^" in out and ": ana " in out
    _, curve = read_table(folder / "digits.pr.csv", ["precision_low", "precision_high"])
    assert len(curve["r"]) == 4 and (curve["precision_high"] > curve["precision_low"]).all()
    call("analysis/judge.py", folder / "digits.tasks.jsonl",
         "--judge", "omniinput_hpc.zoo.digits:nearest_is_one", "--name", "rule")  # fmt: skip
    scores = find_scores(folder / "digits.tasks.jsonl")
    out = call("analysis/agreement.py", file, "--scores", *scores)
    assert "alpha among 3 people" in out and "rule (judge: rule omniinput_hpc.zoo.digits" in out
