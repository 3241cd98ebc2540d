"""Untrusted models: folders that lie, and other things in a file's place."""

from __future__ import annotations

import json
import os
import shutil
import socket
import zipfile
from functools import partial

from language_folders import save_classifier, save_decoder
from run_tools import ROOT

DEEP = "[" * 100_000
HUGE = 1 << 40
SETTINGS = {
    **{f"{key} of {value!r}"[:60]: {key: value} for key, value in [
        ("n_layer", 100_000), ("n_layer", 10**12), ("n_layer", -1), ("n_layer", "2"),
        ("n_layer", 1.5), ("n_layer", None), ("n_layer", [2]), ("n_layer", {}), ("n_layer", 1999),
        ("n_embd", 10**9), ("n_embd", 0), ("n_embd", -16), ("n_embd", "16"), ("n_embd", None),
        ("n_embd", 16_384), ("n_head", 0), ("n_head", 3), ("n_head", -2), ("n_head", "two"),
        ("n_head", 10**400 // 3), ("n_positions", 10**6), ("n_positions", "16"),
        ("n_positions", -1), ("n_positions", [16]), ("n_positions", 10**18), ("n_inner", 10**9),
        ("n_inner", "x"), ("vocab_size", 10**12), ("vocab_size", -1), ("vocab_size", True),
        ("vocab_size", "29"), ("vocab_size", None), ("vocab_size", 1), ("vocab_size", 10**6),
        ("vocab_size", [29]), ("vocab_size", 29.0), ("num_labels", 10**9), ("model_type", 3),
        ("model_type", "no-such"), ("model_type", None), ("model_type", "../../etc"),
        ("model_type", "bert"), ("model_type", "t5"), ("model_type", ["gpt2"]),
        ("model_type", "a" * 10_000), ("auto_map", {"AutoModelForCausalLM": "evil.Model"}),
        ("configuration_files", ["config.4.json"]), ("transformers_weights", "pytorch_model.bin"),
        ("attn_implementation", "someone/kernels"), ("attn_implementation", 3),
        ("experts_implementation", "a/b"), ("activation_function", "no-such"),
        ("activation_function", 3), ("layer_norm_epsilon", "small"), ("layer_norm_epsilon", [1]),
        ("resid_pdrop", 2), ("resid_pdrop", "x"), ("id2label", 3), ("id2label", ["a"]),
        ("dtype", "float3"), ("dtype", 7), ("torch_dtype", "nothing"),
        ("quantization_config", {"quant_method": "nothing"}), ("quantization_config", 3),
        ("rope_scaling", 3), ("text_config", {"n_layer": 10**9}), ("__class__", "x"),
        ("to_dict", "x"), ("pruned_heads", {"0": [0]}), ("per_layer_config", {"0": {"n_embd": 3}}),
    ]},
}  # fmt: skip
"""Changes of a good config.json. Some of them are harmless to transformers: see `MAY_PASS`."""
MAY_PASS = (
    "torch_dtype of 'nothing'", "pruned_heads of {'0': [0]}",
)  # fmt: skip
TEXTS = {
    "nothing": b"", "no JSON": b"{", "a list": b"[]", "a number": b"7", "null": b"null",
    "deep lists": DEEP.encode(), "deep objects": b'{"a":' * 50_000, "not UTF-8": b"\xff\xfe\xff",
    "a number of 5,000 digits": b'{"vocab_size": ' + b"9" * 5000 + b"}",
    "a number of 400 digits": b'{"vocab_size": ' + b"9" * 400 + b"}",
    "ten million values": b"[" + b"0," * 10_000_000 + b"0]", "zeros": b"\0" * 100,
    "a float of 100,000 digits": b'{"a": 0.' + b"1" * 100_000 + b"}",
}  # fmt: skip
"""What may stand in a JSON file."""


def pipe(path):
    os.mkfifo(path)


def link(target):
    return lambda path: path.symlink_to(target)


def bound(path):
    """Leave a socket there; a path of over 100 letters is too long for one."""
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def sparse(path):
    with path.open("wb") as file:
        file.truncate(HUGE)


THINGS = {
    "a pipe": pipe, "/dev/zero": link("/dev/zero"), "/dev/tty": link("/dev/tty"),
    "a socket": bound, "a folder": lambda path: path.mkdir(), "a loop": link("config.json.loop"),
    "a terabyte of holes": sparse,
}  # fmt: skip
"""What may be in a file's place."""


def header(change):
    """Return a change of a safetensors file's header; `change` takes the header and the data."""

    def apply(path):
        whole = path.read_bytes()
        n = int.from_bytes(whole[:8], "little")
        found, data = json.loads(whole[8 : 8 + n]), whole[8 + n :]
        made = change(found, data)
        text = json.dumps(found).encode() if made is None else made
        path.write_bytes(len(text).to_bytes(8, "little") + text + data)

    return apply


def first(**changes):
    def change(found, data):
        found[next(name for name in found if name != "__metadata__")] |= changes

    return header(change)


def text(made):
    return header(lambda found, data: made)


def length(n):
    def apply(path):
        path.write_bytes(n.to_bytes(8, "little") + path.read_bytes()[8:])

    return apply


def cut(n):
    return lambda path: os.truncate(path, n)


def tensors(n):
    """A header of n tensors that hold nothing."""
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return header(lambda found, data: json.dumps({f"t{i}": entry for i in range(n)}).encode())


WEIGHTS = {
    "a header that is a list": text(b"[]"), "a deep header": text(DEEP.encode()),
    "a header of nothing": text(b"{}"), "a header that is not UTF-8": text(b"\xff\xff"),
    "a header of a long number": text(b'{"a": {"dtype": "F32", "shape": [' + b"9" * 5000 + b"]}}"),
    "100,000 tensors of nothing": tensors(100_000), "an entry that is null": text(b'{"a": null}'),
    "a length of 0": length(0), "a length of 2^63": length(2**63), "a length of 2^40": length(HUGE),
    "a length of 30 MB": length(30_000_000), "cut in its header": cut(100), "cut to 4": cut(4),
    "cut by one": lambda path: os.truncate(path, path.stat().st_size - 1), "empty": cut(0),
    "one byte more": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "a huge shape": first(shape=[2**62, 2**62]), "a negative shape": first(shape=[-1, 4]),
    "a shape of floats": first(shape=[1.0]), "no shape": first(shape=None),
    "a shape of text": first(shape="16"), "1,000 axes": first(shape=[1] * 1000),
    "an unknown dtype": first(dtype="F33"), "a dtype of 3": first(dtype=3),
    "another dtype": first(dtype="F64"), "offsets beyond the file": first(data_offsets=[0, HUGE]),
    "offsets upside down": first(data_offsets=[64, 0]), "no offsets": first(data_offsets=None),
    "offsets of text": first(data_offsets=["0", "64"]), "another shape": first(shape=[3]),
    "metadata of numbers": header(lambda found, data: found.update(__metadata__={"a": 1})),
    "a pickle": lambda path: path.write_bytes(b"\x80\x04\x95" + b"\0" * 100),
}  # fmt: skip
"""Changes of a safetensors file."""
SETTINGS_OF_IMAGES = {
    **{f"{key} of {value!r}"[:60]: {key: value} for key, value in [
        ("architecture", "vit"), ("architecture", 3), ("architecture", None), ("height", 0),
        ("height", 10**12), ("height", "8"), ("height", 8.0), ("height", True), ("height", 65_536),
        ("width", -8), ("width", None), ("channels", 2), ("channels", 3), ("n_values", 1),
        ("n_values", 65_536), ("n_outputs", 65_536), ("n_outputs", [1]), ("size", 65_536),
        ("size", 10**30), ("size", {}),
    ]},
    "65,536 pixels square": {"height": 65_536, "width": 65_536},
    "a huge ResNet": {"architecture": "resnet", "size": 65_536},
    "a CNN's weights": {"architecture": "cnn"},
}  # fmt: skip


class Bases:
    """Good folders, made once, from which all are copied."""

    def __init__(self, folder):
        self.folder, self.made = folder, {}
        for kind in ("decoder", "classifier"):
            (folder / kind).mkdir()
        save_decoder("gpt2", folder / "decoder")
        save_classifier(folder / "classifier")
        shutil.copytree(ROOT / "inputs/models/digits-mlp", folder / "images")

    def copy(self, kind):
        target = self.folder / f"{kind}-{len(self.made)}"
        self.made[target] = kind
        return shutil.copytree(self.folder / kind, target)


def run_of(bases, kind, path, *more):
    """Return the arguments of a run of a folder."""
    inputs = {"decoder": "toy", "classifier": "toy", "images": "digits-mlp"}
    words = [ROOT / f"inputs/{inputs[kind]}.toml", "--set", f"model.path={path}"]
    if kind != "images":
        words += ["--set", "model.length=7"]
    if kind == "classifier":
        words += ["--set", "model.kind=sequence-classifier", "--set", "model.target=1"]
    return [*words, "--set", f"run.output={bases.folder / 'out.h5'}", *more]


def changed(bases, kind, name, change):
    folder = bases.copy(kind)
    change(folder / name)
    return run_of(bases, kind, folder)


def updated(bases, kind, name, keys):
    def change(path):
        path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))

    return changed(bases, kind, name, change)


