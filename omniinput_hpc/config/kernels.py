"""``[kernel]``: one table a kernel, told apart by ``name``."""

from __future__ import annotations

from typing import Literal

from omniinput_hpc.config.table import Table, WholePositive


class Metropolis(Table):
    """``[kernel] name = "metropolis"``: uniform values at ``sites`` uniformly chosen sites."""

    name: Literal["metropolis"] = "metropolis"
    sites: WholePositive = 1
