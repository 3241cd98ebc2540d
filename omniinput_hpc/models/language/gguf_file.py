"""Language models in one GGUF file (llama.cpp's format): its settings, tensors and tokenizer.

They are read from the file's checked header, without torch. transformers reads the weights and
dequantizes them: the sampled model is that of the dequantized weights.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted import gguf_header
from omniinput_hpc.untrusted.gguf_header import GgufHeader
from omniinput_hpc.untrusted.safetensors_header import Tensor

SUFFIX = ".gguf"
ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Architectures whose outputs have been compared with those of the same weights in safetensors."""
_SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "feed_forward_length": "intermediate_size",
}
"""Keys of GGUF, without the architecture's name, and their names in config.json."""
_EMBEDDING = "token_embd.weight"
_TENSORS = re.compile(
    r"(token_embd|output_norm|output|blk\.[0-9]+\.(attn_(norm|q|k|v|output)|ffn_(norm|gate|up|down)))"
    r"\.weight"
)
_MORE_TENSORS = {
    "llama": re.compile("$^"),
    "qwen2": re.compile(r"blk\.[0-9]+\.attn_[qkv]\.bias"),
    "qwen3": re.compile(r"blk\.[0-9]+\.attn_[qk]_norm\.weight"),
}
"""Names of the tensors that transformers reads: those of all architectures, and those of each."""
_BLOCK = re.compile(r"blk\.([0-9]{1,9})\.")
_CONTROL, _USER_DEFINED = 3, 4
"""GGUF's types of special tokens, and of further tokens that a text may contain."""
_BEGUN = ("llama3", "llama-v3", "llama-bpe", "falcon3")
"""Pre-tokenizers (Llama 3's) of models that begin every text with a token."""
_DIGITS = r"\p{N}{1,3}"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How texts are split into words before bytes are merged, as in the models' tokenizer.json."""


def find(path: Path) -> Path | None:
    """Return the GGUF file at a path, or in a folder without config.json; None without one.

    Raises `UserError` if a folder holds several.
    """
    if path.suffix == SUFFIX and not os.path.isdir(path):
        return path if os.path.exists(path) else None
    if not os.path.isdir(path) or os.path.exists(path / "config.json"):
        return None
    found = sorted(path.glob(f"*{SUFFIX}"))
    if len(found) > 1:
        names = ", ".join(file.name for file in found[:4])
        raise UserError(
            f"model.path = {path}: it holds {len(found)} GGUF files ({names}); name one of them"
        )
    return found[0] if found else None


def is_gguf(path: Path) -> bool:
    """Return whether a model's path, as returned by `hf_folder.resolve`, is a GGUF file."""
    return path.suffix == SUFFIX and not os.path.isdir(path)


def read_config(path: Path) -> dict[str, Any]:
    """Return the settings of a file by the names of config.json, unchecked.

    Raises `UserError` if the file is broken or its architecture is not supported.
    """
    header = _header(path)
    architecture = header.settings.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UserError(
            f"{path}: its architecture is {str(architecture)[:60]!r}; as GGUF only "
            f"{', '.join(ARCHITECTURES)} can be read: use a folder with safetensors"
        )
    config: dict[str, Any] = {"model_type": architecture, "architectures": ["CausalLM"]}
    for name, key in _SIZES.items():
        value = header.settings.get(f"{architecture}.{name}")
        if value is not None:
            if type(value) is not int or value < 1:
                raise UserError(f"{path}: {architecture}.{name} is not a usable number")
            config[key] = value
    _require_plain_positions(path, architecture, header.settings)
    if _EMBEDDING not in header.tensors:
        raise UserError(f"{path} lacks the tensor {_EMBEDDING}: is it a language model?")
    for name in sorted(header.tensors):
        if not (_TENSORS.fullmatch(name) or _MORE_TENSORS[architecture].fullmatch(name)):
            raise UserError(  # transformers would silently leave it out
                f"{path}: transformers does not read the tensor {name} of a {architecture}, so z "
                "would be that of another model; use a folder with safetensors"
            )
    config["eos_token_id"] = header.settings.get("tokenizer.ggml.eos_token_id")
    config["vocab_size"] = header.tensors[_EMBEDDING].shape[0]
    n_blocks = max(
        (int(name[1]) + 1 for name in map(_BLOCK.match, header.tensors) if name), default=0
    )
    if n_blocks > config.get("num_hidden_layers", n_blocks):
        raise UserError(  # transformers would silently leave them out
            f"{path}: {architecture}.block_count is {config['num_hidden_layers']}, but the file "
            f"holds {n_blocks} blocks"
        )
    return config


