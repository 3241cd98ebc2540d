"""Flip one bit of a run file at a time; see what analysis, --verify and a resume say of it.

    .venv/bin/python tests/campaigns/bit_flips/campaign.py [--flips 2000] [--methods NAME ...]

Files of all methods. A third of the flips are anywhere in the file, a third in a dataset (each is
as likely as any other), a third in HDF5's own metadata: what belongs to no dataset. A flip is
harmless where every number that the analysis gives is as before, and where a run would resume from
the same state. Else it must be found: by --verify, by the analysis and by a resume.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[1] / "helpers"), str(HERE.parent)]

import h5py  # noqa: E402
import numpy as np  # noqa: E402
import xxhash  # noqa: E402
from campaign_report import report  # noqa: E402
from run_tools import LATTICE, run  # noqa: E402

from omniinput_hpc.cli.verify import verify_file  # noqa: E402
from omniinput_hpc.config import input_file  # noqa: E402
from omniinput_hpc.errors import UserError  # noqa: E402
from omniinput_hpc.estimators import EstimateError  # noqa: E402
from omniinput_hpc.estimators.density.density import density_of_run  # noqa: E402
from omniinput_hpc.results import diagnosis  # noqa: E402
from omniinput_hpc.results.curves import CurveOptions, curve_of  # noqa: E402
from omniinput_hpc.results.density import DensityResult  # noqa: E402
from omniinput_hpc.runfile.reader import open_run  # noqa: E402
from omniinput_hpc.sampling import restart  # noqa: E402

METHODS = {
    "parallel tempering": ["run.burn_in=8", "ladder.tune=true", "samples.every=1"],
    "gaussian": ["ladder.kappa=[0.0, 2.0, 0.0, 0.0]", "ladder.z0=[0.0, 1.0, 0.0, 0.0]"],
    "wang-landau": [
        "sampler.method=wang-landau", "run.burn_in=6", "wang_landau.windows=2",
        "ladder.betas=[0.0, 2.0]",
    ],
    "ancestral": [
        "sampler.method=ancestral", "model.factory=markov_model:markov", "samples.every=1",
        "ladder.betas=[0.0, 2.5, 5.0, 7.0]", "bins.lower=0.0", "bins.upper=8.0",
    ],
    "mixture": [
        "model.factory=toy_models:coupled", "bins.lower=-40.0", "bins.upper=40.0",
        "kernel.name=mixture",
        "kernel.parts=[{name='metropolis'}, {name='discrete-langevin', step_size=0.5}]",
    ],
}  # fmt: skip
PLACES = ("anywhere", "in a dataset", "in metadata")
COLUMNS = ("flips", "harmless", "found", "harmful", "failed")
AT_ONCE, PATIENCE = 20, 300.0
"""Flips of one process, and seconds for each."""
REFUSALS = (UserError, EstimateError, OSError)


def make_all(folder, methods=METHODS):
    """Return the file of each method."""
    return {method: make(Path(folder), method, words) for method, words in methods.items()}


def make(folder, method, words):
    """Make a file with room for one round more than it holds."""
    path, toml = folder / f"{method.replace(' ', '-')}.h5", folder / "lattice.toml"
    toml.write_text(LATTICE.format(output=path))
    settings = [f"run.output={path}", "run.rounds=4", *words]
    done = run(toml, *(part for word in settings for part in ("--set", word)))
    assert done.returncode == 0, done.stderr
    return path


def digest(*values):
    """Return a hash of texts and arrays."""
    hashed = xxhash.xxh3_64()
    for value in values:
        text = isinstance(value, str)
        hashed.update(value.encode() if text else np.ascontiguousarray(value).tobytes())
    return hashed.hexdigest()


def numbers(path):
    """Return a hash of all that the scripts print of a run."""
    with open_run(path) as there:
        density = density_of_run(there.data)
        result = DensityResult([there], [density])
        lines = result.about() + result.summary()
        found = diagnosis.DiagnosisResult([there], [], diagnosis.diagnose(there))
        lines += diagnosis.table(found.found) + found.advice
        columns = [*result.table().values(), *found.columns().values()]
        by = CurveOptions("toy_rules:begins_with_zero", [], None, "low", (1, 1))
        columns += curve_of([there], density, by).columns().values()
        samples = [part for pair in there.samples() for part in pair]
        about = [there.fingerprint, there.config_toml, str(there.config)]
        lines = [line.replace(str(path), "") for line in lines]
        return digest(*lines, *about, *columns, *samples, diagnosis.walker_paths(there))


def state(path, whole):
    """Return a hash of what a run would resume from; refuse what the program refuses."""
    source, here = str(path), [f"run.output={str(path)!r}"]
    with open_run(whole) as good:
        config = input_file.parse(good.config_toml, source, here)
        g, z, fingerprint = good.geometry, good.probe_z.tolist(), good.fingerprint
    identity = restart.Identity(fingerprint, z, {}, float("nan"))
    found = restart.find_existing(config, fingerprint, "require")
    restart.check_resume(config, g, identity, found)
    restart.check_rounds(path, range(g.n_rungs))
    with open_run(path) as there:
        checkpoint = there.checkpoint(range(g.n_rungs))
        arrays = [np.asarray(v) for rung in checkpoint.rungs for v in vars(rung).values()]
        return digest(str(there.rounds), str(there.burn_in_committed), *arrays, checkpoint.swaps_k2)


def asked(function, *arguments):
    """Return what a function returns, or ["refused", why], or ["failed", why]."""
    try:
        return function(*arguments)
    except REFUSALS as error:
        return ["refused", str(error)]
    except Exception as error:
        return ["failed", f"{type(error).__name__}: {error}"]


def examine(path, whole):
    """Return what the analysis, a resume and --verify say of a file."""
    verified = asked(lambda: verify_file(path)[1])
    return [asked(numbers, path), asked(state, path, whole), verified]


def outcome(found, good):
    """Return what became of a flip, as a column and words."""
    analysis, resumed, verified = found
    failed = [str(one[1]) for one in found if one and one[0] == "failed"]
    if failed:
        return "failed", failed[0]
    if analysis == good[0] and resumed == good[1]:
        return "harmless", ""
    says = {
        "the analysis": analysis == good[0] or analysis[0] == "refused",
        "a resume": resumed[0] == "refused",
        "--verify": bool(verified),
    }
    if all(says.values()):
        return "found", ""
    silent = ", ".join(name for name, said in says.items() if not said)
    return "harmful", f"{silent} did not notice; found: {found}"


def regions(path):
    """Return where datasets' bytes lie, [begin, end), by name."""
    found = {}
    with h5py.File(path, "r", locking=False) as file:

        def visit(name, item):
            if isinstance(item, h5py.Dataset) and item.nbytes:
                begin = item.id.get_offset()
                found[name] = begin, begin + item.nbytes

        file.visititems(visit)
    return found


