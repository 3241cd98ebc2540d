"""z is Hugging Face's own, for twelve types of `campaign.py`; and a wrong one is found."""

import json

import pytest
from architectures import campaign

FEW = [
    "causal/gpt2", "causal/llama", "causal/gemma2", "causal/mamba", "causal/bloom",
    "causal/roberta", "causal/dory", "classifier/bert", "classifier/roberta", "classifier/bart",
    "classifier/t5", "classifier/deberta-v2",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("types", [
    ["causal/llama", "causal/mamba", "classifier/t5"],
    pytest.param(FEW, marks=pytest.mark.release),
])  # fmt: skip
def test_z_of_some_types_is_hugging_faces(tmp_path, types):
    rows = tmp_path / "rows.jsonl"
    code = campaign.main([*types, "--rows", str(rows)])  # each type in a forked process
    found = {f"{r['task']}/{r['type']}": r for r in map(json.loads, rows.open())}
    assert list(found) == types
    assert {name for name in types if found[name]["class"] != campaign.RIGHT} == set()
    assert code == 0


def test_problems():
    rows = [{"class": name} for name in ("right", "refused", "unmakeable", "WRONG", "HUNG")]
    assert campaign.problems_of(rows) == rows[3:]
    assert list(campaign.wanted(["causal/gpt2"])) == [("causal", "gpt2")]
    assert len(list(campaign.wanted([]))) > 200


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_z_that_is_not_the_models_is_wrong(tmp_path, monkeypatch):
    """In a forked process, as each type is."""
    z_of = campaign.z_of
    monkeypatch.setattr(campaign, "z_of", lambda *given: z_of(*given) + 0.01)
    assert campaign.outcome("causal", "gpt2", tmp_path / "work")["class"] == "WRONG"
