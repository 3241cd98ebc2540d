"""See how well a run mixes, and what to change: moves, swaps, round trips, R-hat.

Writes RUN.diagnose.csv and .png.
"""

from __future__ import annotations

from pathlib import Path

from _common import beside, new_parser, run_script

from omniinput_hpc.plots.diagnosis import diagnosis_figure
from omniinput_hpc.plots.style import save, z_label
from omniinput_hpc.results.diagnosis import (
    advice,
    columns,
    diagnose,
    lane_traces,
    table,
    walker_paths,
)
from omniinput_hpc.results.tables import describe_run, write_table
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str]) -> None:
    """Read, diagnose, write, and print what to change."""
    parser = new_parser(__doc__, "runs/toy.h5")
    parser.add_argument("run", type=Path, metavar="RUN.h5", help="the run file")
    options = parser.parse_args(arguments)

    csv, picture = beside(options.run, ".diagnose.csv"), beside(options.run, ".diagnose.png")
    with open_run(options.run) as run:
        found = diagnose(run)
        source = describe_run(run)
        label, traces, paths_rv = z_label(run.config), lane_traces(run), walker_paths(run)
    hints = advice(found)
    write_table(csv, [source, *hints], columns(found))
    save(diagnosis_figure(found, traces, paths_rv, label), picture)

    print(source)
    print("\n".join(table(found)))
    print("\n".join(hints) if hints else "nothing stands out")
    print(f"{csv}\n{picture}")


if __name__ == "__main__":
    raise SystemExit(run_script(main))
