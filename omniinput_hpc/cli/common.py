"""Input files, messages and exit codes of all commands that run on MPI ranks."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tomli_w

from omniinput_hpc.config import Config
from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_FAILURE, EXIT_STOPPED, StopRun, UserError
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile import given_input
from omniinput_hpc.text import print_any_text
from omniinput_hpc.untrusted.parsing import check_toml, check_tree

log = logging.getLogger("omniinput_hpc")

Command = Callable[[World, Sequence[str] | None], int]


def main(command: Command, argv: Sequence[str] | None, world: World | None = None) -> int:
    """Run a command on this rank and return its exit code, the same on all ranks.

    All ranks raise a `UserError` or `StopRun` together; any other exception aborts all of them.
    """
    print_any_text()
    world = world or World()
    _start_logging(world.rank)
    try:
        return command(world, argv)
    except UserError as error:
        if world.rank == 0:
            print(f"omniinput_hpc: {error}", file=sys.stderr, flush=True)
        world.barrier()
        return EXIT_BAD_INPUT
    except StopRun as stop:
        log.info("stopped early (%s); %s", stop, stop.outcome)
        world.barrier()
        return EXIT_STOPPED
    except SystemExit as leaving:  # --help
        return int(leaving.code or 0)
    except BaseException as error:
        world.abort(error)
    return EXIT_FAILURE


def read_input(world: World, args: argparse.Namespace) -> Config:
    """Return the resolved input on every rank.

    Rank 0 reads it, from an input file or from the run file that stores it.
    """

    def read() -> dict[str, Any]:
        tables = given_input.load(args.input, args.set).model_dump(exclude_none=True)
        try:  # otherwise a run file with it could not be read
            check_toml(tomli_w.dumps(tables))
            check_tree(tables)
        except ValueError as error:
            raise UserError(f"{args.input}: not valid TOML: {error}") from None
        return tables

    return Config.model_validate(world.on_rank_0(read))


def to_toml(config: Config) -> str:
    """Return the input as TOML, with every key that has a value."""
    return tomli_w.dumps(config.model_dump(exclude_none=True))


def _start_logging(rank: int) -> None:
    """Log to stderr with the rank in every line; ranks other than 0 log only warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"[rank {rank}] %(message)s"))
    log.handlers = [handler]
    log.propagate = False
    log.setLevel(logging.INFO if rank == 0 else logging.WARNING)
