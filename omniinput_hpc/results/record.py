"""RUN.results.json: the results of every analysis of a run, for machines (docs/results-file.md)."""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.errors.jackknife import Interval
from omniinput_hpc.estimators.precision_recall.curves import Curve
from omniinput_hpc.results.tables import beside, write_table
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import __version__, write_atomically
from omniinput_hpc.untrusted.files import read_bytes
from omniinput_hpc.untrusted.parsing import parse_json

FORMAT, FORMAT_VERSION = "omniinput-results", 1
SCHEMA = Path(__file__).with_name("results.schema.json")
MAX_BYTES = 1 << 26
LEVEL = 0.95
PACKAGES = ("numpy", "scipy", "h5py", "matplotlib")


def _record_of(check: Check) -> dict[str, Any]:
    """Return a check of a verdict for the record, without numbers that are not known."""
    numbers = {"value": float(check.value), "threshold": float(check.threshold)}
    words = {"sentence": check.sentence, "remedy": check.remedy}
    return {
        "name": check.name, "passed": check.passed,
        **{key: number for key, number in numbers.items() if np.isfinite(number)},
        **{key: word for key, word in words.items() if word},
    }  # fmt: skip


@dataclass
class Record:
    """The results of one analysis: filled while it works, then merged into RUN.results.json.

    Attributes
    ----------
    run_path : the run file (or the stem of several) that the results are saved next to
    analysis : the verb
    command : as typed
    parameters : all options, including those left at their defaults
    """

    run_path: Path
    analysis: str
    command: str
    parameters: dict[str, Any]
    runs: list[dict[str, Any]] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def add_run(self, run: RunReader) -> None:
        """Record a run that was read.

        Raises
        ------
        UserError
            The results here are of another run of the same name.
        """
        about = {
            "path": str(run.path), "created": run.created, "rounds": run.rounds,
            "rounds_planned": run.rounds_planned, "model": run.fingerprint, "sites": run.n_sites,
            "values": run.n_values, "measure": run.config.measure,
        }  # fmt: skip
        if not self.runs:
            self._refuse_another(about)
        self.runs.append(about)

    def _refuse_another(self, about: Mapping[str, Any]) -> None:
        """Refuse to replace results of a run that is neither this one nor one that it replaced."""
        path, results = Path(about["path"]), beside(self.run_path, ".results.json")
        if path.parent.resolve() == results.parent.resolve():
            return  # whatever run had this path before is gone
        for entry in entries(results):
            for there in entry["runs"][:1]:
                other = Path(str(there.get("path")))
                same = all(there.get(key, about[key]) == about[key] for key in ("created", "model"))
                if other.name == path.name and other.resolve() != path.resolve() and not same:
                    raise UserError(
                        f"{results} holds results of another {path.name}, {other}: choose another "
                        "folder with --results, or move that file and its tables and figures away"
                    )

    def add_value(
        self, name: str, value: float, error: float = np.nan, low: float = np.nan,
        high: float = np.nan,
    ) -> None:  # fmt: skip
        """Add a number, with its standard error and 95 % interval if they are known."""
        numbers = {"value": value, "error": error, "low": low, "high": high}
        known = {k: float(v) for k, v in numbers.items() if k == "value" or not np.isnan(v)}
        level = {"level": LEVEL} if {"low", "high"} & set(known) else {}
        self.values[name] = known | level

    def add_density(self, density: Density, of: str) -> None:
        """Add the verdict on a density, and its values over all bins."""
        verdict, filled = density.verdict, density.count_b > 0
        self.verdicts.append(
            {
                "of": of, "converged": bool(verdict.converged), "reasons": list(verdict.reasons),
                "checks": [_record_of(check) for check in verdict.checks],
            }
        )  # fmt: skip
        error = density.log_g_error_b[filled & np.isnan(density.log_g_upper_b)]
        known = error[np.isfinite(error)]
        self.values[f"{of}: absolute"] = {"value": bool(density.absolute)}
        self.add_value(f"{of}: bins with counts", int(filled.sum()))
        inside = f"{of}: ln {density.words.things} inside the bins"
        self.add_value(inside, float(scipy.special.logsumexp(density.log_g_b)))
        self.add_value(f"{of}: share inside the bins", float(density.share_inside))
        if known.size:
            self.add_value(f"{of}: median error of log_g", float(np.median(known)))
            self.add_value(f"{of}: largest error of log_g", float(known.max()))

    def add_aupr(self, curve: Curve, of: str) -> None:
        """Add a curve's AUPR with its interval, its range of recall, and the side."""
        name = f"{of}: AUPR"
        self.add_value(name, curve.aupr, curve.aupr_error, curve.aupr_low, curve.aupr_high)
        self.values[name] |= {"over_ln_recall": list(curve.aupr_range), "side": curve.side}

    def add_interval(self, name: str, interval: Interval) -> None:
        """Add a number with its 95 % interval."""
        ends = (interval.value, interval.error, interval.low, interval.high)
        self.add_value(name, *(float(number) for number in ends))

    def add_table(
        self, path: Path, about: Sequence[str], columns: Mapping[str, NDArray[Any]]
    ) -> None:
        """Write these columns [n] to a CSV file; record the meaning of its numbers, `about`."""
        write_table(path, columns)
        rows = len(next(iter(columns.values()))) if columns else 0
        self.files.append(str(path))
        self.tables.append(
            {"file": self._name(path), "columns": list(columns), "rows": rows, "about": list(about)}
        )

    def save(self) -> Path:
        """Merge this record into RUN.results.json, and return its path.

        A record of the same analysis with the same parameters is replaced. A rewritten file is
        removed from the record of the analysis that wrote it before. Simultaneous analyses wait for
        each other. If the folder is not writable or has no locks, only a warning is printed, since
        the analysis itself is already done.

        Raises
        ------
        UserError
            The existing file is not a results file, or is of another version.
        """
        path = beside(self.run_path, ".results.json")
        try:
            self._merge_into(path)
        except OSError as error:
            print(f"warning: {path} was not written: {error.strerror}", file=sys.stderr)
        return path

    def _merge_into(self, path: Path) -> None:
        with _locked(path):
            mine = self._entry()
            key = _key(mine)
            kept = [_without(entry, mine["files"]) for entry in entries(path) if _key(entry) != key]
            document = {
                "format": FORMAT, "format_version": FORMAT_VERSION, "run": self.run_path.name,
                "analyses": [*kept, mine],
            }  # fmt: skip
            text = json.dumps(finite(document), indent=1, allow_nan=False, ensure_ascii=False)
            write_atomically(path, text + "\n")

    def _entry(self) -> dict[str, Any]:
        libraries = {name: importlib.metadata.version(name) for name in PACKAGES}
        own = {"omniinput_hpc": __version__, "python": platform.python_version()}
        return {
            "analysis": self.analysis,
            "parameters": finite(plain(self.parameters)),
            "command": self.command,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": own | libraries,
            "runs": self.runs,
            "verdicts": self.verdicts,
            "values": self.values,
            "notes": self.notes,
            "tables": self.tables,
            "files": [self._name(Path(file)) for file in self.files],
        }

    def _name(self, path: Path) -> str:
        """Return a file's path relative to the folder of the results."""
        return os.path.relpath(path, self.run_path.parent)


