"""Serve the web page where one person scores a task file.

Every score is saved at once to RUN.scores.NAME.jsonl, so that a closed session can be resumed.
"""

from __future__ import annotations

import logging
from pathlib import Path

from omniinput_hpc.annotation.scores import ScoreFile, scores_path
from omniinput_hpc.annotation.tasks import read_tasks
from omniinput_hpc.cli.scripts import in_results, new_parser, results_folder, with_extra


def main(arguments: list[str], program: str = "annotate.py") -> None:
    """Open the files, print the address of the page, and serve until interrupted."""
    example = "runs/toy.tasks.jsonl --annotator ana --guideline guideline.md"
    parser = new_parser(program, __doc__, example, of_tasks=True)
    add = parser.add_argument
    add("--annotator", required=True, metavar="NAME", help="name of the person who scores")
    add("--guideline", type=Path, metavar="FILE.md", help="instructions that the page shows")
    add("--question", default="", metavar="TEXT", help="shown above every item (default: none)")
    add("--labels", metavar="LOWEST,...,HIGHEST", help='labels in place of numbers: "no,yes"')
    add("--port", type=int, help="port on this machine (default: one for each annotator)")
    options = parser.parse_args(arguments)
    with with_extra("annotate"):
        from omniinput_hpc.annotation import security, server, session

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    in_results(options, options.tasks)  # raises if the folder is not writable
    tasks, name = read_tasks(options.tasks, results_folder(options)), options.annotator
    labels = server.labels_of(options.labels) if options.labels is not None else ()
    guideline = server.read_guideline(options.guideline, tasks.kind, options.question, labels)
    path, cookie = scores_path(tasks.scored, name), server.cookie_name(tasks, name)
    with ScoreFile(path, tasks) as file, server.bind(options.port, cookie) as listening:
        address = server.address_of(listening, options.port, cookie)
        progress_token = security.stored_token(
            server.progress_name(tasks), renew=address.elsewhere
        )[0]
        tokens = security.Tokens(address.token, progress_token)
        work = session.Session(tasks, file, name, guideline.version)
        app = server.make_app(work, tasks, guideline, name, tokens)

        def announce() -> None:
            progress = work.progress()
            said = [*address.notes, *([f"note: {file.note}"] if file.note else [])]
            said.append(f"{progress['done']} of {progress['n']} items scored; scores go to {path}")
            of_all = (
                "progress of all annotators (do not give it to them): "
                f"http://localhost:{address.port}{security.PROGRESS_PATH}?token={progress_token}"
            )
            print("\n".join([*said, *address.lines([of_all])]))
            print("Ctrl-C ends it; nothing is lost", flush=True)

        server.serve(app, listening, announce)
