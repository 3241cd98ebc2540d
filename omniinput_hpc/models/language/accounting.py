"""Account for every tensor of a checkpoint: the model uses it, or it may be left out.

transformers leaves out tensors that have no place in the model described by config.json, some of
them silently. The remaining weights may be a different model, with a different z.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language.hf_checks import Tensors
from omniinput_hpc.untrusted.safetensors_header import Tensor

Read = Callable[[str], torch.Tensor]
"""Reads one tensor of the files by its name."""

_LAYER = re.compile(r"(?:^|\.)(?:h|layers?|blocks?)\.([0-9]{1,9})\.")
_AHEAD = re.compile(r"(^|\.)(mtp\w*|nextn\w*)\.")
_AHEAD_KEY = re.compile(r"mtp|nextn")
_OTHER_PART = re.compile(
    r"(^|\.)\w*(vision|visual|image|audio|speech|video|multi_?modal|mm_projector|talker|token2wav"
    r"|code2wav|vocoder)\w*(\.|$)|^(model\.)?(connector|aligner|projector|resampler|perceiver)\w*\."
)
_ENCODER, _DECODER = re.compile(r"^(model\.)?encoder\."), re.compile(r"(^|\.)decoder\.")
_OTHER_HEAD = re.compile(
    r"^(cls|lm_head|predictions|(vocab|lm|mask|generator|discriminator)_\w+|qa_outputs"
    r"|(\w+\.)?contact_head)\."
)
_CLASSES = re.compile(
    r"(^|\.)(score|classifier|classification_head|v_head|qa_outputs|logits_proj)\."
)
_SCALES = re.compile(
    r"(^|[._])(SCB|weight_scale\w*|input_scale|scales?|scale_inv|q?zeros|zero_points?|g_idx"
    r"|qweight|absmax|quant_map|quant_state\w*|weight_format)$"
)


def _is_mask(tensor: Tensor) -> bool:
    """Return whether a tensor has the shape of a causal mask, [1, 1, n, n], or is one number."""
    shape = tensor.shape
    return tensor.n_numbers == 1 or (
        len(shape) == 4 and shape[:2] == (1, 1) and shape[2] == shape[3]
    )


def _counts(tensor: Tensor) -> bool:
    return tensor.dtype in ("I64", "I32")


def _any(tensor: Tensor) -> bool:
    return True


_HARMLESS: tuple[tuple[re.Pattern[str], Callable[[Tensor], bool], str], ...] = (
    (re.compile(r"(attn|attention)\.(bias|masked_bias|causal_mask)$"), _is_mask,
     "the causal mask, which transformers computes"),
    (re.compile(r"(^|\.)(position_ids|token_type_ids)$"), _counts,
     "position numbers, which transformers computes"),
    (re.compile(r"(^|\.)(encoder|decoder)\.version$"), lambda tensor: tensor.n_numbers <= 1,
     "the version of the program that wrote the weights"),
    (re.compile(r"(^|\.)pooler\.(dense\.)?(weight|bias)$"), _any,
     "a summary of the text for other heads, which this one does not use"),
    (re.compile(r"^cls\.seq_relationship\.(weight|bias)$"), _any,
     "the head that predicts whether one sentence follows another"),
    (re.compile(r"\.EncDecAttention\.relative_attention_bias\.weight$"), _any,
     "a table that the T5 of its authors does not use either"),
    (re.compile(r"^(deberta|esm)\.embeddings\.position_embeddings\.weight$"), _any,
     "a table of absolute positions, which the architecture's published models do not use"),
)  # fmt: skip
"""Names that may be left out, a condition on the tensor, and the reason."""


def account(
    model: Any,
    unexpected: Iterable[str],
    tensors: Tensors,
    read: Read,
    where: str,
    quantized: bool = False,
) -> list[str]:
    """Return lines that list the tensors left out of a model, and why.

    Raises `UserError` if a tensor may not be left out.

    Parameters
    ----------
    model : as transformers loaded it
    unexpected : names that transformers reports as left out
    tensors : those of the files
    read : reads one of them
    where : begins a message
    quantized : whether the files hold codes, from which transformers has made the weights
    """
    own = set(model.state_dict())
    left_out = set(map(str, unexpected)) | _hushed(model, own, tensors)
    why: dict[str, list[str]] = {}
    for name in sorted(left_out):  # every rank reports the same tensor
        reason = _reason(name, model, own, tensors, read)
        if reason is None:
            raise UserError(f"{where}: {_refusal(name, model, own)}")
        why.setdefault(reason, []).append(name)
    if not quantized:
        _check_stored_as(model, left_out, tensors, where)
    return [
        f"left out of the weights: {names[0]}"
        + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        + f" ({reason})"
        for reason, names in why.items()
    ]


def check_ties(model: Any, ties: Mapping[str, str], where: str) -> None:
    """Raise a `UserError` if weights differ that config.json declares to be the same.

    `ties` maps each name to the other of its pair. transformers then keeps both; older versions and
    other programs keep only one of them.
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    for one, other in ties.items():
        if one in named and other in named and named[one] is not named[other]:
            raise UserError(
                f"{where}: config.json says that {one} and {other} are the same weights "
                "(tie_word_embeddings), but the files hold different ones; set "
                "tie_word_embeddings to false there if both belong to the model"
            )


