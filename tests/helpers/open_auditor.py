"""The program under an auditor, which notes what each rank opens.

``python -m open_auditor FOLDER arguments``

Every rank writes FOLDER/PID: a line ``event argument`` for each file that Python opens, each that
safetensors opens (its own code is no Python, so that its function is wrapped), each host name that
is looked up and each connection that is made.
"""

import os
import runpy
import sys

import safetensors

WATCHED = ("open", "socket.getaddrinfo", "socket.connect", "socket.gethostbyname")


def main():
    """Audit, then be the program."""
    folder = sys.argv.pop(1)
    out = os.open(os.path.join(folder, str(os.getpid())), os.O_CREAT | os.O_WRONLY, 0o644)

    def note(event, arguments):
        if event in WATCHED:
            what = arguments[1] if event == "socket.connect" else arguments[0]
            os.write(out, f"{event} {what}\n".encode())

    sys.addaudithook(note)
    safe_open = safetensors.safe_open

    def noted(path, *arguments, **options):
        os.write(out, f"safe_open {path}\n".encode())
        return safe_open(path, *arguments, **options)

    safetensors.safe_open = noted
    sys.argv[0] = "omniinput_hpc"
    runpy.run_module("omniinput_hpc", run_name="__main__")


if __name__ == "__main__":
    main()
