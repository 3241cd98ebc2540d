"""Processes that take one lock at the same instant; they import little, since they are many."""

import contextlib

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile.lock import RunLock


def contend(output, barrier, results, n):
    """Take a lock at the same instant as the other processes, n times."""
    mine = RunLock(output)
    for _ in range(n):
        barrier.wait()
        outcome = "refused"
        with contextlib.suppress(UserError):
            mine.take()
            outcome = "taken"
        barrier.wait()  # nobody releases before all have tried
        if outcome == "taken":
            outcome = "taken" if mine.keep() else "lost"
            mine.release()
        results.put(outcome)
        barrier.wait()
        barrier.wait()  # the test looks, and prepares
