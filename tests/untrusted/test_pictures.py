"""Files of pictures: each kind is read as a viewer shows it, or refused with the file's name."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted import pictures

RANDOM = np.random.default_rng(3)
GREY = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5
COLOUR = RANDOM.integers(0, 256, (6, 8, 3), dtype=np.uint8)
DEEP = RANDOM.integers(0, 65536, (6, 8), dtype=np.uint16)
ORIENTATION = 0x0112


def saved(path, image, **options):
    image.save(path, **options)
    return path


@pytest.mark.parametrize("ending", ["png", "bmp", "tiff", "webp", "gif", "ppm", "tga", "jp2"])
def test_formats_without_loss(ending, tmp_path):
    options = {"webp": {"lossless": True}, "jp2": {"irreversible": False}}.get(ending, {})
    file = saved(tmp_path / f"a.{ending}", Image.fromarray(GREY), **options)
    found = pictures.read(file)
    assert found.dtype == np.uint8
    assert (found == (GREY if found.ndim == 2 else GREY[..., None])).all()
    if ending != "gif":
        file = saved(tmp_path / f"b.{ending}", Image.fromarray(COLOUR), **options)
        np.testing.assert_array_equal(pictures.read(file), COLOUR)


def test_jpeg(tmp_path):
    smooth = np.repeat(GREY[..., None], 3, axis=2)
    file = saved(tmp_path / "a.jpg", Image.fromarray(smooth), quality=100, subsampling=0)
    assert np.abs(pictures.read(file).astype(int) - smooth).max() <= 4
    file = saved(tmp_path / "b.JPG", Image.fromarray(COLOUR).convert("CMYK"))
    assert pictures.read(file).shape == (6, 8, 3)
    renamed = (tmp_path / "a.jpg").rename(tmp_path / "a.png")
    assert pictures.read(renamed).shape == (6, 8, 3)  # the contents say what it is


@pytest.mark.parametrize("ending", ["png", "tiff", "pgm"])
def test_16_bits_of_grey_are_kept(ending, tmp_path):
    found = pictures.read(saved(tmp_path / f"a.{ending}", Image.fromarray(DEEP)))
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, DEEP)


@pytest.mark.parametrize(("tag", "usual", "other"), [(258, 16, 12), (262, 1, 0)])
def test_16_bits_with_another_white_are_refused(tmp_path, tag, usual, other):
    """As of a microscope's 12 bits, or a scanner's inverted picture: white is 4095, or 0."""
    file = saved(tmp_path / "a.tiff", Image.fromarray(DEEP))
    entry = struct.pack("<HHII", tag, 3, 1, usual)
    assert file.read_bytes().count(entry) == 1
    file.write_bytes(file.read_bytes().replace(entry, struct.pack("<HHII", tag, 3, 1, other)))
    with pytest.raises(UserError, match="is a TIFF whose white is not 65535"):
        pictures.read(file)


def test_palettes_and_single_bits(tmp_path):
    few = Image.fromarray(COLOUR).quantize(5)
    expected = np.asarray(few.convert("RGB"))
    np.testing.assert_array_equal(pictures.read(saved(tmp_path / "a.png", few)), expected)
    np.testing.assert_array_equal(pictures.read(saved(tmp_path / "a.gif", few)), expected)
    bits = Image.fromarray((GREY > 100).astype(np.uint8) * 255).convert("1", dither=0)
    found = pictures.read(saved(tmp_path / "b.png", bits))
    np.testing.assert_array_equal(found, 255 * (GREY > 100))


@pytest.mark.parametrize("ending", ["jpg", "png", "tiff", "webp"])
def test_a_photo_is_turned_upright(ending, tmp_path):
    exif = Image.Exif()
    exif[ORIENTATION] = 6  # to be shown after a quarter turn clockwise
    options = {"quality": 100} if ending == "jpg" else {}
    options = {"lossless": True} if ending == "webp" else options
    file = saved(tmp_path / f"a.{ending}", Image.fromarray(GREY), exif=exif, **options)
    found = pictures.read(file)
    found = found if found.ndim == 2 else found[..., 0]
    assert found.shape == (8, 6)
    assert np.abs(found.astype(int) - np.rot90(GREY, -1)).max() <= 4


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency(mode, tmp_path):
    image = Image.fromarray(GREY).convert(mode)
    found = pictures.read(saved(tmp_path / "opaque.png", image))
    assert (found == (GREY if mode == "LA" else GREY[..., None])).all()
    image.putpixel((2, 3), (0, 0, 0, 200)[-len(mode) :])
    with pytest.raises(UserError, match=r"some\.png has transparent pixels"):
        pictures.read(saved(tmp_path / "some.png", image))


def test_a_transparent_colour_of_a_palette(tmp_path):
    few = Image.fromarray(COLOUR).quantize(5)
    with pytest.raises(UserError, match=r"a\.gif has transparent pixels"):
        pictures.read(saved(tmp_path / "a.gif", few, transparency=int(np.asarray(few)[0, 0])))
    assert pictures.read(saved(tmp_path / "b.png", few, transparency=200)).shape == (6, 8, 3)


def test_frames_and_pages(tmp_path):
    pages = {"save_all": True, "append_images": [Image.fromarray(255 - GREY)]}
    for name in ("a.tiff", "a.gif", "a.png", "a.webp"):
        with pytest.raises(UserError, match=rf"{name} holds 2 frames or pages"):
            pictures.read(saved(tmp_path / name, Image.fromarray(GREY), **pages))
    found = pictures.read(saved(tmp_path / "a.mpo", Image.fromarray(COLOUR), **pages))
    assert found.shape == (6, 8, 3)  # the photo, without its preview


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_numbers_without_a_white(dtype, tmp_path):
    file = saved(tmp_path / "a.tiff", Image.fromarray(GREY.astype(dtype)))
    with pytest.raises(UserError, match=r"a\.tiff holds numbers of the kind .* 8 or 16 bits"):
        pictures.read(file)


def whole(image, format_):
    stream = io.BytesIO()
    image.save(stream, format_)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cannot be read"),
        (b"rubbish", "cannot be read"),
        (whole(Image.fromarray(COLOUR), "PNG")[:-40], "cannot be read"),
        (whole(Image.fromarray(COLOUR), "JPEG")[:-20], "cannot be read"),
        (whole(Image.fromarray(COLOUR), "TIFF")[:200], "cannot be read"),
        (whole(Image.fromarray(COLOUR), "EPS"), "cannot be read"),
        (b"P5 60000 60000 255\n", "60000 x 60000 pixels; the limit is|cannot be read"),
    ],
)
def test_damaged_and_hostile_files_are_named(data, words, tmp_path):
    (tmp_path / "a.png").write_bytes(data)
    with pytest.raises(UserError, match=rf"a\.png.*({words})") as caught:
        pictures.read(tmp_path / "a.png")
    assert "\n" not in str(caught.value)


def test_the_pictures_of_a_folder(tmp_path):
    for name in ("b.JPG", "a.tif", ".hidden.png", "notes.txt", "c.eps", "d.bmp"):
        (tmp_path / name).write_bytes(b"")
    assert [file.name for file in pictures.find(tmp_path)] == ["a.tif", "b.JPG", "d.bmp"]
