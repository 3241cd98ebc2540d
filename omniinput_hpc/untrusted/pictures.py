"""Reading pictures from untrusted files, by Pillow: as a viewer shows them, or refused.

Pictures are turned upright as their EXIF orientation says, palettes become colours, and 16 bits of
grey are kept. A picture that could be read in several ways is refused: one with transparent pixels
(z depends on what stands behind them), one of several frames or pages, and one of numbers without a
known white.
"""

from __future__ import annotations

import io
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import read_bytes

Picture = NDArray[np.uint8] | NDArray[np.uint16]
"""[h, w] or [h, w, 3]; black is 0, white the largest number of the dtype."""

MAX_PIXELS = 2**25
MAX_BYTES = 2**27
FORMATS = (
    "AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PCX", "PNG", "PPM", "PSD", "QOI", "SGI",
    "SUN", "TGA", "TIFF", "WEBP",
)  # fmt: skip
"""Formats of Pillow that hold pictures and need no other program, as EPS does."""
_GREY, _COLOUR = ("1", "L", "LA", "La"), ("P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr")
_WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
_BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
# Pillow's errors for a damaged file; SyntaxError is the one for a wrong checksum
_DAMAGED = (
    OSError, SyntaxError, ValueError, EOFError, TypeError, LookupError, struct.error, *_BOMBS
)  # fmt: skip


def find(folder: Path) -> list[Path]:
    """Return a folder's pictures by the endings of their names, sorted, without hidden files."""
    endings = {end for end, name in Image.registered_extensions().items() if name in FORMATS}
    files = (file for file in folder.iterdir() if file.suffix.lower() in endings)
    return sorted(file for file in files if not file.name.startswith("."))


def read(path: Path) -> Picture:
    """Return the picture in a file.

    Raises a `UserError` that names the file if it is damaged, too large, or to be refused (see the
    module's docstring).
    """
    data = read_bytes(path, "picture", MAX_BYTES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            Image.init()
            image: Any = Image.open(io.BytesIO(data), formats=[*Image.OPEN.keys() & FORMATS])
            _check(image, path)
            # "I" has 32 bits, but a PNG's or PPM's are 16, as some versions of Pillow read them.
            deep = image.mode.startswith("I;16") or (
                image.mode == "I" and image.format in ("PNG", "PPM")
            )
            if deep and image.format == "TIFF":
                _check_white(image, path)
            image.load()
            image = ImageOps.exif_transpose(image)
            opaque = _is_opaque(image)
            pixels = np.asarray(image).astype(np.uint16) if deep else _pixels(image, path)
    except _DAMAGED as error:
        raise UserError(f"{path}: the picture cannot be read: {error}") from None
    if not opaque:
        raise UserError(
            f"{path} has transparent pixels, and z depends on what stands behind them; save it "
            "with a background"
        )
    return pixels


def _check(image: Any, path: Path) -> None:
    """Raise a `UserError` for a picture of too many pixels or of several frames."""
    width, height = image.size
    if not 0 < width * height <= MAX_PIXELS:
        raise UserError(f"{path} has {width} x {height} pixels; the limit is {MAX_PIXELS:,}")
    n_frames = getattr(image, "n_frames", 1)
    # A photo in the MPO format carries previews of itself; a PSD's first frame is the whole.
    if n_frames > 1 and image.format not in ("MPO", "PSD"):
        raise UserError(f"{path} holds {n_frames} frames or pages; save each as a file of its own")


def _check_white(image: Any, path: Path) -> None:
    """Raise a `UserError` for a TIFF of 9 to 16 bits whose white is not 65535.

    Pillow turns neither those of fewer bits nor those whose white is 0 into others.
    """
    bits, kind = (image.tag_v2.get(tag, usual) for tag, usual in ((258, (16,)), (262, 1)))
    if tuple(bits) != (16,) or kind != 1:
        raise UserError(
            f"{path} is a TIFF whose white is not 65535 ({bits[0]} bits, PhotometricInterpretation "
            f"{kind}); save it as a PNG"
        )


def _is_opaque(image: Any) -> bool:
    if image.mode in _WITH_ALPHA or "transparency" in image.info:
        return bool(image.convert("RGBA").getchannel("A").getextrema()[0] == 255)
    return True


def _pixels(image: Any, path: Path) -> Picture:
    """Return the pixels of a picture of 8 bits or fewer; a `UserError` for one of more."""
    if image.mode not in (*_GREY, *_COLOUR):
        raise UserError(
            f"{path} holds numbers of the kind {image.mode!r} (Pillow's name), whose black and "
            "white are unknown; save it with 8 or 16 bits"
        )
    return np.asarray(image.convert("L" if image.mode in _GREY else "RGB"), dtype=np.uint8)
