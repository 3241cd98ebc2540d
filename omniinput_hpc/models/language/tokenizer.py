"""A model folder's tokenizer, read without torch: which tokens there are, and the text of inputs.

``tokenizer.json`` is read, else ``vocab.txt`` (WordPiece), else ``vocab.json`` with ``merges.txt``
(byte-level BPE); of a GGUF file the tokenizer that is in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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
"""Of each file; the largest vocabularies take some 40 MB."""
FILES = ("tokenizer.json", "vocab.txt", "vocab.json")
SENTENCEPIECE = "tokenizer.model"


class Vocabulary:
    """The tokens of a folder.

    Attributes
    ----------
    tokenizer : tokenizers.Tokenizer
    ids : every token's id
    special : ids of the special tokens
    """

    def __init__(self, folder: Path, tokenizer: Any, no_encoding: str | None = None) -> None:
        self.folder, self.tokenizer, self._no_encoding = folder, tokenizer, no_encoding
        self.ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
        added = tokenizer.get_added_tokens_decoder()
        self.special = {token_id for token_id, token in added.items() if token.special}

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without the special tokens that a model puts around it.

        A `UserError` says that this tokenizer can only decode.
        """
        if self._no_encoding:
            raise UserError(
                f"{self.folder}: texts cannot be turned into tokens, since {self._no_encoding}; "
                "give token ids, or a folder with the model's tokenizer.json"
            )
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, special ones included."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    def id_of(self, role: str, default: str) -> int:
        """Return the id of the token in a role ("cls_token"), by the folder's settings.

        A `UserError` says that the vocabulary has no such token.
        """
        token = _named_tokens(self.folder).get(role) or default
        if token not in self.ids:
            raise UserError(f"the vocabulary in {self.folder} has no {role} {token!r}")
        return self.ids[token]


def read(folder: Path) -> Vocabulary | None:
    """Return the vocabulary of a folder, None without a file of one; a `UserError` if broken."""
    if gguf_file.is_gguf(folder):
        tokenizer = _made(folder, gguf_file.read_tokenizer)
        no_encoding = None if tokenizer is None else gguf_file.no_encoding(folder)
        return None if tokenizer is None else Vocabulary(folder, tokenizer, no_encoding)
    present = [name for name in FILES if os.path.isfile(folder / name) or irregular(folder / name)]
    return Vocabulary(folder, _made(folder / present[0], _of_file)) if present else None


def _of_file(file: Path) -> Any:
    """Return the tokenizer that one of `FILES` holds."""
    from tokenizers import Tokenizer
    from tokenizers.implementations import BertWordPieceTokenizer, ByteLevelBPETokenizer

    folder, data = file.parent, read_bytes(file, "tokenizer", MAX_BYTES)
    if file.name == "tokenizer.json":
        return Tokenizer.from_buffer(data)
    if file.name == "vocab.txt":
        lower = _read(folder / "tokenizer_config.json").get("do_lower_case", True)
        return BertWordPieceTokenizer(str(file), lowercase=lower)._tokenizer
    read_bytes(folder / "merges.txt", "tokenizer's merges", MAX_BYTES)
    tokenizer = ByteLevelBPETokenizer(str(file), str(folder / "merges.txt"))._tokenizer
    tokenizer.add_special_tokens(_special_tokens(folder))
    return tokenizer


def _made(file: Path, make: Callable[[Path], Any]) -> Any:
    """Return the tokenizer that is made of a file; a `UserError` where it cannot be."""
    try:
        return make(file)
    except UserError:
        raise
    except BaseException as error:  # what tokenizers raises is a bare Exception, or a Rust panic
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(f"{file} cannot be read as a tokenizer: {first_line(error)}") from None


def require(words: Vocabulary | None, folder: Path, key: str) -> Vocabulary:
    """Return a folder's vocabulary, as `read` found it.

    A `UserError` says that the folder has none and `key` needs it.
    """
    if words is not None:
        return words
    remedy = (
        f"it has only {SENTENCEPIECE}; AutoTokenizer.from_pretrained(...).save_pretrained(...) "
        "writes a tokenizer.json"
        if os.path.isfile(folder / SENTENCEPIECE)
        else "put the model's tokenizer.json there"
    )
    raise UserError(f"{key} needs a tokenizer in {folder}: {remedy}")


class Text:
    """What a person sees of inputs [n, D]: their text behind the prefix's.

    Parameters
    ----------
    vocabulary : None where the folder has none; token ids are shown then
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
        rows = [[*self._before, *row, *self._after] for row in self._token_ids[x_nd].tolist()]
        return [self._vocabulary.decode(row) for row in rows]


def _special_tokens(folder: Path) -> list[str]:
    named = _named_tokens(folder)
    texts = (named.get(f"{role}_token") for role in ("bos", "eos", "unk", "pad"))
    return sorted({text for text in texts if text})


def _named_tokens(folder: Path) -> dict[str, str]:
    """Return the settings of a folder, with each token's text, by its role ("cls_token")."""
    files = ("tokenizer_config.json", "special_tokens_map.json")
    settings = {key: value for file in files for key, value in _read(folder / file).items()}
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