def instead(bases, kind, name, make):
    def change(path):
        path.unlink(missing_ok=True)
        make(path)

    return changed(bases, kind, name, change)


def two_entries(path):
    """Write an archive as the attack's: two entries of one name, the second of other content."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02N.")
        archive.fp.flush()
        archive.NameToInfo.clear()
        archive.writestr("archive/data.pkl", b"cposix\nsystem\n(S'touch ran'\ntR.")
    return path


def cases(bases):
    """Return by name what makes a case and returns the arguments of its run."""
    found = {}
    for name, keys in SETTINGS.items():
        found[f"config.json: {name}"] = partial(updated, bases, "decoder", "config.json", keys)
    for name, keys in SETTINGS_OF_IMAGES.items():
        found[f"model.json: {name}"] = partial(updated, bases, "images", "model.json", keys)
    files = {
        "decoder": ["config.json", "tokenizer.json",
                    "generation_config.json", "model.safetensors.index.json"],
        "classifier": ["vocab.txt", "tokenizer_config.json", "special_tokens_map.json"],
        "images": ["model.json"],
    }  # fmt: skip
    for kind, names in files.items():
        for name in names:
            for what, data in TEXTS.items():
                if name == "vocab.txt" or (what in TEXT_PASSES.get(name, ())):
                    continue
                make = partial(_write, data)
                found[f"{name}: {what}"] = partial(instead, bases, kind, name, make)
    for kind, names in {**files, "weights": ["model.safetensors"]}.items():
        for name in names:
            for what, make in THINGS.items():
                if what == "a loop" and name not in ("config.json", "model.json"):
                    continue  # a link that leads nowhere: such a file is not there
                if what == "a folder" and name in ("vocab.txt", "tokenizer.json"):
                    continue  # a decoder without a tokenizer shows its tokens' numbers
                of = "decoder" if kind == "weights" else kind
                found[f"{name}: {what}"] = partial(instead, bases, of, name, make)
    for kind in ("decoder", "images"):
        for what, make in WEIGHTS.items():
            found[f"weights of {kind}: {what}"] = partial(
                changed, bases, kind, "model.safetensors", make
            )
    for kind in ("decoder", "classifier", "images"):
        for ending in (".pt2", ".safetensors"):
            found[f"an archive with two entries of one name, {kind}, {ending}"] = partial(
                _archive, bases, kind, ending
            )
    for ending in (".pt2", ".safetensors"):
        found[f"an archive with two entries of one name, factory, {ending}"] = partial(
            _factory, bases, ending
        )
    return found


TEXT_PASSES = {
    "tokenizer_config.json": ("a list", "a number", "null"),
    "special_tokens_map.json": ("a list", "a number", "null"),
    "generation_config.json": (),
}
"""Settings of another shape are none; the folder is good without them."""


def _write(data, path):
    path.write_bytes(data)


def _archive(bases, kind, ending):
    return run_of(bases, kind, two_entries(bases.folder / f"{kind}{len(bases.made)}{ending}"))


def _factory(bases, ending):
    path = two_entries(bases.folder / f"factory{ending}")
    more = ["factory=image_models:tiny_module", "shape=[8, 8]", "n_values=17"]
    return run_of(bases, "images", path, *(w for key in more for w in ("--set", f"model.{key}")))