def entries(path: Path) -> list[dict[str, Any]]:
    """Return the analyses in RUN.results.json, see `read_results`; none without the file."""
    empty = not path.exists() or not path.stat().st_size
    return [] if empty else list(read_results(path)["analyses"])


def read_results(path: Path) -> dict[str, Any]:
    """Read RUN.results.json.

    Raises
    ------
    UserError
        It is not a results file, or is of another version.
    """
    try:
        document = parse_json(read_bytes(path, "results file", MAX_BYTES))
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UserError(f"{path} is not a results file of this program: move it away")
    if document.get("format_version") != FORMAT_VERSION:
        raise UserError(
            f"{path} has format_version {document.get('format_version')}, but this program reads "
            f"{FORMAT_VERSION}: move it away"
        )
    there = document.get("analyses")
    if not isinstance(there, list) or not all(map(_is_entry, there)):
        raise UserError(f"{path} holds no list of analyses: move it away")
    return document


def _is_entry(entry: Any) -> bool:
    kinds = {"analysis": str, "parameters": dict, "runs": list, "files": list, "tables": list}
    fits = isinstance(entry, dict) and all(isinstance(entry.get(k), v) for k, v in kinds.items())
    return fits and all(isinstance(run, dict) for run in entry["runs"])


def _without(entry: Mapping[str, Any], files: Sequence[str]) -> dict[str, Any]:
    """Return an entry without the files that another analysis has rewritten since."""
    tables = [t for t in entry["tables"] if not (isinstance(t, dict) and t.get("file") in files)]
    left = [name for name in entry["files"] if name not in files]
    return {**entry, "files": left, "tables": tables}


def plain(value: Any) -> Any:
    """Return options as JSON values: paths as text, tuples as lists, functions by their name."""
    if isinstance(value, Mapping):
        return {str(name): plain(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    return getattr(value, "__name__", str(value)) if callable(value) else value


def finite(value: Any) -> Any:
    """Return the same with None in place of NaN and infinities, which JSON cannot represent."""
    if isinstance(value, Mapping):
        return {name: finite(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _key(entry: Mapping[str, Any]) -> str:
    return json.dumps([entry.get("analysis"), entry.get("parameters")], sort_keys=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock on a file, which is created empty if missing and may be replaced meanwhile.

    A replacement is a new file with its own lock, so a process that waited must open it again.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.exists(path) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                yield
                return
        finally:
            os.close(descriptor)
