"""Give every hostile file of a folder to every reader, in one process; print what they said.

Where a reader fails, this process does not survive it, or its traceback is in what it prints.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import resource
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "analysis")]

from _common import run_script  # noqa: E402

from omniinput_hpc import launch  # noqa: E402

OTHER_ARGUMENTS = {"precision_recall.py": ["--rule", "toy_rules:begins_with_zero"]}


def called(function, *arguments):
    """Return exit code, what was printed, and seconds of CPU."""
    said, begin = io.StringIO(), time.process_time()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = function(*arguments)
        except SystemExit as leaving:
            code = leaving.code
        except BaseException:
            traceback.print_exc()
            code = "traceback"
    return code, said.getvalue(), time.process_time() - begin


def scripts(good):
    """Return the main functions of the scripts that one run file is enough for."""
    found = {}
    for path in sorted((ROOT / "analysis").glob("[!_]*.py")):
        spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        more = OTHER_ARGUMENTS.get(path.name, [])

        def call(file, main=module.main, more=more):
            return run_script(main, [str(file), *more])

        if called(call, good)[0] == 0:
            found[path.name] = call
    return found


def main(folder, toml):
    readers = scripts(folder / "good.h5")
    readers["--verify"] = lambda file: launch.main(["--verify", str(file)])
    readers["RUN.h5"] = lambda file: launch.main([str(file), "--set", "run.rounds=6"])
    readers["run.output"] = lambda file: launch.main(
        [str(toml), "--set", f"run.output={file}", "--set", "run.rounds=6"]
    )
    for path in sorted(folder.glob("*.h5")):
        before = path.read_bytes()
        for name, reader in readers.items():
            content = path.name.startswith("content-")
            if name in ("RUN.h5", "run.output") and content and "-stays" not in path.name:
                continue  # would go on with it
            if path.name == "good.h5":
                continue
            code, text, seconds = called(reader, path)
            touched = path.read_bytes() != before
            print(json.dumps([path.stem, name, code, text, seconds, touched]), flush=True)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"megabytes": megabytes, "readers": list(readers)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
