"""Starting the page's server in a process, killing it, and speaking to it without a browser."""

import http.client
import json
import os
import re
import resource
import secrets
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from omniinput_hpc.annotation.server import PORTS

PATIENCE = 200
"""Seconds to wait for what takes a moment on an idle machine."""
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def no_room_beyond(pid, size):
    """Let a process's files grow no larger, as on a full disk, until the block ends."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


class Server:
    """analysis/annotate.py in a process of its own."""

    def __init__(
        self, tasks_path, name, port=None, state=None, guideline=None,
        script="analysis/annotate.py", more=(),
    ):  # fmt: skip
        self.tasks_path, self.name = Path(tasks_path), name
        self._arguments = [str(tasks_path), "--annotator", name]
        self._arguments += ["--guideline", str(guideline)] if guideline else []
        self._arguments += more
        # another test's server must not take it while this one is down
        self._port = port if port is not None else PORTS[secrets.randbelow(len(PORTS))]
        self._script = ROOT / script
        self._environment = {
            **os.environ,
            "XDG_STATE_HOME": str(state or self.tasks_path.parent),
            "PYTHONFAULTHANDLER": "1",
        }
        self.start()

    def start(self):
        port = ["--port", str(self._port)] if self._port else []
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(self._script), *self._arguments, *port],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self._environment,
        )  # fmt: skip
        self.printed = ""
        for line in self.process.stdout:
            self.printed += line
            if line.startswith("Ctrl-C"):
                break
        else:
            raise RuntimeError(self.process.stderr.read())
        found = re.search(r"http://localhost:(\d+)/\?token=(\S+)", self.printed)
        self._port, self.token = int(found.group(1)), found.group(2)
        self.progress_token = re.search(r"/progress\?token=(\S+)", self.printed).group(1)
        self.address, self.port = found.group(0), self._port

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self._end()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self._end()

    def _end(self):
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler tells where it is
            raise RuntimeError(self.process.stderr.read()) from None
        self.process.stdout.close()
        self.error = self.process.stderr.read()
        self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def call(self, method, path, body=None, headers=None, timeout=PATIENCE):
        """Return (status, headers, body); with the right cookie and origin unless told."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        right = {"Host": f"localhost:{self.port}", "Cookie": self.cookie}
        if method == "POST":
            right |= {
                "Origin": f"http://localhost:{self.port}", "Content-Type": "application/json"
            }  # fmt: skip
        sent = {k: v for k, v in (right | (headers or {})).items() if v is not None}
        data = json.dumps(body) if isinstance(body, dict) else body
        try:
            connection.request(method, path, body=data, headers=sent)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    @property
    def cookie(self):
        header = json.loads(self.tasks_path.read_text().splitlines()[0])
        return f"omniinput-{header['tasks_id']}-{self.name}={self.token}"

    def get(self, path):
        status, _, body = self.call("GET", path)
        return status, json.loads(body)

    def post(self, path, **body):
        status, _, answer = self.call("POST", path, {"nonce": secrets.token_hex(8), **body})
        return status, json.loads(answer)
