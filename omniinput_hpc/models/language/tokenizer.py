"""Read a model folder's tokenizer: its tokens, the text of inputs, how texts begin.

There is one way to read it: ``tokenizer.json`` unchanged, without torch and transformers; in a
folder without that file, transformers' reading of its other files (``vocab.json``, ``vocab.txt``,
``*.model``, ``added_tokens.json``); for a GGUF file the tokenizer that it contains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import gguf_file
from omniinput_hpc.text import first_line
from omniinput_hpc.untrusted.files import irregular, read_bytes
from omniinput_hpc.untrusted.parsing import parse_json

MAX_BYTES = 1 << 27
"""Limit for each file; the largest vocabularies take about 40 MB."""
WHOLE = "tokenizer.json"
LISTS = {"vocab.json": "GPT2Tokenizer", "vocab.txt": "BertTokenizer"}
"""Lists of tokens, and the tokenizers that read them if the model's own class uses another file."""
SENTENCEPIECE = ".model"
ADDED = "added_tokens.json"
SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")
_PROBES = ("a", "the", "0", "e", ".")
"""Texts whose tokens show what a tokenizer puts around a text."""


class Vocabulary:
    """The tokens of a folder.

    Attributes
    ----------
    folder : their folder
    ids : id of every token
    special : ids of the special tokens
    """

    _names: dict[int, str] | None = None

    def __init__(self, folder: Path, tokenizer: Any, no_encoding: str | None = None) -> None:
        self.folder, self.tokenizer, self._no_encoding = folder, tokenizer, no_encoding
        self.ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
        added = tokenizer.get_added_tokens_decoder()
        self.special = {token_id for token_id, token in added.items() if token.special}

    @property
    def encodes(self) -> bool:
        """Whether it can turn texts into tokens, not only tokens into text."""
        return self._no_encoding is None

    def encode(self, text: str, plain: bool = False) -> list[int]:
        """Return the ids of a text, without the special tokens that a model puts around it.

        With `plain`, names of special tokens are read as plain text. Raises `UserError` if this
        tokenizer can only decode.
        """
        self.check_encoding()
        try:
            return self._encode(text, plain)
        except Exception as error:  # tokenizers raises a bare one if it lacks an unknown token
            raise UserError(
                f"{self.folder}: {text[:40]!r} cannot be turned into tokens: {first_line(error)}"
            ) from None

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, special ones included."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each token as its tokenizer names it, as in "##ing"; unknown ids as numbers.

        The names of byte-level tokens (GPT-2, OLMo) stand for bytes: these are given as text, parts
        of a character as escapes.
        """
        if self._names is None:
            self._names = {i: token for token, i in self.ids.items()}
        names = [self._names.get(i, f"{i}") for i in ids]
        backend = getattr(self.tokenizer, "backend_tokenizer", self.tokenizer)
        in_bytes = "ByteLevel" in str(getattr(backend, "decoder", ""))
        return list(map(_as_text, names)) if in_bytes else names

    def bytes_of(self, ids: Sequence[int], key: str, special: bool = False) -> list[bytes | None]:
        """Return the bytes of each token: the text of several is their concatenation.

        None for unknown ids and, without `special`, special tokens. Raises a `UserError`, which
        names `key`, for a tokenizer whose decoder does more.
        """
        backend = getattr(self.tokenizer, "backend_tokenizer", self.tokenizer)
        if type(getattr(backend, "decoder", None)).__name__ != "ByteLevel":
            raise UserError(
                f"{key} needs a tokenizer whose tokens stand for bytes, as GPT-2's do (ByteLevel), "
                f"which the one in {self.folder} is not"
            )
        names = {i: token for token, i in self.ids.items() if special or i not in self.special}
        return [_as_bytes(names[i]) if i in names else None for i in ids]

    def around(self) -> tuple[list[int], list[int]]:
        """Return the ids that the tokenizer puts before and after every text."""
        for text in _PROBES if self._no_encoding is None else ():
            try:
                bare, whole = self.encode(text), self._encode_whole(text)
            except UserError:  # the tokenizer has no tokens for this text
                continue
            for n in range(len(whole) - len(bare) + 1 if bare else 0):
                if whole[n : n + len(bare)] == bare:
                    return whole[:n], whole[n + len(bare) :]
        return [], []

    def id_of(self, role: str, default: str) -> int:
        """Return the id of the token in a role ("cls_token"), from the folder's settings.

        Raises `UserError` if the vocabulary has no such token.
        """
        token = named_tokens(self.folder).get(role)
        if token is None and default not in self.ids:  # RoBERTa's settings, for example, name none
            ids = self.around()[0 if role == "cls_token" else 1]
            if len(ids) == 1:
                return ids[0]
        token = token or default
        if token not in self.ids:
            raise UserError(f"the vocabulary in {self.folder} has no {role} {token!r}")
        return self.ids[token]

    def has(self, role: str, default: str) -> bool:
        """Return whether the folder names a token for a role, or has its usual one."""
        return role in named_tokens(self.folder) or default in self.ids

    def name_of(self, token_id: int) -> str:
        """Return the token with an id, quoted; only the id if there is none."""
        found = next((token for token, i in self.ids.items() if i == token_id), None)
        return f"{token_id}" if found is None else f"{found!r} ({token_id})"

    def check_encoding(self) -> None:
        """Raise a `UserError` if it can only decode."""
        if self._no_encoding:
            raise UserError(
                f"{self.folder}: texts cannot be turned into tokens, since {self._no_encoding}; "
                "give token ids, or a folder with the model's tokenizer.json"
            )

    def _encode(self, text: str, plain: bool) -> list[int]:
        self.tokenizer.encode_special_tokens = plain
        try:
            ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        finally:
            self.tokenizer.encode_special_tokens = False
        return ids

    def _encode_whole(self, text: str) -> list[int]:
        """Return the ids of a text, including those around it."""
        ids: list[int] = self.tokenizer.encode(text).ids
        return ids


class TransformersVocabulary(Vocabulary):
    """The tokens of a folder as transformers reads them.

    transformers appends special tokens that are usual for a kind of model but missing in the files.
    Their ids are made up, so these tokens count as missing here.
    """

    def __init__(self, folder: Path, tokenizer: Any) -> None:
        self.folder, self.tokenizer, self._no_encoding = folder, tokenizer, None
        known = _tokens_of_files(folder)
        everything: dict[str, int] = tokenizer.get_vocab()
        self.ids = {t: i for t, i in everything.items() if known is None or t in known}
        self._made_up = {everything[token]: token for token in everything.keys() - self.ids.keys()}
        added = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        self.special = (added | set(tokenizer.all_special_ids)) - self._made_up.keys()

    def encode(self, text: str, plain: bool = False) -> list[int]:
        """Return the ids of a text (see `Vocabulary`); a `UserError` names a token without one."""
        return self._listed(super().encode(text, plain), text)

    def has(self, role: str, default: str) -> bool:
        """Return whether transformers names a token for a role, or the files list the usual one."""
        return getattr(self.tokenizer, role, None) is not None or default in self.ids

    def id_of(self, role: str, default: str) -> int:
        """Return the id of the token in a role, as transformers defines it."""
        token = getattr(self.tokenizer, role, None) or default
        if token not in self.ids:
            raise UserError(f"the vocabulary in {self.folder} has no {role} {token!r}")
        return self.ids[token]

    def _encode(self, text: str, plain: bool) -> list[int]:
        ids: list[int] = self.tokenizer.encode(
            text, add_special_tokens=False, split_special_tokens=plain
        )
        return ids

    def _encode_whole(self, text: str) -> list[int]:
        return self._listed(self.tokenizer.encode(text), text)

    def _listed(self, ids: list[int], text: str) -> list[int]:
        for token in (self._made_up[i] for i in ids if i in self._made_up):
            raise UserError(
                f"{self.folder}: {text[:40]!r} needs the token {token!r}, which its files lack"
            )
        return ids


def read(folder: Path) -> Vocabulary | None:
    """Return the vocabulary of a folder; a `UserError` if it is broken.

    None if there is none, or none that can be read here (see `why_none`).
    """
    if gguf_file.is_gguf(folder):
        tokenizer = _made(folder, gguf_file.read_tokenizer)
        no_encoding = None if tokenizer is None else gguf_file.no_encoding(folder)
        return None if tokenizer is None else Vocabulary(folder, tokenizer, no_encoding)
    file = _file_of(folder)
    if file is None or _missing_packages(file):
        return None
    if file.name == WHOLE:
        return Vocabulary(folder, _made(file, _whole))
    return TransformersVocabulary(folder, _made(file, _by_transformers))


def why_none(folder: Path) -> str:
    """Return why `read` finds nothing in a folder, and the remedy."""
    file = None if gguf_file.is_gguf(folder) else _file_of(folder)
    missing = [] if file is None else _missing_packages(file)
    if not missing:
        return "put the model's tokenizer.json there"
    assert file is not None
    return (
        f"it has only {file.name}, which cannot be read without {' and '.join(missing)}; "
        "AutoTokenizer.from_pretrained(...).save_pretrained(...) writes a tokenizer.json"
    )


def require(words: Vocabulary | None, folder: Path, key: str) -> Vocabulary:
    """Return a folder's vocabulary, as found by `read`.

    Raises `UserError`, which names `key`, if the folder has none.
    """
    if words is not None:
        return words
    raise UserError(f"{key} needs a tokenizer in {folder}: {why_none(folder)}")


def _file_of(folder: Path) -> Path | None:
    """Return the file that a folder's tokenizer is read from; None without one."""
    names = [WHOLE, *LISTS]
    if os.path.isdir(folder):
        names += sorted(n for n in os.listdir(folder) if n.endswith(SENTENCEPIECE))
    found = (folder / name for name in names)
    return next((file for file in found if os.path.isfile(file) or irregular(file)), None)


