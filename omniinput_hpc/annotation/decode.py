"""Token ids to text, from the tokenizer's files alone: neither torch nor weights.

A space of its own keeps what a tokenizer would hide: special tokens are shown, and nothing is
cleaned up.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from numpy.typing import NDArray
from tokenizers import Tokenizer

from omniinput_hpc.errors import UserError


class TextDecoder:
    """The tokenizer of a model folder.

    Parameters
    ----------
    folder : holds tokenizer.json

    Raises
    ------
    UserError
        There is no tokenizer.json, or it is broken.
    """

    def __init__(self, folder: Path) -> None:
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise UserError(f"{folder} holds no tokenizer.json, so that its tokens have no text")
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises the bare class
            reason = str(error).splitlines()[0]
            raise UserError(f"{file} is not a readable tokenizer: {reason}") from None

    def text(self, tokens: Sequence[int] | NDArray) -> str:
        """Return the text of token ids; an id without a token (padded vocabularies) as <id N>."""
        parts: list[str] = []
        known: list[int] = []
        for token in map(int, tokens):
            if self._tokenizer.id_to_token(token) is not None:
                known.append(token)
                continue
            parts += [self._decode(known), f"<id {token}>"]
            known = []
        return "".join([*parts, self._decode(known)])

    def _decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False)) if tokens else ""

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text, without the special ones that a tokenizer adds."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)
