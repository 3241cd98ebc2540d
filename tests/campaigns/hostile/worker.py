"""Give every hostile file of a folder to its readers, in one process; print what they said.

Each damaged file goes to a sixth of all readers in turn; with `--all` to each of them. Pictures are
drawn, but coarsely: their fine form is what takes the time. Where a reader fails, its traceback is
in what is printed, or this process does not survive it.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import time
import traceback
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/helpers"), str(ROOT / "analysis")]

from _common import run_script  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from run_tools import loaded  # noqa: E402

from omniinput_hpc.cli import rescore, run  # noqa: E402
from omniinput_hpc.models.device import peak_bytes  # noqa: E402

RULE = ["--rule", "toy_rules:begins_with_zero"]
SCORES = ["--scores", "{folder}/good.scores.ann.jsonl", "{folder}/good.scores.ben.jsonl"]
FEW = ["--fewest-inputs", "1", "--fewest-lanes", "1"]
RANGE = ["--range", "0.375", "1.875"]
ARGUMENTS = {
    "agreement.py": ["{file}", *SCORES],
    "annotators.py": ["{file}", *SCORES, *FEW],
    "average.py": ["{file}", "--observable", "distinct"],
    "joint.py": ["{file}", "--observable", "distinct"],
    "difference.py": ["{file}", "{folder}/good.h5"],
    "bank.py": ["{file}", "--bank", "{folder}/bank.jsonl", *SCORES],
    "changes.py": ["{file}", "{folder}/good.rescored.lattice.h5"],
    "choose.py": ["{file}", "--width", "0.5", *RANGE, "--output", "{folder}/chosen.tasks.jsonl"],
    "compare.py": ["{folder}/other/good.h5", "{file}"],  # a run beside itself is refused
    "diagnose.py": ["{file}"],
    "export.py": ["{file}", "--to", "every-eval-ever", *RULE],
    "next_scores.py": ["{file}", *SCORES, *FEW],
    "normalize.py": ["{file}", "{folder}/good.h5", *RANGE],
    "overlay.py": ["{file}", "--output", "{folder}/overlay.png"],
    "precision_recall.py": ["{file}", *RULE],
    "report.py": ["{file}", *RULE],
    "representatives.py": ["{file}"],
    "reweight.py": ["{file}"],
}
"""Arguments of every script that reads run files."""
SLOW = ("RUN.h5", "run.output", "rescore")
"""Readers that continue a file: given readable files only where they must refuse them."""


def coarse(figure: Figure, file, *_, **options) -> None:
    """Draw every part of a figure, where it happens to be, instead of saving it."""
    if options["format"] == "pdf":
        return  # drawn already
    figure.set_layout_engine("none")
    figure.set_dpi(15)
    figure.canvas.draw()
    if options["format"] == "svg":
        file.write("<svg ></svg>")


def called(function, *arguments):
    """Return exit code, what was printed, and seconds of CPU."""
    said, begin = io.StringIO(), time.process_time()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = function(*arguments)
        except SystemExit as leaving:
            code = leaving.code
        except Exception:  # a reader that lets anything through has failed
            traceback.print_exc()
            code = "traceback"
    return code, said.getvalue(), time.process_time() - begin


def script(name):
    """Return a script's way to read a file: a function of its path."""
    module = loaded(f"analysis/{name}")

    def read(words, file):
        words = [word.format(file=file, folder=file.parent) for word in words]
        return run_script(module.main, words)

    return partial(read, ARGUMENTS[name])


def readers_of(toml):
    """Return all readers by name, each a function of a file's path."""
    more = ["--set", "run.rounds=6"]
    return {
        **{name: script(name) for name in ARGUMENTS},
        "--verify": lambda file: run.main(["--verify", str(file)]),
        "--rescore": lambda file: run.main(["--verify", str(file), "--rescore", "50"]),
        "--salvage": lambda file: run.main([str(file), "--salvage", f"{file}-new.h5"]),
        "rescore": lambda file: rescore.main([str(file), str(toml)]),
        "RUN.h5": lambda file: run.main([str(file), *more]),
        "run.output": lambda file: run.main([str(toml), "--set", f"run.output={file}", *more]),
    }


def wanted(kind, reader):
    """Whether a reader is given files of this kind (the first word of their names)."""
    if reader == "--salvage" or kind == "checkpoint":
        return reader == "--salvage" and kind in ("checkpoint", "good")
    if kind == "side":  # the damage is in what stands beside the run
        return reader in ("difference.py", "normalize.py", "rescore")
    if kind == "stays":
        return reader not in ARGUMENTS  # they look at other things
    return kind == "structure" or reader not in SLOW


def stamps(files):
    return [(found.st_size, found.st_mtime_ns) for found in map(Path.stat, files)]


def main(folder, toml, share=6):
    Figure.savefig = coarse
    readers = readers_of(toml)
    paths = [p for p in folder.glob("*.h5") if ".rescored." not in p.name]
    good = folder / "good.h5"
    (folder / "other").mkdir(exist_ok=True)
    shutil.copy(good, folder / "other")
    libraries = 0.0  # what is in memory once all of them have read a whole file
    for turn, path in enumerate(sorted(paths, key=lambda path: (path != good, path))):
        kind = path.stem.partition("-")[0]
        side = path.with_name(f"{path.stem}.rescored.{toml.stem}.h5")
        files = [file for file in (path, side) if file.exists()]
        before = stamps(files)
        ask = [name for name in readers if wanted(kind, name)]
        some = kind in ("structure", "content")
        for name in ask[turn % share :: share] if some else ask:
            reader = readers[name]
            code, text, seconds = called(reader, path)
            touched = stamps(files) != before
            print(json.dumps([path.stem, name, code, text, seconds, touched]), flush=True)
        if path == good:
            libraries = peak_bytes("cpu")
    megabytes = (peak_bytes("cpu") - libraries) / 2**20  # ru_maxrss also knows the parent's
    print(json.dumps({"megabytes": megabytes, "readers": list(readers)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), 1 if "--all" in sys.argv else 6)
