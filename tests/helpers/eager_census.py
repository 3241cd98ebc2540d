"""The census with a commit after every round, for tests that kill it.

A process waits after its second commit; so it is there to be killed, however late that is.
"""

import sys
import time

from omniinput_zoo.census import command, session

COMMITS = 2
session.SECONDS_BETWEEN_COMMITS = session.COMMIT_SHARE = 0.0
session.COMMIT_SHARE = 1e9
commit, made = session.Session._commit, []


def commit_and_wait(self):
    commit(self)
    made.append(self)
    while len(made) == COMMITS:
        time.sleep(0.01)


session.Session._commit = commit_and_wait
if __name__ == "__main__":
    raise SystemExit(command.main(sys.argv[1:]))
