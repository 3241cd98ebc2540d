"""A real SLURM on this one machine, on loopback, for as long as a test or a command takes.

Runs Debian's munged, slurmctld and slurmd (packages munge and slurm-wlm) as root, with all their
files in one folder and nothing of an installed SLURM touched. By hand::

    python tests/slurm/cluster.py bash       # sbatch, squeue, scontrol work in this shell
    python tests/slurm/cluster.py --check    # why SLURM cannot be started here, if so (exit code 1)
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")

PATIENCE = 120
"""Seconds to wait for what takes one or two on an idle machine."""

# cred_expire: a job that was requeued starts after so many seconds (default: 120, and then some).
# MinJobAge: how long SLURM knows of a job that has ended (default: 300).
# The GPUs are empty files: SLURM only counts them.
SLURM_CONF = """
ClusterName=omniinput
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={d_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=6
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmi2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=86400
KillWait=30
SchedulerParameters=sched_interval=5,bf_interval=5
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=1000000 Gres=gpu:16
PartitionName=main Nodes={host} Default=YES OverSubscribe=NO
"""


def missing() -> str:
    """Return why the job scripts cannot be run under SLURM here, in a few words; "" if they can."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"no {', '.join(absent)} (Debian: apt-get install slurm-wlm munge)"
    flavour = ROOT / ".venv/mpi-flavour"
    if not flavour.exists():
        return "no .venv made by jobscripts/setup.sh"
    if re.search("openmpi|open-mpi|oversubscribe", flavour.read_text()):
        return "Debian's SLURM cannot start Open MPI's ranks"
    return ""


class Cluster:
    """A SLURM whose files are all in `folder`; use as a context manager.

    Attributes
    ----------
    environment : what a process needs for its sbatch, squeue, ... to speak to this SLURM
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        # Not those of a SLURM job that this may run in.
        outer = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
        self._mark = f"OMNIINPUT_TEST_CLUSTER={uuid.uuid4()}"  # on all its processes, and no others
        name, _, value = self._mark.partition("=")
        self.environment = {**outer, name: value, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        """Start the daemons and wait until the node takes jobs."""
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)  # no daemon is left behind where one does not start
            self._configure()
            self._start_munge()
            self._start("slurmctld", "-D")
            self._start("slurmd", "-D")
            self._wait_for("the node", lambda: self.call("sinfo", "-h", "-o", "%t") == "idle")
            undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the daemons and everything that they started."""
        self.stop()

    def call(self, *words: object) -> str:
        """Run one of SLURM's commands and return what it printed; "" where it failed."""
        done = self._run(words)
        return done.stdout.strip() if done.returncode == 0 else ""

    def do(self, *words: object) -> str:
        """Run one of SLURM's commands until it succeeds; return what it printed."""
        deadline = time.monotonic() + PATIENCE
        while (done := self._run(words)).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{words} fails: {done.stderr}")
            time.sleep(1)
        return done.stdout.strip()

    def _run(self, words: Sequence[object]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def processes(self) -> list[int]:
        """Return the ids of all processes of this SLURM: its daemons and its jobs'."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):  # it has just ended
                marked = self._mark.encode() in (entry / "environ").read_bytes().split(b"\0")
                # slurmstepd writes its title over its environment, and runs in slurmd's folder
                if marked or (entry / "cwd").readlink() == self.folder:
                    found.append(int(entry.name))
        return found

    def stop(self) -> None:
        """End all processes of this SLURM: in good order, or after 5 seconds by SIGKILL."""
        for daemon in reversed(self._daemons):
            daemon.terminate()
        deadline = time.monotonic() + 5
        for daemon in self._daemons:
            try:
                daemon.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        while left := self.processes():
            if time.monotonic() > deadline + PATIENCE:
                raise RuntimeError(f"processes {left} of the SLURM in {self.folder} do not end")
            for number in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.1)

    def _configure(self) -> None:
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)  # munged insists
        host = socket.gethostname().partition(".")[0]
        ctld_port, d_port = free_ports(2)
        (self.folder / "slurm.conf").write_text(
            SLURM_CONF.format(folder=self.folder, host=host, ctld_port=ctld_port, d_port=d_port)
        )
        gpus = [self.folder / f"gpu{i}" for i in range(16)]
        for gpu in gpus:
            gpu.touch()
        lines = [f"NodeName={host} Name=gpu File={gpu}\n" for gpu in gpus]
        (self.folder / "gres.conf").write_text("".join(lines))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)

    def _start_munge(self) -> None:
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
        words = [f"--{option}={self.folder}/munge.{name}" for option, name in files.items()]
        self._start("munged", "--foreground", "--force", "--num-threads=1", *words)
        self._wait_for("munged", (self.folder / "munge.socket").exists)

    def _start(self, *words: str) -> None:
        with (self.folder / f"{words[0]}.output").open("wb") as output:
            daemon = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *words],  # where this process is killed
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._daemons.append(daemon)

    def _wait_for(self, what: str, is_there) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_there():
            dead = any(daemon.poll() is not None for daemon in self._daemons)
            if dead or time.monotonic() > deadline:
                logs = {p.name: p.read_text()[-2000:] for p in self.folder.glob("*.output")}
                texts = "".join(f"\n--- {name}\n{text}" for name, text in logs.items())
                raise RuntimeError(f"SLURM does not start: waiting for {what}{texts}")
            time.sleep(0.2)


def free_ports(n: int) -> list[int]:
    """Return numbers of ports on loopback that nothing listens on now.

    They are below those that Linux gives to connections: one of these would take such a port
    between this look and the daemon's start.
    """
    ports: list[int] = []
    while len(ports) < n:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            ports += [port] if port not in ports else []
    return ports


def main() -> int:
    """Run the command line's command inside a SLURM of its own."""
    if len(sys.argv) < 2:
        print("usage: cluster.py --check | COMMAND [ARGUMENT]...", file=sys.stderr)
        return 2
    if reason := missing():
        print(reason)
        return 1
    if sys.argv[1] == "--check":
        return 0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="slurm.") as name, Cluster(Path(name)) as cluster:
        return subprocess.run(sys.argv[1:], env=cluster.environment).returncode


if __name__ == "__main__":
    sys.exit(main())