def _missing_packages(file: Path) -> list[str]:
    """Return the packages that a tokenizer's file requires and that are not installed."""
    if file.name == WHOLE:
        return []
    needed = {"transformers": "transformers"}
    if file.suffix == SENTENCEPIECE:
        needed |= {"sentencepiece": "sentencepiece", "google": "protobuf"}
    return [name for module, name in needed.items() if find_spec(module) is None]


def _whole(file: Path) -> Any:
    """Return the tokenizer of a tokenizer.json, with tokens that the folder adds to it."""
    from tokenizers import AddedToken, Tokenizer

    tokenizer = Tokenizer.from_buffer(read_bytes(file, "tokenizer", MAX_BYTES))
    tokenizer.no_truncation()  # some files cut or pad every text
    tokenizer.no_padding()
    for token_id, (token, special) in sorted(_added_tokens(file.parent).items()):
        if token_id == tokenizer.get_vocab_size() and tokenizer.token_to_id(token) is None:
            tokenizer.add_tokens([AddedToken(token, special=special, normalized=False)])
    return tokenizer


def _by_transformers(file: Path) -> Any:
    """Return transformers' tokenizer of a folder."""
    import transformers

    folder = file.parent
    present = [n for n in os.listdir(folder) if n.endswith((".json", ".txt", SENTENCEPIECE))]
    for name in present:  # check types and sizes before transformers opens them
        read_bytes(folder / name, "file of a tokenizer", MAX_BYTES)
    for name in (ADDED, *SETTINGS):
        _read(folder / name)
    # Use the folder's own class; code in the folder is never run
    how = {"local_files_only": True, "trust_remote_code": False}
    if os.path.exists(folder / "config.json") or "tokenizer_class" in _read(folder / SETTINGS[0]):
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **how)
        listed = _tokens_of_files(folder)
        if listed is None or not listed.isdisjoint(tokenizer.get_vocab()):
            return tokenizer
    # The folder names no class of tokenizer, or one that usually reads other files
    kind = getattr(transformers, LISTS.get(file.name, "AutoTokenizer"))
    return kind.from_pretrained(str(folder), **how)


