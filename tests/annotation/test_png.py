"""Pictures in files from outside: read to the pixel, or refused in a sentence."""

import base64
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from omniinput_hpc.annotation.png import MAX_PIXELS, data_uri, file_data_uri, pixels
from omniinput_hpc.annotation.tasks import PNG_URI
from omniinput_hpc.errors import UserError

GREY = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5


def chunk(name, data):
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)


def header(width, height):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))


def file_of(image, format_="PNG"):
    file = io.BytesIO()
    image.save(file, format_)
    return file.getvalue()


def uri(data):
    return PNG_URI + base64.b64encode(data).decode()


GOOD = file_of(Image.fromarray(GREY))
SIGNATURE, END = GOOD[:8], GOOD[-12:]
IDAT = chunk(b"IDAT", zlib.compress(bytes(9 * 6)))


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "P"])
def test_modes_of_other_programs(mode):
    read = pixels(uri(file_of(Image.fromarray(GREY).convert(mode))))
    assert read.dtype == np.uint8 and read.shape[:2] == (6, 8)
    assert (read == (GREY if read.ndim == 2 else GREY[..., None])).all()


def test_16_bits_and_1_bit():
    deep = Image.fromarray(GREY.astype(np.uint16) * 257)
    assert (pixels(uri(file_of(deep))) == GREY).all()
    bits = Image.fromarray((GREY > 100).astype(np.uint8) * 255).convert("1", dither=0)
    assert (pixels(uri(file_of(bits))) == 255 * (GREY > 100)).all()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a complete PNG"),
        (GOOD[:-4], "not a complete PNG"),
        (file_of(Image.fromarray(GREY), "BMP"), "not a complete PNG"),
        (file_of(Image.fromarray(GREY), "GIF") + END, "not a complete PNG"),
        (SIGNATURE + header(60_000, 60_000) + IDAT + END, "60000 x 60000 pixels; the limit is"),
        (SIGNATURE + header(0, 5) + IDAT + END, "0 x 5 pixels"),
        (SIGNATURE + header(8, 6) + header(60_000, 60_000) + IDAT + END, "cannot be read"),
        (SIGNATURE + header(8, 6) + header(9_000, 9_000) + IDAT + END, "cannot be read"),
        (SIGNATURE + header(8, 6) + END, "cannot be read"),
        (SIGNATURE + header(8, 6) + b"\0\0\0\7IDATrubbish0000" + END, "cannot be read"),
        (SIGNATURE + header(8, 6) + chunk(b"IDAT", b"rubbish") + END, "cannot be read"),
        (
            SIGNATURE + header(8, 6)
            + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(70_000_000))) + IDAT + END,
            "cannot be read",
        ),
    ],
)  # fmt: skip
def test_hostile_pictures_are_refused(data, words):
    with pytest.raises(UserError, match=words):
        pixels(uri(data))


def test_a_file_names_itself(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(GOOD)
    assert (pixels(file_data_uri(path)) == GREY).all()
    path.write_bytes(GOOD[:-1])
    with pytest.raises(UserError, match=r"a\.png: not a complete PNG"):
        file_data_uri(path)
    with pytest.raises(UserError, match=r"none\.png: no such file"):
        file_data_uri(tmp_path / "none.png")
    assert MAX_PIXELS < Image.MAX_IMAGE_PIXELS
    assert (pixels(data_uri(GREY)) == GREY).all()
