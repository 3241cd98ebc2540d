"""Every module has a test file of its own, tests/ROOM/test_MODULE.py, or the table names another.

The table is by room: what file tests which of the room's modules. `omniinput_zoo` is the room zoo.
"""

import ast
from pathlib import Path

from run_tools import ROOT

PACKAGES = {"omniinput_hpc": "", "omniinput_zoo": "zoo"}
"""The folder of each package's tests."""
OTHER_FOLDERS = {"analysis", "benchmarks", "campaigns", "gpu", "helpers", "mpi", "slurm", "wheels"}
TESTED_ELSEWHERE = {
    "": {"config/test_input_file.py": ["errors"], "api/test_run.py": ["__init__"]},
    "api": {"api/test_run.py": ["samples"]},
    "annotation": {
        "annotation/test_tasks.py": ["jsonl"],
        "annotation/test_page.py": ["security", "server", "session"],
        "annotation/test_drawing.py": ["task_set"],
    },
    "annotation/judges": {
        "annotation/test_judges.py": [
            "__init__", "fid", "language", "networks", "rule", "table",
        ],
    },
    "cli": {
        "analysis/test_every_script.py": ["scripts"],
        "cli/test_run.py": ["common"],
        "cli/test_omniinput.py": ["arguments"],
    },
    "cli/verbs": {
        "analysis/test_scripts.py": ["precision_recall", "reweight"],
        "analysis/test_changes_script.py": ["changes"],
        "analysis/test_observable_scripts.py": ["average", "joint", "observe"],
        "analysis/test_diagnose.py": ["diagnose"],
        "analysis/test_two_model_scripts.py": ["compare", "difference", "normalize"],
        "analysis/test_score_scripts.py": ["agreement", "annotators", "next_scores"],
        "results/test_banked.py": ["bank"],
        "annotation/test_end_to_end.py": ["choose"],
        "annotation/test_formats.py": ["scores"],
        "annotation/test_judges.py": ["judge"],
        "annotation/test_page.py": ["annotate"],
        "cli/test_example.py": ["example"],
        "cli/test_omniinput.py": ["salvage", "verify"],
        "export/test_every_eval_ever.py": ["export"],
        "plots/test_overlay.py": ["overlay"],
        "report/test_report.py": ["report"],
        "report/test_served.py": ["explore"],
        "results/test_representatives.py": ["representatives"],
    },
    "config": {
        "config/test_input_file.py": [
            "__init__", "kernels", "method", "models", "run_table", "space_table", "table",
        ],
        "models/test_law.py": ["law"],
    },
    "estimators": {"estimators/density/test_density.py": ["__init__"]},
    "estimators/comparison": {
        "estimators/comparison/test_normalization.py": ["input_counts"],
        "results/test_tables.py": ["to_exact"],
    },
    "estimators/density": {
        "estimators/density/test_density.py": ["result"],
        "estimators/density/test_verdict.py": ["arrivals", "checks", "lanes_alike", "rung_counts"],
    },
    "estimators/errors": {"results/test_diagnosis.py": ["diagnosis"]},
    "export": {"export/test_inspect_log.py": ["scored_inputs"]},
    "kernels": {
        "kernels/test_table.py": ["__init__"],
        "kernels/test_contributing_example.py": ["state"],
        "sampling/test_joined.py": ["joint"],
    },
    "kernels/parts": {
        "kernels/test_gibbs_with_gradients.py": ["gradients"],
        "kernels/test_from_law.py": ["law"],
        "kernels/test_lm_conditional.py": ["conditionals", "spans"],
    },
    "models": {
        "cli/test_run.py": ["protocol"],
        "models/language/test_fits.py": ["device"],
        "annotation/test_display.py": ["display"],
        "cli/test_enumerate.py": ["batches"],
        "cli/test_rescore.py": ["input_space"],
        "sampling/test_joined.py": ["batch_invariant"],
    },
    "models/images": {
        "models/images/test_classifier.py": ["files", "networks"],
        "models/test_observables.py": ["references"],
    },
    "models/language": {
        "models/language/test_kv_cache.py": ["gpt2_decoder", "shared_caches"],
        "models/language/test_causal_lm.py": ["prefix_cache"],
        "models/language/test_hf_folder.py": ["hf_architectures"],
    },
    "models/outputs": {"models/outputs/test_function.py": ["of_base"]},
    "parallel": {"mpi/test_comm.py": ["comm"], "cli/test_omniinput.py": ["alone"]},
    "plots": {
        "analysis/test_changes_script.py": ["changes"],
        "analysis/test_observable_scripts.py": ["observables"],
        "analysis/test_scripts.py": ["density"],
        "analysis/test_two_model_scripts.py": ["comparison", "difference"],
        "analysis/test_diagnose.py": ["diagnosis"],
        "analysis/test_score_scripts.py": ["scores"],
        "results/test_representatives.py": ["representatives"],
        "results/test_banked.py": ["labels"],
    },
    "pilot": {"cli/test_init.py": ["commented", "proposal", "rehearse"]},
    "report": {"report/test_report.py": ["content", "page"]},
    "results": {
        "analysis/test_changes_script.py": ["changes"],
        "analysis/test_observable_scripts.py": ["observables"],
        "analysis/test_two_model_scripts.py": ["comparison", "normalization"],
        "analysis/test_score_scripts.py": ["curves"],
        "api/test_run.py": ["result"],
        "results/test_tables.py": ["density"],
        "results/test_banked.py": ["labels"],
        "results/test_scores.py": ["fid"],
    },
    "runfile": {
        "cli/test_rescore.py": ["rescored"],
        "campaigns/hostile/test_hostile_files.py": ["untrusted_hdf5"],
    },
    "sampling": {
        "mpi/test_exchange.py": ["exchange"],
        "sampling/test_build.py": ["built"],
        "sampling/test_plan.py": ["shapes"],
        "sampling/test_forecast.py": ["trial"],
        "kernels/test_no_waiting.py": ["walkers"],
    },
    "zoo": {
        "sampling/test_toy.py": ["toy"],
        "zoo/test_digits.py": ["__init__", "image_training", "training"],
    },
    "zoo/benchmark": {"zoo/test_benchmark.py": ["command", "cases"]},
    "zoo/census": {
        "zoo/census/test_command.py": ["report", "saved", "session"],
        "zoo/census/test_frontier.py": ["found"],
    },
}  # fmt: skip


