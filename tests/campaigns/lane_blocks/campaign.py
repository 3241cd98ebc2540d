"""A run in blocks of lanes on any number of ranks: the same bytes, also after a kill and a resume.

    .venv/bin/python tests/campaigns/lane_blocks/campaign.py

Four rungs of four blocks each are sampled on 1, 2, 4, 8 and 16 ranks, by either writer, and once
more killed on 16 ranks and finished on 4. The kernel tunes its step size and the ladder its betas
in burn-in, from what all blocks of a rung do; three of the blocks hold lanes of one group.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(TESTS / "helpers"), str(TESTS / "campaigns")]

from kills.watching import Live, Watch, wait_until
from run_tools import contents, run

TOML = """
[run]
output = "{output}"
seed = 5
rounds = 4
burn_in = 4
histogram_blocks = 2
[model]
kind = "python"
factory = "toy_models:normalized"
[sampler]
walkers = 12
blocks = 4
steps = 4
exchanges = 2
[ladder]
betas = [0.0, 1.0, 2.0, 3.5]
tune = true
[kernel]
name = "mixture"
[[kernel.parts]]
name = "metropolis"
[[kernel.parts]]
name = "discrete-langevin"
step_size = 0.5
[bins]
lower = -40.0
upper = 40.0
width = 0.5
[samples]
every = 3
"""


PATIENCE = 500.0
"""Seconds for many ranks on few cores to start, or to commit some rounds."""


class Campaign:
    """Runs of one input on several numbers of ranks, compared with the one on a single rank.

    Attributes
    ----------
    problems : what went wrong, a line each
    """

    def __init__(self, folder, module="omniinput_hpc"):
        self.folder, self.module = Path(folder), module
        self.problems: list[str] = []
        self.toml = self.folder / "blocks.toml"
        self.toml.write_text(TOML.format(output=self.folder / "on-1.h5"))
        self.whole = self.on(1, "gather", [])

    def on(self, n_ranks, writer, changes):
        """Sample to the end on so many ranks; return the datasets' bytes."""
        path = self.folder / f"on-{n_ranks}.h5"
        path.unlink(missing_ok=True)
        words = [f"run.output={path}", f"run.writer={writer}", *changes]
        arguments = [part for word in words for part in ("--set", word)]
        done = run(self.toml, *arguments, ranks=n_ranks, module=self.module, timeout=PATIENCE)
        if done.returncode:
            self.problems.append(f"{n_ranks} ranks, {writer}: {done.stderr[-400:]}")
            return {}
        return contents(path)

    def compare(self, n_ranks, writer="mpio"):
        """Sample on so many ranks, and compare."""
        self._judge(f"{n_ranks} ranks, {writer}", self.on(n_ranks, writer, []))

    def kill(self, n_ranks, n_later, writer="gather"):
        """Kill a run on so many ranks in its counted rounds, finish it on others, and compare."""
        path = self.folder / "killed.h5"
        words = [f"run.output={path}", "run.rounds=60", f"run.writer={writer}"]
        live = Live(self.toml, words, n_ranks, self.module)
        pids = live.pid_by_rank(n_ranks)
        wait_until(lambda: path.exists() or not live.running(), live, PATIENCE)
        watch = Watch(path)
        wait_until(lambda: watch.committed() >= 4, live, PATIENCE)
        killed = live.kill(range(n_ranks), pids)
        watch.close()
        live.end()
        if killed != n_ranks:
            self.problems.append(f"{killed} of {n_ranks} ranks were there to be killed")
        whole = self.folder / "whole.h5"
        arguments = ["--set", "run.rounds=60"]
        later = run(self.toml, *arguments, "--set", f"run.output={path}", "--restart", "require",
                    ranks=n_later, module=self.module, timeout=PATIENCE)  # fmt: skip
        at_once = run(self.toml, *arguments, "--set", f"run.output={whole}", timeout=PATIENCE,
                      module=self.module)  # fmt: skip
        where = f"killed on {n_ranks} ranks, finished on {n_later}"
        if later.returncode or at_once.returncode:
            self.problems.append(f"{where}: {later.stderr[-400:]} {at_once.stderr[-400:]}")
            return
        self._judge(where, contents(path), contents(whole))

    def _judge(self, where, found, whole=None):
        whole = self.whole if whole is None else whole
        different = sorted(name for name in whole if found.get(name) != whole[name])
        if different:
            self.problems.append(f"{where}: differs in {different}")
        result = "differs" if different else f"{len(whole)} datasets byte-equal"
        print(f"{where}: {result}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--writers", nargs="+", default=["mpio", "gather"])
    args = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="omniinput-blocks-") as folder:
        campaign = Campaign(folder)
        for n_ranks in args.ranks:
            for writer in args.writers:
                campaign.compare(n_ranks, writer)
        campaign.kill(args.ranks[-1], 4)
    print(*campaign.problems, sep="\n")
    print(f"{len(campaign.problems)} problems, {time.monotonic() - begin:.0f} s")
    return bool(campaign.problems)


if __name__ == "__main__":
    sys.exit(main())
