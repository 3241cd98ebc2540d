"""PNG from arrays, by zlib alone (W3C PNG specification, third edition)."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.tasks import PNG
from omniinput_hpc.errors import UserError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png_bytes(image: NDArray[np.uint8]) -> bytes:
    """Return a PNG of an image, uint8 [h, w] (grey) or [h, w, 3] (red, green, blue)."""
    height, width = image.shape[:2]
    colour = 2 if image.ndim == 3 else 0
    rows = image.reshape(height, -1)
    unfiltered = np.hstack([np.zeros((height, 1), np.uint8), rows]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return b"".join(
        [
            _SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(unfiltered, 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)


def data_uri(image: Any) -> str:
    """Return an image as a data URI.

    Raises
    ------
    UserError
        It is no uint8 array [h, w] or [h, w, 3].
    """
    array = np.asarray(image)
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or 0 in array.shape:
        raise UserError(f"expected a picture uint8 [h, w] or [h, w, 3], got {_describe(array)}")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim == 3 and array.shape[2] != 3:
        raise UserError(f"expected a picture of 1 or 3 channels, got {array.shape[2]}")
    return PNG + base64.b64encode(png_bytes(array)).decode("ascii")


def pixels(uri: str) -> NDArray[np.uint8]:
    """Return the picture of a PNG's data URI, uint8 [h, w] or [h, w, 3]; alpha is left out.

    Raises
    ------
    UserError
        It is no whole PNG.
    """
    from matplotlib.image import imread

    data = _decoded(uri)
    read_png_header(data)
    try:
        image = np.asarray(imread(io.BytesIO(data), format="png"))
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"a picture cannot be read: {error}") from None
    if image.ndim == 3:
        image = image[..., :3]
    return np.asarray(np.rint(image * 255.0), dtype=np.uint8)


def _describe(array: NDArray[Any]) -> str:
    return f"{array.dtype} {list(array.shape)}"


def size_of(uri: str) -> tuple[int, int]:
    """Return width and height of a PNG's data URI.

    Raises
    ------
    UserError
        It is no whole PNG.
    """
    return read_png_header(_decoded(uri))


def _decoded(uri: str) -> bytes:
    try:
        return base64.b64decode(uri.removeprefix(PNG), validate=True)
    except ValueError:
        raise UserError("a picture's data URI is not whole base64") from None


def read_png_header(data: bytes) -> tuple[int, int]:
    """Return width and height of a PNG, having made sure that it is whole."""
    whole = data.startswith(_SIGNATURE + b"\0\0\0\rIHDR") and data.endswith(_chunk(b"IEND", b""))
    if not whole:
        raise UserError("a picture is not a whole PNG")
    width, height = struct.unpack(">II", data[16:24])
    return width, height
