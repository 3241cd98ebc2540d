"""Every offline verb on stored run files, where neither torch nor MPI is installed.

    python3 -m venv /tmp/bare
    .venv/bin/python -m pip wheel --no-deps --no-build-isolation -w /tmp/wheel .
    /tmp/bare/bin/pip install "$(ls /tmp/wheel/omniinput_hpc-*.whl)[analysis]"
    .venv/bin/python tests/campaigns/offline_verbs.py --command /tmp/bare/bin/omniinput

makes the run files here and calls that command in a process for each verb. RUN.results.json must
hold to the schema, and `pandas.read_csv` must read every CSV file as it is. Exit code 0: all do.
"""

import argparse
import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / p) for p in (".", "analysis", "tests/helpers")
]

import jsonschema  # noqa: E402
import pandas  # noqa: E402
from rules_file import MODEL, RULE, write_rules  # noqa: E402
from run_files import write_run  # noqa: E402
from run_tools import LATTICE, environment, loaded, run  # noqa: E402
from score_files import write_score_files  # noqa: E402
from two_outputs import drawn, other_of, put, put_rescored  # noqa: E402

from omniinput_hpc.cli.omniinput import VERBS, WITHOUT_MPI  # noqa: E402
from omniinput_hpc.results.record import SCHEMA  # noqa: E402

BY = "--scores good.scores.ann.jsonl good.scores.ben.jsonl"
RULED = f"--rule {RULE}"
COMMANDS = {
    "example": "toy",
    "reweight": "good.h5",
    "precision-recall": f"good.h5 {RULED}",
    "diagnose": "good.h5",
    "representatives": "good.h5",
    "report": f"good.h5 {BY}",
    "average": "good.h5 --observable distinct",
    "joint": "good.h5 --observable distinct",
    "observe": "good.h5 --add distinct",
    "overlay": "good.h5 again.h5 --output overlay.png",
    "export": f"good.h5 --to every-eval-ever {BY}",
    "choose": "good.h5 --width 0.5 --range -0.125 1.875 --output chosen.tasks.jsonl",
    "annotate": "chosen.tasks.jsonl --annotator ana",
    "judge": f"chosen.tasks.jsonl --judge {RULE}",
    "scores": "good.tasks.jsonl --export csv",
    "agreement": f"good.h5 {BY}",
    "annotators": f"good.h5 {BY}",
    "next-scores": f"good.h5 {BY}",
    "bank": f"good.h5 --bank bank.jsonl {BY}",
    "compare": "good.h5 again.h5",
    "normalize": "one.h5 two.h5 --range 2.25 3.9",
    "difference": "one.h5 two.h5 --range 2.25 3.5",
    "changes": f"draws.h5 draws.rescored.other.h5 {RULED}",
    "verify": "lattice.h5",
    "salvage": "lattice.h5 saved.h5",
}
WRITE_NO_RESULTS = ("annotate", "example", "observe", *WITHOUT_MPI)
SHORT = ("reweight", "precision-recall", "compare", "verify")
SECONDS = 180


def prepare(folder):
    """Write the run files: draws of an exact model, a pair of models, and a run with all its files.

    (The run is sampled here, where torch and MPI are.)
    """
    write_rules(folder)
    made = write_run(folder / "good.h5", walkers=16, model=MODEL)
    write_score_files(folder / "good.h5", made, ["ann", "ben"])
    write_run(folder / "again.h5", walkers=16, model=MODEL, config_seed=2, seed=2)
    pair = loaded("tests/analysis/test_two_model_scripts.py")
    for seed, (name, which) in enumerate((("one", "good"), ("two", "worse"))):
        pair.write(folder / f"{name}.h5", which, pair.ABSOLUTE, seed)
    draws = drawn(1)
    put_rescored(put(folder / "draws.h5", draws), "other", other_of(draws.x_rksd))
    (folder / "lattice.toml").write_text(LATTICE.format(output="lattice.h5"))
    done = run("lattice.toml", cwd=folder)
    assert done.returncode == 0, done.stderr


def wrong_after(verb, folder, before):
    """Return what is wrong with what a verb has written, a line each."""
    new = {p for p in folder.iterdir() if p.stat().st_mtime_ns > before}
    results = [p for p in new if p.name.endswith(".results.json")]
    found = []
    if len(results) != (verb not in WRITE_NO_RESULTS):
        found.append(f"{len(results)} results files")
    for path in results:
        document = json.loads(path.read_text())
        jsonschema.validate(document, json.loads(SCHEMA.read_text()))
        entry = document["analyses"][-1]
        if entry["analysis"] != verb or not all((folder / f).is_file() for f in entry["files"]):
            found.append(f"{path.name} says {entry['analysis']}, {entry['files']}")
        tables = {table["file"]: table for table in entry["tables"]}
        for table in (p for p in new if p.suffix == ".csv" and verb != "scores"):
            frame = pandas.read_csv(table)
            if (list(frame), len(frame)) != (tables[table.name]["columns"],
                                             tables[table.name]["rows"]):  # fmt: skip
                found.append(f"{table.name} is not what {path.name} says")
    return found


def call(command, verb, folder, env):
    """Call a verb; return its exit code and all that it said. A page is served, and interrupted."""
    words = [*command, verb, *shlex.split(COMMANDS[verb])]
    process = subprocess.Popen(words, cwd=folder, env=env, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)  # fmt: skip
    try:
        if verb != "annotate":
            said = process.communicate(timeout=SECONDS)[0]
            return process.returncode, said
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        process.send_signal(signal.SIGINT)
        said += process.communicate(timeout=SECONDS)[0]
        return (0 if "http://localhost:" in said else 1), said
    finally:
        process.kill()
        process.wait()


def campaign(command, folder, verbs, env=None):
    """Call verbs, print a line for each, and return how many were wrong."""
    n_wrong = 0
    print(f"{'verb':18}{'code':>5}{'seconds':>9}  what is wrong")
    for verb in verbs:
        before, begin = time.time_ns(), time.monotonic()
        code, said = call(command, verb, folder, env)
        wrong = wrong_after(verb, folder, before) if code == 0 else [said.strip()]
        n_wrong += bool(wrong)
        print(f"{verb:18}{code:5}{time.monotonic() - begin:9.1f}  {'; '.join(wrong)}", flush=True)
    return n_wrong


def main():
    """Read the arguments, prepare, and call all verbs."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    ours = f"{sys.executable} -m omniinput_hpc"
    words = "the command to call (default: this Python's own)"
    parser.add_argument("--command", type=shlex.split, default=shlex.split(ours), help=words)
    some = "verbs to call (default: all)"
    parser.add_argument("--verbs", nargs="+", choices=COMMANDS, default=list(COMMANDS), help=some)
    options = parser.parse_args()
    offline = [name for name, verb in VERBS.items() if not verb.module or name in WITHOUT_MPI]
    assert set(COMMANDS) == set(offline)
    own = options.command == shlex.split(ours)
    with tempfile.TemporaryDirectory(prefix="omniinput-offline-") as folder:
        prepare(Path(folder))
        n_wrong = campaign(
            options.command, Path(folder), options.verbs, environment() if own else None
        )
    print(f"{len(options.verbs)} verbs, {n_wrong} wrong")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