def of_transformers(folder: Path) -> Any:
    """Return a folder's tokenizer as transformers reads it; a `UserError` if it cannot."""
    return _made(_file_of(folder) or folder / WHOLE, _by_transformers)


def frame(words: Vocabulary) -> tuple[list[int], list[int]]:
    """Return the ids that the model's tokenizer puts before and after every text.

    Settings next to a tokenizer.json (``add_bos_token``, a class of tokenizer) override the file,
    by rules that transformers knows. If transformers cannot read the folder, the file decides.
    """
    folder = words.folder
    if gguf_file.is_gguf(folder):
        return [i for i in gguf_file.beginning(folder) if i in words.ids.values()], []

    def around(file: Path) -> tuple[list[int], list[int]]:
        return TransformersVocabulary(folder, _by_transformers(file)).around()

    try:
        before, after = _made(folder / WHOLE, around)
    except UserError:
        return words.around()
    return before, after


def joined(first: Sequence[int], ids: Sequence[int]) -> tuple[list[int], int]:
    """Return `first` followed by `ids` without their overlap, and the overlap's length."""
    most = min(len(first), len(ids))
    n = next(k for k in range(most, -1, -1) if list(first[len(first) - k :]) == list(ids[:k]))
    return [*first, *ids[n:]], n


def _made(file: Path, make: Callable[[Path], Any]) -> Any:
    """Return the tokenizer made from a file; a `UserError` if that fails."""
    try:
        return make(file)
    except UserError:
        raise
    except BaseException as error:  # tokenizers raises a bare Exception, or a Rust panic
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(f"{file} cannot be read as a tokenizer: {first_line(error)}") from None