def _check_stored_as(model: Any, left_out: set[str], tensors: Tensors, where: str) -> None:
    """Raise a `UserError` if weights are stored as whole numbers: transformers would cast them."""
    # transformers may rename the part before the last dot
    tables = {
        (name.rpartition(".")[2], tuple(held.shape))
        for name, held in model.state_dict().items()
        if not held.is_floating_point()
    }
    for name, tensor in sorted(tensors.items()):
        is_real = re.fullmatch(r"B?F\d.*|GGUF", tensor.dtype) or name in left_out
        is_table = (name.rpartition(".")[2], tuple(tensor.shape)) in tables
        if not is_real and not is_table:
            raise UserError(
                f"{where}: {name} is stored as {tensor.dtype}, but weights must be real numbers; "
                "save the weights as float32, bfloat16 or float16"
            )


def _hushed(model: Any, own: set[str], tensors: Tensors) -> set[str]:
    """Return tensors that have no place in the model and that transformers leaves out silently."""
    hushed = [*(model._keys_to_ignore_on_load_unexpected or ()), r"rotary_emb\.inv_freq"]
    pattern = re.compile("|".join(f"({one})" for one in [*hushed, r"(^|\.)position_ids$"]))
    return {name for name in tensors if pattern.search(name) and not _names(name, model) & own}


def _names(name: str, model: Any) -> set[str]:
    """Return the names that a tensor of a file may have in a model."""
    prefix = f"{model.base_model_prefix}."
    return {name, f"{prefix}{name}", name.removeprefix(prefix)}


def _reason(name: str, model: Any, own: set[str], tensors: Tensors, read: Read) -> str | None:
    """Return why a tensor may be left out of a model; None if it may not."""
    tensor = tensors.get(name)
    if _goes_on(name, model, own):
        n_ahead = _layers_ahead(model)
        depth = _depth(model)
        ahead = all(int(found[1]) < depth + n_ahead for found in _LAYER.finditer(name))
        return "layers that predict further tokens ahead" if n_ahead and ahead else None
    if tensor is None:  # transformers reports it by another name than the file
        candidates = [key for key in tensors if key.endswith(f".{name}")]
        tensor = tensors[candidates[0]] if len(candidates) == 1 else Tensor("F32", ())
    for pattern, fits, reason in _HARMLESS:
        if pattern.search(name) and fits(tensor):
            return reason
    if _AHEAD.search(name):
        return "layers that predict further tokens ahead"
    if _OTHER_PART.search(name):
        return "a part for inputs other than text"
    if (
        _ENCODER.search(name)
        and any(map(_DECODER.search, own))
        and not any(map(re.compile(r"(^|\.)encoder\.").search, own))
    ):
        return "the encoder; only the decoder is evaluated here"
    is_classifier = type(model).__name__.endswith("ForSequenceClassification")
    if is_classifier and _OTHER_HEAD.search(name):
        return "a head for another task"
    if name in tensors and _is_computed(name, model, read):
        return "numbers that the model already holds"
    return None


def _goes_on(name: str, model: Any, own: set[str]) -> bool:
    """Return whether a tensor belongs to a layer beyond the model's last one.

    A separate part, such as an image encoder, does not: its layer 0 is missing from the model, too.
    """
    for found in _LAYER.finditer(name):
        first = f"{name[: found.start(1)]}0{name[found.end(1) :]}"
        layer_0 = f"{name[: found.start(1)]}0."
        alike = _names(first, model) & own or any(one.startswith(layer_0) for one in own)
        if alike and int(found[1]) >= _depth(model):
            return True
    return False


def _depth(model: Any) -> float:
    depth = getattr(model.config.get_text_config(decoder=True), "num_hidden_layers", None)
    return depth if isinstance(depth, int) else float("inf")


def _layers_ahead(model: Any) -> int:
    """Return how many layers predict further tokens (num_nextn_predict_layers of config.json)."""
    settings = vars(model.config.get_text_config(decoder=True))
    found = [n for key, n in settings.items() if _AHEAD_KEY.search(key) and type(n) is int]
    return max(found, default=0)


def _is_computed(name: str, model: Any, read: Read) -> bool:
    """Return whether a tensor repeats the embeddings or a table, or holds zeros that are added."""
    last = name.rpartition(".")[2]
    if last.endswith("inv_freq"):
        like = [b for key, b in model.named_buffers() if key.endswith("inv_freq")]
        return _among(read(name), like, 1e-2)
    if last == "final_logits_bias":
        return not read(name).any()
    if re.search(r"(^|\.)(shared|embed_tokens|wte|word_embeddings|lm_head)\.weight$", name):
        return _among(read(name), [model.get_input_embeddings().weight], 0.0)
    return False


def _among(numbers: torch.Tensor, like: Iterable[torch.Tensor], tolerance: float) -> bool:
    return any(
        one.numel() == numbers.numel()
        and torch.allclose(
            numbers.to(one.dtype).float().flatten(), one.cpu().float().flatten(), tolerance, 0.0
        )
        for one in like
    )


def _refusal(name: str, model: Any, own: set[str]) -> str:
    """Return the problem with a tensor that was left out, and the remedy."""
    what = type(model).__name__
    if _goes_on(name, model, own):
        return (
            f"config.json describes {_depth(model)} layer(s), but the weights hold more ({name}); "
            "do they belong to this model?"
        )
    left = f"its weights hold {name}, which the {what} described by config.json does not use"
    if _SCALES.search(name):
        return (
            f"{left}: they are quantized, but config.json has no supported quantization_config; "
            "save them as float32, bfloat16 or float16"
        )
    if _CLASSES.search(name):
        return f"{left}: is it another kind of model (model.kind)?"
    return (
        f"{left}, so z would be that of another model; use the config.json that belongs to these "
        "weights"
    )
