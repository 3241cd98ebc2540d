"""Find the files of a Hugging Face model and check that they fit together, without torch."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config import Allowed, CausalLm, MaskedLm, SequenceClassifier
from omniinput_hpc.config.space import Space
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.display import Display, letters_of
from omniinput_hpc.models.language import canonical, gguf_file, hf_checks, tokenizer
from omniinput_hpc.models.language.hf_architectures import check_architecture
from omniinput_hpc.models.language.hf_checks import Tensors, read_settings
from omniinput_hpc.models.language.tokenizer import Vocabulary
from omniinput_hpc.untrusted.files import open_regular

_BLOCK = 1 << 22
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
DOWNLOADED_FILES = ("*.json", "*.safetensors", "*.txt", "tokenizer.model")
"""The files of a model on the hub that are used here."""


def _changed(name: str, how: str, option: str) -> str:
    """Return the command that makes inputs/models/NAME-HOW from inputs/models/NAME."""
    folder = f"inputs/models/{name}"
    command = f"python -m omniinput_hpc.zoo.changed_weights {folder} --{option}"
    return f"{command} --output {folder}-{how}"


MADE_BY = {
    "distilbert-sst2": "python -m omniinput_hpc.zoo.sst2 --data FOLDER --base FOLDER",
    "english": "python -m omniinput_hpc.zoo.english",
    "smollm2-135m": "python -m omniinput_hpc.zoo.smollm2",
    "smollm2-135m-bfloat16": _changed("smollm2-135m", "bfloat16", "bfloat16"),
    "smollm2-135m-noise-1": _changed("smollm2-135m", "noise-1", "noise 0.01"),
    "smollm2-135m-noise-5": _changed("smollm2-135m", "noise-5", "noise 0.05"),
    "toy": "python -m omniinput_hpc.zoo.toy",
}
"""The commands that make the folders of inputs/models."""
Framed = SequenceClassifier | MaskedLm
"""Models whose tokenizer puts tokens around every text."""
TextModel = CausalLm | Framed
Frame = tuple[list[int], list[int]]
"""The ids of the tokens before and after every text."""
BYTES_PER_NUMBER = {"float32": 4, "bfloat16": 2, "float16": 2}


def preflight(options: TextModel, hashed: bool = True, allowed: Allowed = None) -> dict[str, Any]:
    """Check a model's files (see `models.table.preflight`).

    Without `hashed` the fingerprint is None; "files" lists the files that it covers. `allowed` is
    ``space.allowed``.
    """
    folder = resolve(options.path)
    if gguf_file.is_gguf(folder) and options.kind != "causal-lm":
        raise UserError(f'model.path = {folder}: GGUF files require model.kind = "causal-lm"')
    config, tensors, weights = check(folder, options.path)
    settings = settings_file(folder)
    check_architecture(config["model_type"], options.kind, settings)
    if isinstance(options, SequenceClassifier):
        hf_checks.check_labels(options.output, "model.output", config, folder)
    n_values = hf_checks.vocabulary_size(config, settings)
    words = tokenizer.read(folder)
    space = space_of(options, folder, n_values, words, allowed)
    if isinstance(options, CausalLm):
        prefix_ids(options, folder, n_values, words)
        n_sites = options.length
    else:
        n_sites = sites_within(options, frame_of(options, folder, n_values, words))
    if isinstance(options, MaskedLm):
        predicted_sites(options, n_sites)
    hf_checks.check_engine(getattr(options, "engine", "torch"), options.dtype)
    files = [settings, *(w for w in weights if w != settings)]
    return {
        "fingerprint": fingerprint(files) if hashed else None,
        "files": [str(file) for file in files],
        "n_values": space.n_values,
        "n_sites": n_sites,
        "bytes": sum(t.n_numbers for t in tensors.values()) * BYTES_PER_NUMBER[options.dtype],
        "folder": str(folder),
    }


def resolve(path: str, key: str = "model.path") -> Path:
    """Return the folder of a model, local or in the hub's local cache (no network is used).

    A GGUF file, named or found in a folder, is returned instead. If nothing is there, raises
    `UserError`, which names the path by its key.
    """
    folder = Path(path).expanduser()
    gguf = gguf_file.find(folder)
    if gguf is not None:
        return gguf
    if os.path.isdir(folder):
        return folder
    reason = f"{key} = {path}: no such folder (it must hold config.json and *.safetensors)"
    if folder.name in MADE_BY:
        reason += f"; make it: {MADE_BY[folder.name]}"
    if os.path.exists(folder) or not _HUB_NAME.fullmatch(path):
        raise UserError(reason)
    found = cached(path)
    if found is None:
        raise UserError(f"{reason}{not_cached(path)}")
    return found


def cached(name: str) -> Path | None:
    """Return the folder of a model of the hub in the local cache; None if it is not there.

    The cache is where `HF_HUB_CACHE` or `HF_HOME` says. It is only read. A snapshot counts even if
    files of the hub are not in it, such as those that `download_command` leaves out.
    """
    if not _HUB_NAME.fullmatch(name):
        return None
    os.environ["HF_HUB_OFFLINE"] = "1"  # fails at once; a firewalled node would wait for minutes
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except HFValidationError:
        return None
    except LocalEntryNotFoundError as error:
        found = getattr(error, "snapshot_path", None)  # of an IncompleteSnapshotError
        return None if found is None else Path(found)


def not_cached(name: str) -> str:
    """Return how to get a model that is not in the cache, as the end of a message."""
    if not _HUB_NAME.fullmatch(name):
        return ""
    return (
        ", and no such model in Hugging Face's cache. If it is on the hub, run this on a machine "
        f"with a network: {download_command(name)}"
    )


def download_command(name: str) -> str:
    """Return the command that fetches a model of the hub into the cache."""
    return " ".join((f"hf download {name}", *(f"--include '{p}'" for p in DOWNLOADED_FILES)))


def read_config(folder: Path) -> dict[str, Any]:
    """Return the parsed config.json of a model folder.

    Raises `UserError` if the file is missing or broken, if the model requires custom code, or if a
    number is too large (see `hf_checks.check_settings`).
    """
    if gguf_file.is_gguf(folder):
        config = gguf_file.read_config(folder)
    else:
        config = read_settings(folder, "config.json")
        if "pretrained_cfg" in config:  # timm's own files name no type
            config.setdefault("model_type", hf_checks.TIMM)
    hf_checks.check_settings(config, settings_file(folder))
    return config


def settings_file(folder: Path) -> Path:
    """Return the file that holds a model's settings: config.json, or the GGUF file itself."""
    return folder if gguf_file.is_gguf(folder) else folder / "config.json"


