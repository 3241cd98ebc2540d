"""Diagnose a run's mixing: moves, swaps, round trips, R-hat; what to change. RUN.diagnose.csv."""

from __future__ import annotations

import argparse
from pathlib import Path

from _common import beside, run_script

from omniinput_hpc.plots import density
from omniinput_hpc.plots.diagnosis import diagnosis_figure
from omniinput_hpc.results.diagnosis import advice, columns, diagnose, table
from omniinput_hpc.results.tables import describe_run, write_table
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str]) -> None:
    """Read, diagnose, write, and print what to change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN.h5", help="the run file")
    options = parser.parse_args(arguments)

    csv, picture = beside(options.run, ".diagnose.csv"), beside(options.run, ".diagnose.png")
    with open_run(options.run) as run:
        found = diagnose(run)
        source = describe_run(run)
        figure = diagnosis_figure(found, run, density.z_label(run.config))
    hints = advice(found)
    write_table(csv, [source, *hints], columns(found))
    density.save(figure, picture)

    print(source)
    print("\n".join(table(found)))
    print("\n".join(hints) if hints else "nothing stands out")
    print(f"{csv}\n{picture}")


if __name__ == "__main__":
    raise SystemExit(run_script(main))
