"""Serve the report on a run in a browser, with all of its recorded inputs.

A click on a bin lists the inputs that were recorded in it. A search looks through the texts of all
recorded inputs, and the inputs of lowest and highest z can be listed. Nothing is written.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from omniinput_hpc.cli import arguments as common
from omniinput_hpc.cli.scripts import add_damaged, run_file, with_extra
from omniinput_hpc.cli.verbs.report import add_report_options, report_options
from omniinput_hpc.estimators.density.wide_bins import for_picture
from omniinput_hpc.report.content import content_of
from omniinput_hpc.report.page import page
from omniinput_hpc.report.recorded import Recorded
from omniinput_hpc.report.sections import section
from omniinput_hpc.report.summary import title_of
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str], program: str = "explore.py") -> None:
    """Estimate what the report shows, print the page's address, and serve until interrupted."""
    parser = common.new_parser(program, __doc__, "runs/toy.h5", "", argparse.ArgumentParser)
    parser.add_argument("run", type=run_file, metavar="RUN.h5", help="the run file")
    add_damaged(parser)
    add_report_options(parser)
    port = "port on this machine (default: one for each run file)"
    parser.add_argument("--port", type=int, help=port)
    options = parser.parse_args(arguments)
    with with_extra("annotate"):
        from omniinput_hpc.annotation import server
        from omniinput_hpc.report import served

    report = report_options(options, [options.run])
    cookie = cookie_name(options.run)
    with (
        server.bind(options.port, cookie) as listening,
        open_run(options.run, options.on_damage) as run,
    ):
        content = content_of(run, report)
        shown = for_picture(content.density.estimate)  # as the page draws it
        recorded = Recorded(run, shown, report.masked, report.render)
        html = page(title_of(run), [section(run, content, 0, options.run.stem)], served.SCRIPTS)
        address = server.address_of(listening, options.port, cookie)
        app = served.make_app(html, recorded, cookie, address.token)

        def announce() -> None:
            print("\n".join([*address.notes, *address.lines()]))
            print("Ctrl-C ends it", flush=True)

        server.serve(app, listening, announce)


def cookie_name(run: Path) -> str:
    """Return the name of the cookie for the page of a run file."""
    return f"omniinput-explore-{hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:16]}"