def n_vocab_of(folder: Path) -> int:
    """Return the number of tokens that a model knows, from its settings."""
    return hf_checks.vocabulary_size(read_config(folder), settings_file(folder))


def check(folder: Path, path: str = "") -> tuple[dict[str, Any], Tensors, list[Path]]:
    """Check all files of a model folder that transformers would read (see `hf_checks`).

    Returns its config.json, the tensors of its weights, and the files of weights. Raises
    `UserError` if a file is missing, broken, not a regular file, or does not fit the others.
    """
    if gguf_file.is_gguf(folder):
        config, weights = read_config(folder), [folder]
        tensors: Tensors = gguf_file.read_tensors(folder)
    else:
        hf_checks.check_files(folder)
        config = read_config(folder)
        weights = weight_files(folder, path)
        tensors = hf_checks.read_tensors(hf_checks.files_read(folder, weights))
        hf_checks.check_tensors(tensors, hf_checks.quantization(config) is not None, folder)
    return config, tensors, weights


def weight_files(folder: Path, path: str = "") -> list[Path]:
    """Return the safetensors files of a model folder, sorted.

    Raises `UserError` if there are none; it names weights that would need unpickling.
    """
    weights = sorted(folder.glob("*.safetensors"))
    if weights:
        return weights
    pickled = [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
    if pickled:
        raise UserError(
            f"{folder} holds only pickled weights ({pickled[0].name}), which are never loaded; "
            "convert them with save_pretrained(..., safe_serialization=True)"
        )
    fetch = "" if not path or os.path.isdir(path) else f"; fetch them: {download_command(path)}"
    raise UserError(f"model.path = {folder}: weights not found (no *.safetensors){fetch}")


def tokens_of(
    options: TextModel, folder: Path, n_vocab: int, words: Vocabulary | None
) -> NDArray[np.int64]:
    """Return the token of each value that the model knows, int64 [n_values], ascending.

    They are all n_vocab tokens of the model, or those that its tokenizer knows and that are not
    special. Raises `UserError` if that requires a tokenizer and the folder has none.
    """
    if options.tokens == "all":
        return np.arange(n_vocab)
    if isinstance(options.tokens, list):
        return _listed(options.tokens, tokenizer.require(words, folder, "model.tokens"), n_vocab)
    found = tokenizer.require(words, folder, 'model.tokens = "no-special"')
    ids = sorted(i for i in found.ids.values() if i < n_vocab and i not in found.special)
    if len(ids) < 2:
        raise UserError(
            f"{folder}: the tokenizer has {len(ids)} tokens that are not special; "
            "at least 2 are needed"
        )
    return np.array(ids, dtype=np.int64)


def _listed(names: list[str], words: Vocabulary, n_vocab: int) -> NDArray[np.int64]:
    """Return the ids of tokens that are listed by name; a `UserError` names a wrong one."""
    for number, name in enumerate(names):
        if name not in words.ids:
            raise UserError(f"model.tokens: {words.folder} has no token {name!r}")
        if name in names[:number]:
            raise UserError(f"model.tokens names {name!r} twice")
    ids = [words.ids[name] for name in names]
    check_tokens(ids, n_vocab, words, "model.tokens")
    return np.array(ids, dtype=np.int64)


def space_of(
    options: TextModel,
    folder: Path,
    n_vocab: int,
    words: Vocabulary | None,
    allowed: Allowed = None,
) -> Space:
    """Return which of the model's values the sites may take.

    With `allowed` = "tokenizer" they are those that stand for a token. Raises `UserError` if the
    folder has no tokenizer to decide this.
    """
    tokens = tokens_of(options, folder, n_vocab, words)
    if allowed is None:
        return Space(len(tokens))
    found = tokenizer.require(words, folder, 'space.allowed = "tokenizer"')
    values = np.flatnonzero(np.isin(tokens, list(found.ids.values())))
    if len(values) < 2:
        raise UserError(
            f'space.allowed = "tokenizer": of the {len(tokens):,} values of the model in {folder} '
            f"only {len(values)} stand for a token"
        )
    return Space(len(tokens), values)


def prefix_ids(
    options: TextModel, folder: Path, n_vocab: int, words: Vocabulary | None
) -> list[int]:
    """Return the ids of the prefix's tokens; a `UserError` names one that the model lacks."""
    return ids_of(options.prefix or [], "model.prefix", folder, n_vocab, words)


def without_beginning(prefix: Sequence[int], words: Vocabulary) -> list[int]:
    """Return a prefix without tokens at its start that begin every text (``<s>``).

    They are not text: another tokenizer would read their names as words. A folder may name a token
    that its tokenizer does not add: such a token goes only if nothing follows it, since it may be
    part of a chat template (``<|im_start|>user``).
    """
    folder = words.folder
    begins = gguf_file.beginning(folder) if gguf_file.is_gguf(folder) else words.around()[0]
    named = words.ids.get(tokenizer.named_tokens(folder).get("bos_token", ""), -1)
    rest = list(dropwhile(set(begins).__contains__, prefix))
    return [] if rest == [named] else rest


def ids_of(
    given: str | Sequence[int], key: str, folder: Path, n_vocab: int, words: Vocabulary | None
) -> list[int]:
    """Return the ids of a text's tokens, or the ids given; `key` names them in a `UserError`."""
    if isinstance(given, str):
        ids = tokenizer.require(words, folder, f"{key} as text").encode(given)
        if not ids:
            raise UserError(f"{key} = {given!r} contains no token")
    else:
        ids = list(given)
    check_tokens(ids, n_vocab, words, key)
    return ids


def check_tokens(ids: Sequence[int], n_vocab: int, words: Vocabulary | None, what: str) -> None:
    """Raise a `UserError` if the model has no value for one of the tokens `ids`.

    A tokenizer may have more tokens than the model, for example after fine-tuning added some.
    """
    largest = max(ids, default=0)
    if largest >= n_vocab:
        name = str(largest) if words is None else words.name_of(largest)
        raise UserError(f"{what}: the token {name} is not one of the model's {n_vocab} tokens")


def frame(folder: Path, n_vocab: int, words: Vocabulary | None) -> Frame:
    """Return the ids of the tokens before and after a text.

    Its tokenizer says them. If it says none, they are [CLS] and [SEP], if the folder has both.
    """
    found = tokenizer.require(words, folder, "this kind of model")
    before, after = tokenizer.frame(found)
    usual = {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    if not before and not after and all(found.has(*role) for role in usual.items()):
        before, after = ([found.id_of(*role)] for role in usual.items())
    check_tokens([*before, *after], n_vocab, words, "the tokens around a text")
    return before, after


def frame_of(options: Framed, folder: Path, n_vocab: int, words: Vocabulary | None) -> Frame:
    """Return the ids before and after the sites: the tokenizer's, or those that are given."""
    before, after = frame(folder, n_vocab, words)
    if options.prefix is not None:
        before = prefix_ids(options, folder, n_vocab, words)
    if options.suffix is not None:
        after = ids_of(options.suffix, "model.suffix", folder, n_vocab, words)
    return before, after


def sites_within(options: Framed, around: Frame) -> int:
    """Return the number of sites between them; a `UserError` if there are none."""
    n_sites = options.length - sum(map(len, around))
    if n_sites < 1:
        raise UserError(
            f"model.length = {options.length} leaves no site: {sum(map(len, around))} tokens are "
            "around every text"
        )
    return n_sites


def predicted_sites(options: MaskedLm, n_sites: int) -> list[int]:
    """Return the sites whose loss counts; a `UserError` names one that does not exist."""
    sites = list(range(n_sites)) if options.sites is None else options.sites
    if max(sites) >= n_sites or len(set(sites)) < len(sites):
        raise UserError(
            f"model.sites: expected different sites from 0 to {n_sites - 1}, found {sites}"
        )
    return sites


def display(options: TextModel, allowed: Allowed = None) -> Display:
    """Show inputs as text, by the folder's tokenizer; the prefix is separate.

    What a tokenizer puts around a text is shown only among an input's tokens.
    """
    folder = resolve(options.path)
    n_vocab = n_vocab_of(folder)
    words = tokenizer.read(folder)
    tokens = tokens_of(options, folder, n_vocab, words)
    prefix = prefix_ids(options, folder, n_vocab, words)
    if words is None:
        before = " ".join(map(str, prefix)) or None
        note = f"shown as token ids, since {folder} has no tokenizer that can be read here: "
        note += tokenizer.why_none(folder)
    else:
        before = words.decode(without_beginning(prefix, words)) or None
        note = f"decoded by the tokenizer in {folder}"
        unnamed = about_unnamed(words, tokens, allowed)
        note += f"; {unnamed}" if unnamed else ""

    def listed(x_nd: NDArray[np.int64]) -> list[list[str]]:
        around: tuple[list[int], ...] = ()
        if not isinstance(options, CausalLm):
            around = frame_of(options, folder, n_vocab, words)
        return tokenizer.Text(words, tokens, *around).tokens(x_nd)

    show: Callable[[NDArray[np.int64]], list[str]] = tokenizer.Text(words, tokens).render
    if words is None:
        return Display("text", show, before, note)
    letters = letters_of(words.pieces(tokens.tolist()))

    def is_canonical(x_nd: NDArray[np.int64]) -> NDArray[np.bool_]:
        return canonical.is_canonical(words, tokens[x_nd])

    encodes = is_canonical if words.encodes else None
    if letters and isinstance(options, MaskedLm):  # such tokenizers put blanks between letters
        show = letters
    return Display("text", show, before, note, listed, encodes, letters)


def about_unnamed(words: Vocabulary | None, tokens: NDArray[np.int64], allowed: Allowed) -> str:
    """Return a note on values that stand for no token; "" if there are none, or no tokenizer."""
    n = 0 if words is None else int((~np.isin(tokens, list(words.ids.values()))).sum())
    if n == 0:
        return ""
    head = f"{n:,} of the model's {len(tokens):,} values stand for no token of its tokenizer"
    if allowed is not None:
        return f'{head} and are left out (space.allowed = "tokenizer")'
    return f'{head}, and inputs may hold them; set [space] allowed = "tokenizer" to leave them out'


def encoder(options: TextModel, allowed: Allowed = None) -> Callable[[str], list[int]]:
    """Return a function from a text to the values of its sites; -1: a token that no site takes.

    Special tokens that end the prefix and also begin the text (``<s>``) are not repeated. Raises
    `UserError` if the folder has no tokenizer.
    """
    folder = resolve(options.path)
    words = tokenizer.require(tokenizer.read(folder), folder, "a text")
    n_vocab = n_vocab_of(folder)
    tokens = tokens_of(options, folder, n_vocab, words)
    space = space_of(options, folder, n_vocab, words, allowed)
    sites = tokens[space.to_ids(np.arange(space.n_values))]
    value_of = {int(token): value for value, token in enumerate(sites)}
    before = prefix_ids(options, folder, n_vocab, words)

    def values_of(text: str) -> list[int]:
        ids = words.encode(text)
        n = tokenizer.joined(before, ids)[1]
        n = n if words.special.issuperset(ids[:n]) else 0
        return [value_of.get(token, -1) for token in ids[n:]]

    return values_of


def fingerprint(files: list[Path]) -> str:
    """Return the SHA-256 over the names, sizes and contents of files, as "sha256:..."."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + str(file.stat().st_size).encode() + b"\0")
        try:
            with open_regular(file) as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from None
    return f"sha256:{digest.hexdigest()}"
