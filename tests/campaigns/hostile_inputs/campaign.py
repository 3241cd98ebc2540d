"""Give untrusted input to every reader of it: a table of what became of each.

    .venv/bin/python tests/campaigns/hostile_inputs/campaign.py [--only WORD] [--ranks 2]

Each must end with exit code 2 and one plain message within 10 seconds of CPU, with no traceback. In
one process, whose libraries are imported before; with `--ranks`, the cases of runs are given to so
many ranks each, and none may be left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(TESTS / "helpers"), str(TESTS / "campaigns"), str(TESTS.parent)]

from hostile_inputs import annotations, folders, inputs
from run_tools import LATTICE, ROOT, loaded

from omniinput_hpc.cli import run
from omniinput_hpc.cli.scripts import run_script

LIMIT, PATIENCE, LONGEST_MESSAGE = 10.0, 300, 5000


class StillRunning(Exception):
    """A case that had to be interrupted."""


def all_cases(folder):
    """Return every case by name: a function that makes it and returns command and arguments."""
    folder = Path(folder)
    for name in ("f", "i", "a", "r"):
        (folder / name).mkdir()
    bases = folders.Bases(folder / "f")
    found = dict(folders.cases(bases))
    found |= {
        name: (lambda words=words: words) for name, words in inputs.cases(folder / "i").items()
    }
    (folder / "template").write_text("{text} good?")
    found |= annotations.cases(folder / "a", bases.folder / "images", folder / "template")
    toml = folder / "lattice.toml"
    toml.write_text(LATTICE.format(output=folder / "good.h5"))
    assert run.main([str(toml)]) == 0
    beside = annotations.cases_of_a_run(folder / "r", folder / "good.h5")
    picture = ["--output", folder / "overlay.png"]
    found |= {
        name: (lambda words=words: [*words, *(picture if words[0] == "overlay.py" else [])])
        for name, words in beside.items()
    }
    return found


def script(name):
    """Return the main function of a script of analysis/."""
    if str(ROOT / "analysis") not in sys.path:
        sys.path.insert(0, str(ROOT / "analysis"))
    return loaded(f"analysis/{name}").main


def interrupt(*_):
    raise StillRunning


def outcome(words):
    """Return exit code, what was said, and seconds of CPU, of one case in this process.

    One that waits is interrupted after `PATIENCE` seconds.
    """
    words = [str(word) for word in words]
    said = io.StringIO()
    signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(PATIENCE)
    begin = time.process_time()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            if words[0].endswith(".py"):
                code = run_script(script(words[0]), words[1:])
            else:
                code = run.main([*words, "--check"])
        except SystemExit as leaving:
            code = leaving.code
        except BaseException as error:  # a reader that lets anything through has failed
            traceback.print_exc()
            code = type(error).__name__
        finally:
            signal.alarm(0)
    return code, said.getvalue(), time.process_time() - begin


def problem_of(name, code, text, seconds):
    """Return what is wrong with the end of a case, "" if nothing is."""
    if code == 0 and any(name.endswith(passes) for passes in folders.MAY_PASS):
        return ""
    if "Traceback" in text or code != 2:
        return f"exit code {code}: {text.strip()[-400:]}"
    if not text.strip() or len(text) > LONGEST_MESSAGE:
        return f"a message of {len(text)} characters: {text[:200]}"
    return f"{seconds:.1f} s" if seconds > LIMIT else ""


def shown(text):
    lines = [line for line in text.splitlines() if not line.startswith("[rank")]
    return " ".join(lines).replace("|", "\\|").removeprefix("omniinput_hpc: ")[:140]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--ranks", type=int, default=1, help="of the cases that are runs")
    parser.add_argument("--every", type=int, default=1, help="take every so many-th case")
    options = parser.parse_args()
    import transformers  # noqa: F401

    os.chdir(ROOT)
    rows, load = [], os.getloadavg()[0]
    print("| what | seconds | what was said |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="omniinput-hostile-") as folder:
        cases = {k: v for k, v in all_cases(folder).items() if options.only in k}
        for name in list(cases)[:: options.every]:
            words = cases[name]()
            if options.ranks > 1:
                if str(words[0]).endswith(".py"):
                    continue
                code, text, seconds = on_ranks(words, options.ranks)
            else:
                code, text, seconds = outcome(words)
            problem = problem_of(name, code, text, seconds)
            rows.append((name, seconds, problem))
            said = f"**{problem}**" if problem else shown(text.replace(folder, "..."))
            print(f"| {name} | {seconds:.2f} | {said} |", flush=True)
    wrong = [row for row in rows if row[2]]
    times = sorted(row[1] for row in rows)
    print(
        f"{len(rows)} cases on {options.ranks} rank(s); {len(wrong)} not refused as wanted; median "
        f"{times[len(times) // 2]:.2f} s, longest {times[-1]:.1f} s; load {load:.1f} before"
    )
    return 1 if wrong else 0


def on_ranks(words, n):
    """Return exit code, what was said, and seconds, of one case on several ranks."""
    from kills.watching import Live

    begin = time.monotonic()
    try:
        live = Live(None, (), n, arguments=[*map(str, words), "--check"])
        code, text = live.end(PATIENCE)  # sees that no rank is left
    except AssertionError as error:
        code, text = str(error), ""
    return code, text, time.monotonic() - begin


if __name__ == "__main__":
    raise SystemExit(main())
