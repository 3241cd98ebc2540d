"""The program with a commit that is wrong on purpose: it counts a round, and then writes it."""

import time

from omniinput_hpc.cli import run
from omniinput_hpc.runfile import checksums, writers


def count_first(self, round_, values, committed):
    values = checksums.with_sums(self._fields, round_, self._rungs, values)
    self._step(round_, lambda: self._count(round_, committed))
    time.sleep(0.02)
    self._step(round_, self._prepared(round_, values))


writers.MpioWriter.commit = count_first
if __name__ == "__main__":
    raise SystemExit(run.main())