class Text:
    """The text that a person sees of inputs [n, D], with the fixed tokens around them.

    Parameters
    ----------
    vocabulary : None if the folder has none; token ids are shown then
    token_ids : int64 [n_values], the token of each value
    before, after : fixed tokens around each input
    """

    def __init__(
        self,
        vocabulary: Vocabulary | None,
        token_ids: NDArray[np.int64],
        before: Sequence[int] = (),
        after: Sequence[int] = (),
    ) -> None:
        self._vocabulary, self._token_ids = vocabulary, token_ids
        self._before, self._after = list(before), list(after)

    def render(self, x_nd: NDArray[np.integer]) -> list[str]:
        """Return the text of each input; a token that the tokenizer lacks shows nothing."""
        if self._vocabulary is None:
            return [" ".join(map(str, row)) for row in self._token_ids[x_nd].tolist()]
        return [self._vocabulary.decode(row) for row in self._rows(x_nd)]

    def tokens(self, x_nd: NDArray[np.integer]) -> list[list[str]]:
        """Return the tokens of each input; there must be a vocabulary."""
        assert self._vocabulary is not None
        return [self._vocabulary.pieces(row) for row in self._rows(x_nd)]

    def _rows(self, x_nd: NDArray[np.integer]) -> list[list[int]]:
        return [[*self._before, *row, *self._after] for row in self._token_ids[x_nd].tolist()]


@cache
def _bytes_of_letters() -> dict[str, int]:
    """Return the byte that each letter of a byte-level token's name stands for (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = sorted(set(range(256)) - set(plain))
    return {chr(b): b for b in plain} | {chr(256 + n): b for n, b in enumerate(others)}


def _as_bytes(name: str) -> bytes:
    """Return the bytes of a byte-level token; a name with other letters is taken as it is."""
    letters = _bytes_of_letters()
    if not all(letter in letters for letter in name):  # added tokens are written as they are
        return name.encode("utf-8", "replace")
    return bytes(letters[letter] for letter in name)


def _as_text(name: str) -> str:
    """Return the text of a byte-level token; parts of a character as escapes."""
    return _as_bytes(name).decode("utf-8", "backslashreplace")


def _tokens_of_files(folder: Path) -> set[str] | None:
    """Return all tokens listed in the files of a folder without tokenizer.json; None if unknown."""
    file = _file_of(folder)
    if file is None or file.name not in LISTS:
        return None
    if file.suffix == ".json":
        listed = set(_read(file))
    else:
        text = read_bytes(file, "tokenizer", MAX_BYTES).decode("utf-8")
        listed = {line.removesuffix("\r") for line in text.split("\n")}
    return listed | {token for token, _ in _added_tokens(folder).values()}


def _added_tokens(folder: Path) -> dict[int, tuple[str, bool]]:
    """Return the tokens that a folder adds to its vocabulary: id -> (token, is special)."""
    found = {i: (token, False) for token, i in _read(folder / ADDED).items() if type(i) is int}
    declared = _read(folder / SETTINGS[0]).get("added_tokens_decoder")
    for number, token in declared.items() if isinstance(declared, dict) else ():
        settings = token if isinstance(token, dict) else {"content": token}
        if number.isdecimal() and isinstance(settings.get("content"), str):
            found[int(number)] = (settings["content"], settings.get("special") is True)
    return found


def named_tokens(folder: Path) -> dict[str, str]:
    """Return a folder's settings by key; a token in a role ("cls_token") is given as its text."""
    settings = {key: value for file in SETTINGS for key, value in _read(folder / file).items()}
    texts = {k: v.get("content") if isinstance(v, dict) else v for k, v in settings.items()}
    return {k: text for k, text in texts.items() if isinstance(text, str)}


def _read(file: Path) -> dict[str, Any]:
    if not os.path.exists(file):
        return {}
    try:
        found = parse_json(read_bytes(file, "tokenizer's settings", MAX_BYTES))
    except ValueError as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}
