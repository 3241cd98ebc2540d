"""Many ranks neither ask a hub nor read a model's files all at once: counted, on 2 ranks."""

import ctypes
import os
import struct
from collections import Counter

import pytest
from language_folders import save_decoder
from run_tools import run

pytestmark = pytest.mark.slow

RANKS = 2
IN_OPEN, EVENT = 0x20, struct.Struct("iIII")
INPUT = """
[run]
output = "{output}"
seed = 1
rounds = 1
[model]
kind = "causal-lm"
path = "someone/small"
length = 5
[sampler]
walkers = 4
steps = 2
exchanges = 1
[ladder]
betas = [0.0, 1.0, 2.0, 4.0]
[bins]
lower = 0.0
upper = 20.0
width = 0.05
[samples]
every = 2
"""


class Opens:
    """Counts, with inotify, how often any process opens each file of a folder."""

    def __init__(self, folder):
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK)
        watch = libc.inotify_add_watch(self._fd, os.fsencode(folder), IN_OPEN)
        assert self._fd >= 0 and watch >= 0, os.strerror(ctypes.get_errno())

    def count(self):
        found = Counter()
        while True:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return found
            while data:
                _, mask, _, length = EVENT.unpack_from(data)
                name = data[EVENT.size : EVENT.size + length].rstrip(b"\0").decode()
                assert mask & IN_OPEN or not mask, "events were lost"
                found[name] += 1
                data = data[EVENT.size + length :]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A cache of Hugging Face's hub that holds someone/small; return its snapshot's folder."""
    model = tmp_path / "hub" / "models--someone--small"
    snapshot = model / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0" * 40)
    save_decoder("gpt2", snapshot)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    (tmp_path / "opens").mkdir()
    (tmp_path / "herd.toml").write_text(INPUT.format(output=tmp_path / "herd.h5"))
    return snapshot


def audited(folder):
    """Return what each rank noted: a list of (event, argument) a rank."""
    notes = [path.read_text().splitlines() for path in sorted(folder.iterdir())]
    return [[tuple(line.split(" ", 1)) for line in lines] for lines in notes]


def test_rank_0_finds_the_model_and_each_rank_reads_its_weights_once(hub, tmp_path):
    opens = Opens(hub)
    done = run(tmp_path / "opens", tmp_path / "herd.toml", ranks=RANKS, module="open_auditor")
    assert done.returncode == 0, done.stderr
    of_all = opens.count()
    ranks = audited(tmp_path / "opens")
    assert len(ranks) == RANKS
    in_refs = [sum(f"{os.sep}refs{os.sep}" in what for _, what in rank) for rank in ranks]
    assert sorted(in_refs)[:-1] == [0] * (RANKS - 1) and max(in_refs) > 0
    weights = ("open", str(hub / "model.safetensors"))
    by_python = [rank.count(weights) for rank in ranks]
    # all: the header, which the model is compared with; rank 0 before: the fingerprint, the header
    assert sorted(by_python) == [1] * (RANKS - 1) + [3]
    # by safetensors: the header and the weights; rank 0 before: the header
    loading = [sum(event == "safe_open" for event, _ in rank) for rank in ranks]
    assert sorted(loading) == [2] * (RANKS - 1) + [3]
    # Whoever opened it was seen (the kernel counts opens that coincide as one)
    assert 2 < of_all["model.safetensors"] <= sum(by_python) + sum(loading)
    asked = [(event, what) for rank in ranks for event, what in rank if event.startswith("socket")]
    assert not asked


def test_the_counts_notice_a_herd(hub, tmp_path):
    """Processes that each resolve the name and take the fingerprint show in the same counts."""
    for _ in range(2):
        done = run(
            tmp_path / "opens",
            tmp_path / "herd.toml",
            "--restart",
            "require",
            module="open_auditor",
        )
        assert done.returncode == 2 and "require" in done.stderr
    weights = ("open", str(hub / "model.safetensors"))
    # for the header; the fingerprint's thread may not have come so far
    assert all(rank.count(weights) >= 1 for rank in audited(tmp_path / "opens"))


def test_a_missing_model_names_the_command_for_a_login_node(hub, tmp_path):
    done = run(
        tmp_path / "opens", tmp_path / "herd.toml", "--set", "model.path=someone/else",
        ranks=RANKS, module="open_auditor",
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("hf download someone/else --include") == 1
    assert not [
        1 for rank in audited(tmp_path / "opens") for event, _ in rank if event.startswith("socket")
    ]