def choose(path, place, generator):
    """Return a bit of a file, and the name of what it is in."""
    size, inside = path.stat().st_size, regions(path)
    if place == "in a dataset":
        name = generator.choice(sorted(inside))
        return generator.randrange(8 * inside[name][0], 8 * inside[name][1]), name
    while True:
        bit = generator.randrange(8 * size)
        names = [n for n, (begin, end) in inside.items() if begin <= bit // 8 < end]
        if place == "anywhere" or not names:
            return bit, names[0] if names else "metadata"


def in_process(whole, bits, folder, send):
    """Examine a file once for each bit, and send what was found, a line each."""
    data, path = bytearray(whole.read_bytes()), folder / f"{os.getpid()}.h5"
    for number, bit in bits:
        data[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(data)
        data[bit // 8] ^= 1 << (bit % 8)
        line = json.dumps([number, examine(path, whole)]) + "\n"
        os.write(send, line.encode())
        path.rename(folder / f"{os.getpid()}-{number}.used")
        (folder / f"{os.getpid()}-{number}.used").unlink()


def examined(whole, bits, folder):
    """Yield (number, findings) of each flip; a process that dies or hangs fails one flip."""
    todo = list(enumerate(bits))
    while todo:
        receive, send = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(receive)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            code = 1
            try:
                in_process(whole, todo[:AT_ONCE], folder, send)
                code = 0
            finally:
                os._exit(code)
        os.close(send)
        part, left = b"", todo[:AT_ONCE]
        while left:
            ready, _, _ = select.select([receive], [], [], PATIENCE)
            data = os.read(receive, 1 << 20) if ready else b""
            *lines, part = (part + data).split(b"\n")
            for line in lines:
                number, found = json.loads(line)
                left = [one for one in left if one[0] != number]
                yield number, found
            if not data:
                break
        if left:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(receive)
        if left:
            how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "an error"
            yield left[0][0], [["failed", f"the process ended by {how}"]] * 3
            left = left[1:]
        todo = left + todo[AT_ONCE:]


class Campaign:
    """Flips bits of files, and counts what became of them by method and place."""

    def __init__(self, folder, seed, files):
        self.folder, self.seed, self.files = Path(folder), seed, files
        self.table: dict[tuple[str, str], Counter] = {}
        self.problems: list[str] = []

    def flips(self, method, n):
        """Flip n bits of a method's file, of each place about as many."""
        whole = self.files[method]
        good = examine(whole, whole)
        assert isinstance(good[0], str) and isinstance(good[1], str) and good[2] == [], good
        generator = random.Random(f"{self.seed} {method}")
        chosen = []
        for i in range(n):
            place = PLACES[i % len(PLACES)]
            chosen.append((place, *choose(whole, place, generator)))
        for number, found in examined(whole, [bit for _, bit, _ in chosen], self.folder):
            place, bit, name = chosen[number]
            column, words = outcome(found, good)
            counts = self.table.setdefault((method, place), Counter())
            counts["flips"] += 1
            counts[column] += 1
            if words:
                self.problems.append(f"{method}, bit {bit} ({name}): {column}: {words}"[:600])

    def lines(self):
        """Return the table in Markdown, a line each."""
        yield "| file | flip | " + " | ".join(COLUMNS) + " |"
        yield "|" + " --- |" * (2 + len(COLUMNS))
        total: Counter = Counter()
        for (method, place), counts in self.table.items():
            total += counts
            yield f"| {method} | {place} | " + " | ".join(str(counts[c]) for c in COLUMNS) + " |"
        yield "| all | | " + " | ".join(str(total[c]) for c in COLUMNS) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="omniinput-flips-") as folder:
        methods = {method: METHODS[method] for method in options.methods}
        campaign = Campaign(folder, options.seed, make_all(folder, methods))
        for method in methods:
            campaign.flips(method, -(-options.flips // len(methods)))
            seconds = time.monotonic() - begin
            print(f"{method}: {len(campaign.problems)} problems, {seconds:.0f} s", flush=True)
    return report(campaign.lines(), campaign.problems, begin)


if __name__ == "__main__":
    raise SystemExit(main())
