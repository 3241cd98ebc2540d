"""PNG pictures as data URIs, by Pillow: made from arrays, or read from untrusted files."""

from __future__ import annotations

import base64
import io
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from omniinput_hpc.annotation.tasks import PNG_URI
from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import read_bytes

MAX_PIXELS = 2**25
MAX_BYTES = 2**27
_HEADER = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
_END = b"\0\0\0\0IEND\xaeB`\x82"
_BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
# Pillow's errors for a damaged file; SyntaxError is the one for a wrong checksum
_DAMAGED = (OSError, SyntaxError, ValueError, EOFError, *_BOMBS)


def data_uri(image: Any) -> str:
    """Return an image, uint8 [h, w] or [h, w, 3], as a data URI; a UserError for other arrays."""
    array = np.asarray(image)
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or 0 in array.shape:
        raise UserError(
            f"expected a picture uint8 [h, w] or [h, w, 3], got {array.dtype} {list(array.shape)}"
        )
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim == 3 and array.shape[2] != 3:
        raise UserError(f"expected a picture of 1 or 3 channels, got {array.shape[2]}")
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG", compress_level=9)
    return _uri(file.getvalue())


def file_data_uri(path: Path) -> str:
    """Return a PNG file as a data URI; a UserError if it cannot be read or is not a whole PNG."""
    data = read_bytes(path, "picture (.png)", MAX_BYTES)
    try:
        check_header(data)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return _uri(data)


def pixels(uri: str) -> NDArray[np.uint8]:
    """Return the picture in a PNG's data URI, uint8 [h, w] or [h, w, 3]; alpha is dropped.

    Raises a UserError if it is not a whole PNG, or has more than `MAX_PIXELS` pixels.
    """
    try:
        data = base64.b64decode(uri.removeprefix(PNG_URI), validate=True)
    except ValueError:
        raise UserError("a picture's data URI is not valid base64") from None
    size = check_header(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=["PNG"])
            if image.size != size:  # a second header
                raise ValueError("its size differs from its header")
            image.load()
    except _DAMAGED as error:
        raise UserError(f"a picture cannot be read: {error}") from None
    if image.mode.startswith("I"):  # 16 bits of grey
        return np.asarray(np.rint(np.asarray(image, dtype=np.float64) / 257.0), dtype=np.uint8)
    return np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"), dtype=np.uint8)


def check_header(data: bytes) -> tuple[int, int]:
    """Return a PNG's width and height from its header, without decoding.

    Raises a UserError if the header or the end is missing, or for more than `MAX_PIXELS` pixels.
    """
    if not (data.startswith(_HEADER) and data.endswith(_END) and len(data) >= 24):
        raise UserError("not a complete PNG")
    width, height = struct.unpack(">II", data[16:24])
    if not 0 < width * height <= MAX_PIXELS:
        raise UserError(f"a picture has {width} x {height} pixels; the limit is {MAX_PIXELS:,}")
    return width, height


def _uri(data: bytes) -> str:
    return PNG_URI + base64.b64encode(data).decode("ascii")
