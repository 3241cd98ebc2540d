"""Processes of the program that begin warm: forked from one that has torch and the like imported.

A cold start imports for some seconds of CPU time, and the tests start hundreds. `Zygote` is that
one process. In place of ``python -m MODULE ARGUMENTS``, or of a script, one starts the words of
`Zygote.command`, alone or as the ranks of mpirun: a small client, which hands its streams, PMI's
connection, its folder and its environment to the zygote, and leaves as the forked process leaves,
by exit code or by signal. A signal that the client gets is passed on, and the forked
process is killed, with its children, when the client is gone. SIGSTOP is not passed on, and the
forked process has another number than the client; see `Zygote.processes`.

The zygote imports libraries alone, nothing of `omniinput_hpc`, and does not initialize MPI. What
these read of the environment when they are imported must be the same: otherwise the client becomes
the cold process that it stands for.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

READ_BY_IMPORTS = (
    "PYTHON", "OMP_", "OPENBLAS_", "MKL_", "KMP_", "TORCH", "CUDA_", "HF_", "TRANSFORMERS_",
    "TOKENIZERS_", "NUMBA_", "MPL", "XDG_", "HOME", "LC_", "LANG", "LD_",
)  # fmt: skip
"""How variables begin that libraries, or Python itself, read when they start."""
NOT_COMPARED = {
    "HF_HUB_OFFLINE", "TORCHINDUCTOR_CACHE_DIR", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK",
}  # fmt: skip
"""The package sets the first before it imports what reads it, as the zygote does; a test's import
of torch sets the second, that of scikit-learn the others."""
PASSED_ON = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP)
COLD = -1
"""The answer of a zygote that has other variables than the client."""


def read_at_import(environment):
    """Return the variables that must not differ."""
    return {
        name: text
        for name, text in environment.items()
        if name.startswith(READ_BY_IMPORTS) and name not in NOT_COMPARED
    }


def send(to, message, files=()):
    """Send a JSON message, a line, with open files."""
    data = json.dumps(message).encode() + b"\n"
    sent = socket.send_fds(to, [data], list(files)) if files else 0
    if sent < len(data):  # the other end may have answered, and be closed
        to.sendall(data[sent:])


def is_script(program):
    """Whether a program is a file, and not the name of a module."""
    return program.endswith(".py")


def client(path, program, *arguments):
    """Be a process of the zygote's; see the module's text."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until its number is known
    zygote = socket.socket(socket.AF_UNIX)
    zygote.connect(path)
    pmi = [int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else []
    request = {"program": program, "arguments": arguments, "folder": os.getcwd(),
               "environment": dict(os.environ), "pmi": pmi}  # fmt: skip
    send(zygote, request, [0, 1, 2, *pmi])
    answers = zygote.makefile()
    pid = json.loads(answers.readline())
    if pid == COLD:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        words = [program] if is_script(program) else ["-m", program]
        os.execv(sys.executable, [sys.executable, *words, *arguments])
    for file in (0, 1, 2, *pmi):
        os.close(file)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    code = json.loads(answers.readline())
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__" and sys.argv[1] != "--zygote":  # before more is imported: it is many
    client(*sys.argv[1:])

import array  # noqa: E402
import atexit  # noqa: E402
import contextlib  # noqa: E402
import ctypes  # noqa: E402
import fcntl  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import runpy  # noqa: E402
import selectors  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402

LIBRARIES = (
    "numpy", "scipy.special", "scipy.stats", "pydantic", "pydantic.main", "pydantic.types",
    "pydantic.type_adapter", "pydantic.json_schema", "tomllib", "tomli_w", "tqdm", "torch",
    "torch.fx", "safetensors.numpy", "safetensors.torch", "transformers.masking_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.modeling_utils", "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.llama.modeling_llama", "transformers.tokenization_utils_fast",
)  # fmt: skip
"""What runs of the program import; a module that a release lacks is left out."""


class Zygote:
    """The process that all others are forked from; it ends with this one.

    Attributes
    ----------
    environment : what it is started with, and what its children are compared with
    """

    def __init__(self, environment, libraries=LIBRARIES):
        self.environment, self._libraries = environment, libraries
        self._process = None

    def command(self, program, arguments):
        """Return the words that start a module or a script warm; start the zygote if need be."""
        if self._process is None:
            self._start()
        words = [sys.executable, "-S", "-E", __file__, self._socket]
        return [*words, str(program), *map(str, arguments)]

    def processes(self):
        """Return the numbers of the processes that run, each of which leads a group."""
        if self._process is None:
            return []
        pid = self._process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            return [int(word) for word in children.read().split()]

    def _start(self):
        folder = tempfile.mkdtemp(prefix="zygote-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self._socket = f"{folder}/socket"
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--zygote", self._socket, *self._libraries],
            env=self.environment, start_new_session=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert self._process.stdout.readline() == b"ready\n", "the zygote did not start"


class Child(Exception):
    """This process is one that was forked."""


class Server:
    """Forks processes for clients, tells each how its process ended, and kills those left behind.

    All in one thread, since it forks.
    """

    def __init__(self, path, environment):
        self._own = read_at_import(environment)
        self._selector = selectors.DefaultSelector()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen(64)
        self._selector.register(0, selectors.EVENT_READ, self._end)  # its tests have ended
        self._selector.register(self._listening, selectors.EVENT_READ, self._accept)
        self._pids: set[int] = set()

    def serve(self):
        """Serve until the tests have ended; raises `Child` in each process that it forks."""
        while True:
            for key, _ in self._selector.select():
                if self._selector.get_map().get(key.fd) is key:  # not removed by another of these
                    key.data()

    def _close(self):
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            elif key.fileobj != 0:
                os.close(key.fileobj)
        self._selector.close()

    def _end(self):
        for pid in self._pids:
            kill(pid)
        os._exit(0)

    def _accept(self):
        connection, _ = self._listening.accept()
        files, data = array.array("i"), b""
        while not data.endswith(b"\n"):
            part, ancillary, _, _ = connection.recvmsg(1 << 20, socket.CMSG_SPACE(64))
            if not part:
                return connection.close()
            data += part
            for _, _, given in ancillary:
                files.frombytes(given)
        request = json.loads(data)
        if read_at_import(request["environment"]) != self._own:
            send(connection, COLD)
        else:
            self._fork(connection, request, files)
        for file in files:
            os.close(file)
        return None

    def _fork(self, connection, request, files):
        pid = os.fork()
        if pid == 0:
            connection.close()
            self._close()
            become(request, files)
            raise Child(request["program"])
        self._pids.add(pid)
        ended = os.pidfd_open(pid)
        send(connection, pid)

        def forget():
            for file in (connection, ended):
                self._selector.unregister(file)
            connection.close()
            os.close(ended)
            self._pids.remove(pid)

        def on_end():
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with contextlib.suppress(OSError):
                send(connection, code)
            forget()

        def on_client_gone():
            kill(pid)
            os.waitpid(pid, 0)
            forget()

        self._selector.register(ended, selectors.EVENT_READ, on_end)
        self._selector.register(connection, selectors.EVENT_READ, on_client_gone)


def kill(pid):
    """Kill a forked process and its children, which have no other session."""
    for killing in (os.killpg, os.kill):  # it may not have begun its session yet
        with contextlib.suppress(ProcessLookupError):
            killing(pid, signal.SIGKILL)


def become(request, files):
    """Turn a forked process, which holds no other files, into the one asked for."""
    os.setsid()
    wanted = [0, 1, 2, *request["pmi"]]
    apart = [fcntl.fcntl(file, fcntl.F_DUPFD, 100) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(apart, wanted, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    program = request["program"]
    sys.path[0] = os.path.dirname(os.path.abspath(program)) if is_script(program) else os.getcwd()
    sys.argv[:] = [program, *request["arguments"]]


def main(path, *libraries):
    """Be the zygote, or a process forked from it."""
    environment = dict(os.environ)  # without what libraries add to it
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name in libraries:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert not loaded & {"mpi4py", "h5py", "omniinput_hpc"}, loaded
    gc.collect()
    gc.freeze()  # else each process's collections write to, and so copy, all that was imported
    server = Server(path, environment)
    print("ready", flush=True)
    try:
        server.serve()
    except Child as child:
        program = str(child)
    code = 0
    try:
        if is_script(program):
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int | None):  # a text for Python to print
            raise
        code = end.code or 0
    leave(code)


def leave(code):
    """End this process as Python does, but leave its modules and libraries to the system.

    Python and C++ would take all of them apart, which takes longer than a run of a test's size.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    if hdf5 := sys.modules.get("h5py.defs"):
        ctypes.CDLL(hdf5.__file__).H5close()  # what is open is written
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except OSError:
        sys.exit(code)  # Python says so
    ctypes.CDLL(None).fflush(None)
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main(*sys.argv[2:])
