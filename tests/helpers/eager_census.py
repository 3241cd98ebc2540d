"""The census with a commit after every round, for tests that kill it."""

from omniinput_hpc.census import __main__ as command
from omniinput_hpc.census import session

session.SECONDS_BETWEEN_COMMITS = session.COMMIT_SHARE = 0.0
session.COMMIT_SHARE = 1e9

if __name__ == "__main__":
    raise SystemExit(command.main())