def modules():
    """Yield room and name of each module that holds a function or a class."""
    for package, tests in PACKAGES.items():
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body):
                room = Path(tests, path.parent.relative_to(ROOT / package))
                yield room.as_posix().replace(".", ""), path.stem


def has_own_file(room, name):
    return (ROOT / "tests" / room / f"test_{name}.py").is_file()


def elsewhere(room, name):
    """Return the test files that the table names for a module."""
    return [file for file, names in TESTED_ELSEWHERE.get(room, {}).items() if name in names]


def test_every_module_has_tests():
    alone = [m for m in modules() if not has_own_file(*m) and not elsewhere(*m)]
    assert alone == []


def test_the_table_names_what_is_there_and_needs_it():
    known = set(modules())
    for room, files in TESTED_ELSEWHERE.items():
        for file, names in files.items():
            assert (ROOT / "tests" / file).is_file(), file
            assert {(room, name) for name in names} <= known, (room, names)
    needless = [m for m in known if has_own_file(*m) and elsewhere(*m)]
    assert needless == []


def test_folders_of_tests_are_rooms_or_these():
    rooms = {path.name for path in (ROOT / "omniinput_hpc").iterdir() if path.is_dir()}
    there = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert there - {"__pycache__"} <= rooms | OTHER_FOLDERS
