"""Parsing the input file that is stored in a run file."""

from __future__ import annotations

import math
from typing import Any

from omniinput_hpc.untrusted.parsing import parse_toml


def moves_per_round(config: dict[str, Any], n_walkers: int) -> int | None:
    """Return the moves per rung and round by the stored input; None if it does not state them."""
    sampler = config.get("sampler", {})
    numbers = [sampler.get(key) for key in ("steps", "exchanges")]
    if not all(isinstance(n, int) for n in numbers):
        return None
    return int(math.prod(numbers)) * n_walkers


def parse(toml: str) -> dict[str, Any]:
    """Parse the stored input and check the keys that readers use. Raise a ValueError if invalid."""
    config = parse_toml(toml)
    for table in ("run", "model", "sampler", "ladder", "analysis"):
        if not isinstance(config.get(table, {}), dict):
            raise ValueError(f"the stored input's {table} is not a table")
    if "run" not in config:
        raise ValueError("the stored input has no table [run]")
    for key in ("kind", "path", "factory"):
        if not isinstance(config.get("model", {}).get(key, ""), str):
            raise ValueError(f"the stored input's model.{key} is not a text")
    if config.get("analysis", {}).get("side", "low") not in ("low", "high"):
        raise ValueError("the stored input's analysis.side is neither low nor high")
    burn_in = config["run"].get("burn_in", 0)
    if isinstance(burn_in, bool) or not isinstance(burn_in, int) or burn_in < 0:
        raise ValueError("the stored input's run.burn_in is not a number of rounds")
    return config
