"""What all scripts share: how they fail, and how they name their files. Imports next to nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # works without installing, too

from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_COMPLETE, UserError
from omniinput_hpc.estimators import EstimateError


def run_script(main: Callable[[list[str]], None], arguments: list[str] | None = None) -> int:
    """Call a script's main and return its exit code: 2 and one plain line for a user's mistake."""
    try:
        main(sys.argv[1:] if arguments is None else arguments)
    except (UserError, EstimateError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except MemoryError as error:
        print(f"error: there is not enough memory for these files: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return EXIT_COMPLETE


def beside(run_path: Path, ending: str) -> Path:
    """Return the path of a result: ``runs/toy.h5`` and ``.pr.csv`` give ``runs/toy.pr.csv``."""
    return run_path.with_name(run_path.stem + ending)
