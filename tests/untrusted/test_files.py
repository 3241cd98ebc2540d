"""Files that others made: a reader never waits, and reads no more than it may."""

import os
import socket
import threading

import pytest

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images.files import read_architecture
from omniinput_hpc.models.language import hf_checks, hf_folder, tokenizer
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.untrusted import gguf_header, safetensors_header
from omniinput_hpc.untrusted.files import irregular, open_regular, read_bytes, read_text
from omniinput_hpc.untrusted.npy import read_array


@pytest.fixture
def places(tmp_path):
    """Return what may be in a file's place, by name."""
    found = {name: tmp_path / name for name in ("pipe", "folder", "socket", "loop", "nowhere")}
    os.mkfifo(found["pipe"])
    found["folder"].mkdir()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(found["socket"]))
    found["loop"].symlink_to("loop")
    yield {**found, "device": tmp_path.__class__("/dev/zero")}
    listening.close()


def test_a_file_is_read_through_links(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"content"
    assert read_bytes(tmp_path / "link", "file", 7) == b"content"
    assert read_text(tmp_path / "file", "file", 7) == "content"
    assert irregular(tmp_path / "link") is None


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pipe", "it is a named pipe, not a regular file"),
        ("device", "it is a device, not a regular file"),
        ("socket", "it is a socket, not a regular file"),
        ("folder", "it is a directory"),
        ("nowhere", "no such file (expected a score file)"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
    ],
)
def test_what_is_no_file_is_refused_at_once(places, name, words):
    with pytest.raises(OSError):
        open_regular(places[name])
    with pytest.raises(UserError) as caught:
        read_bytes(places[name], "score file", 100)
    assert words in str(caught.value) and str(places[name]) in str(caught.value)


def test_what_is_neither_a_file_nor_a_folder_is_named(places):
    named = {name: irregular(path) for name, path in places.items()}
    assert named == {
        "pipe": "a named pipe", "device": "a device", "socket": "a socket", "folder": None,
        "loop": None, "nowhere": None,
    }  # fmt: skip


def test_a_pipe_that_replaces_the_file_while_it_is_opened_is_noticed(places, tmp_path, monkeypatch):
    path, stat = tmp_path / "file", os.stat
    path.write_text("")

    def replace(*arguments, **options):
        found = stat(*arguments, **options)
        path.unlink()
        places["pipe"].rename(path)
        return found

    monkeypatch.setattr(os, "stat", replace)
    with pytest.raises(OSError, match="a named pipe"):
        open_regular(path)


def test_no_more_is_read_than_the_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    with pytest.raises(UserError, match="larger than 7 bytes, too large for a score file"):
        read_bytes(path, "score file", 7)
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of holes
    with pytest.raises(UserError, match="larger than 7 bytes"):
        read_bytes(path, "score file", 7)
    path.write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"not a text file \(UTF-8\)"):
        read_text(path, "score file", 7)
    with pytest.raises(UserError, match="cannot be read"):
        read_bytes(tmp_path / "a\0b", "score file", 7)


def test_without_the_check_a_reader_waits(places):
    """The wrong variant: an ordinary open does not come back before somebody writes."""
    opened = threading.Event()

    def read():
        with places["pipe"].open("rb"):
            opened.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert not opened.wait(0.3)
    descriptor = os.open(places["pipe"], os.O_WRONLY)  # lets it go
    thread.join(60)
    os.close(descriptor)
    assert opened.is_set()


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2\nsize 12345\n"
READERS = {
    "model.safetensors": safetensors_header.read_header,
    "model.gguf": gguf_header.read_header,
    "tokenizer.json": lambda path: tokenizer.read(path.parent),
    "vocab.txt": lambda path: tokenizer.read(path.parent),
    "config.json": lambda path: hf_folder.read_config(path.parent),
    "model.safetensors.index.json": lambda path: hf_checks.check_files(path.parent),
    "model.json": lambda path: read_architecture(path.parent),
    "data.npy": lambda path: read_array(path, "--data"),
    "texts.txt": lambda path: read_text(path, "text", 1000),
    "run.h5": open_run,
}


@pytest.mark.parametrize("name", READERS)
def test_a_pointer_of_git_lfs_is_named_with_the_command(tmp_path, name):
    """A clone without Git LFS has these in place of weights, tokenizers and data."""
    (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(UserError, match=rf"{name} is a Git LFS pointer.*git lfs pull") as caught:
        READERS[name](tmp_path / name)
    assert str(tmp_path) in str(caught.value)


def test_a_pointer_that_nothing_reads_does_not_matter(tmp_path):
    """Weights in another format may have been left out on purpose."""
    (tmp_path / "pytorch_model.bin").write_bytes(POINTER)
    hf_checks.check_files(tmp_path)