def _require_plain_positions(path: Path, architecture: str, settings: dict[str, Any]) -> None:
    """Raise a `UserError` if rotary positions are scaled: transformers would silently not do so.

    The rules are llama.cpp's: a factor of 0 is none, and without a type the factor is linear.
    """
    kind = settings.get(f"{architecture}.rope.scaling.type", "linear")
    older = settings.get(f"{architecture}.rope.scale_linear", 0)
    factor = settings.get(f"{architecture}.rope.scaling.factor", older)
    if kind != "none" and (kind != "linear" or factor not in (0, 1)):
        raise UserError(
            f"{path}: transformers does not read {architecture}.rope.scaling ({str(kind)[:40]}, "
            f"factor {factor}), so z would be that of another model; use a folder with safetensors"
        )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file, after checking that it holds their data.

    Raises `UserError` if it does not, or if packages are missing.
    """
    try:
        import accelerate  # noqa: F401  # transformers needs it for these files
        from gguf.constants import GGML_QUANT_SIZES
    except ImportError as error:
        raise UserError(
            f"model.path = {path}: GGUF files need the package {error.name}, which is missing: "
            "python -m pip install gguf accelerate"
        ) from None
    header = _header(path)
    sizes = {int(kind): size for kind, size in GGML_QUANT_SIZES.items()}
    try:
        header.check_places(sizes)
    except ValueError as error:
        raise gguf_header.refusal(path, str(error)) from None
    return {name: Tensor("GGUF", tensor.shape) for name, tensor in header.tensors.items()}


def read_tokenizer(path: Path) -> Any:
    """Return the file's tokenizer (tokenizers.Tokenizer), or None without one.

    A broken one raises any error of the library.
    """
    settings = _header(path).settings
    tokens = settings.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        return None
    if len(set(map(str, tokens))) < len(tokens):
        raise ValueError("a token occurs twice")
    ids = {str(token): i for i, token in enumerate(tokens)}
    kind = settings.get("tokenizer.ggml.model")
    if kind not in _MAKERS:
        raise ValueError(f"tokenizers of the kind {str(kind)[:40]!r} are not supported")
    tokenizer = _MAKERS[kind](ids, settings)
    _add_tokens(tokenizer, tokens, settings.get("tokenizer.ggml.token_type"))
    return tokenizer


def no_encoding(path: Path) -> str | None:
    """Return why a file's tokenizer can only decode texts; None if it can also encode."""
    settings = _header(path).settings
    kind = settings.get("tokenizer.ggml.model")
    if kind != "gpt2":
        return f"its tokenizer of the kind {str(kind)[:40]!r} can only decode here"
    name = settings.get("tokenizer.ggml.pre")
    known = isinstance(name, str) and name in _splitters()
    return None if known else f"its rule for splitting words ({str(name)[:40]!r}) is unknown"


def beginning(path: Path) -> list[int]:
    """Return the ids with which a file's tokenizer begins every text, by llama.cpp's rules."""
    settings = _header(path).settings
    by_kind = settings.get("tokenizer.ggml.model") == "llama"
    by_kind = by_kind or settings.get("tokenizer.ggml.pre") in _BEGUN
    token = settings.get("tokenizer.ggml.bos_token_id", 1 if by_kind else None)
    add = settings.get("tokenizer.ggml.add_bos_token", by_kind)
    return [token] if add is True and type(token) is int else []


@lru_cache(maxsize=2)
def _read_header(path: Path, _changed: tuple[int, int]) -> GgufHeader:
    return gguf_header.read_header(path)


def _header(path: Path) -> GgufHeader:
    try:
        found = os.stat(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    return _read_header(path, (found.st_mtime_ns, found.st_size))


def _byte_level(ids: dict[str, int], settings: dict[str, Any]) -> Any:
    """Return a byte-level BPE tokenizer (GPT-2's kind)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    merges: list[tuple[str, str]] = []
    for merge in settings.get("tokenizer.ggml.merges", []):
        first_token, space, second_token = str(merge).partition(" ")
        if not space or " " in second_token:
            raise ValueError("a merge is not a pair of tokens")
        merges.append((first_token, second_token))
    name = settings.get("tokenizer.ggml.pre")
    # llama-bpe keeps a word that is a token, even if no merges make it
    tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=name == "llama-bpe"))
    first, by_words = _splitters().get(str(name), (None, True))
    bytes_last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=by_words)
    parts = [bytes_last] if first is None else [first, bytes_last]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _splitters() -> dict[str, tuple[Any, bool]]:
    """Return by name: the step before the bytes, and whether GPT-2's words are split after it."""
    from tokenizers import Regex, pre_tokenizers

    def cut(digits: str) -> tuple[Any, bool]:
        return pre_tokenizers.Split(Regex(_WORDS % digits), "isolated"), False

    return {
        "gpt-2": (None, True),
        "smollm": (pre_tokenizers.Digits(individual_digits=True), True),
        "llama-bpe": cut(_DIGITS),
        "qwen2": cut(r"\p{N}"),
    }


def _sentencepiece(ids: dict[str, int], settings: dict[str, Any]) -> Any:
    """Return a decoder of SentencePiece's tokens; it does not encode (see `no_encoding`)."""
    from tokenizers import Tokenizer, decoders, models

    tokenizer = Tokenizer(models.BPE(ids, []))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


_MAKERS: dict[Any, Callable[[dict[str, int], dict[str, Any]], Any]] = {
    "gpt2": _byte_level, "llama": _sentencepiece,
}  # fmt: skip


def _add_tokens(tokenizer: Any, tokens: list[Any], kinds: Any) -> None:
    """Register a tokenizer's special tokens, and those that texts contain verbatim."""
    from tokenizers import AddedToken

    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        return
    named = list(zip(map(str, tokens), kinds, strict=True))
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t, kind in named if kind == _CONTROL]
    )
    tokenizer.add_tokens(
        [
            AddedToken(t, special=False, normalized=False)
            for t, kind in named
            if kind == _USER_DEFINED
        ]
    )
