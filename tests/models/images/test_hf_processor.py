"""What an image processor's file says, and what is refused; no weights are read."""

import json

import pytest
from transformers import ViTConfig

from omniinput_hpc.config import ImageClassifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images import files, hf_processor

KEYS = {
    "image_processor_type": "ViTImageProcessor", "size": {"height": 12, "width": 16},
    "image_mean": [0.5, 0.4, 0.3], "image_std": 0.5,
}  # fmt: skip


def folder_with(path, **more):
    ViTConfig(image_size=12).save_pretrained(path)
    (path / "preprocessor_config.json").write_text(json.dumps({**KEYS, **more}))
    return path


def options(folder, **keys):
    return ImageClassifier(kind="image-classifier", path=str(folder), label=1, **keys)


@pytest.mark.parametrize(
    ("more", "size"),
    [
        ({}, (12, 16)),
        ({"size": 20}, (20, 20)),
        ({"size": {"shortest_edge": 24}}, (24, 24)),
        ({"do_center_crop": True, "crop_size": [8, 9]}, (8, 9)),
        ({"do_resize": False}, (12, 12)),  # config.json says it
    ],
)
def test_the_size_that_the_network_receives(more, size, tmp_path):
    found = hf_processor.read(folder_with(tmp_path, **more))
    assert found.size == size
    assert (found.scale, found.mean, found.std) == (1.0, (0.5, 0.4, 0.3), (0.5,))
    assert files.shape_of(options(tmp_path)).n_sites == 3 * size[0] * size[1]


def test_steps_that_are_left_out(tmp_path):
    found = hf_processor.read(folder_with(tmp_path, do_rescale=False, do_normalize=False))
    assert (found.scale, found.mean, found.std) == (255.0, (0.0,), (1.0,))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"do_pad": True}, "do_pad is not supported"),
        ({"rescale_offset": True}, "rescale_offset is not supported"),
        ({"image_mean": None}, "do_normalize needs image_mean"),
        ({"image_mean": [0.5, 0.5]}, "do not fit 3 channels"),
        ({"size": {"longest_edge": 3}}, "the size .* is not understood"),
        ({"size": 0}, "the size 0 is not positive"),
        ({"rescale_factor": "x"}, "rescale_factor = 'x' is not a number"),
    ],
)
def test_what_a_processor_may_not_say(more, message, tmp_path):
    with pytest.raises(UserError, match=message):
        files.shape_of(options(folder_with(tmp_path, **more)))


def test_shapes_that_do_not_fit(tmp_path):
    folder = folder_with(tmp_path, resample=1)
    with pytest.raises(UserError, match="the network takes 3 channels"):
        files.shape_of(options(folder, shape=[12, 16, 2]))
    with pytest.raises(UserError, match="resizes in a way that torch does not have"):
        files.shape_of(options(folder, shape=[6, 6, 3]))
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(UserError, match=r"no preprocessor_config.json, which says how pixels"):
        files.shape_of(options(folder))


def test_the_papers_networks_know_their_shape(tmp_path):
    with pytest.raises(UserError, match=r"shape and n_values are in .*model.json; leave them out"):
        files.shape_of(options(tmp_path, shape=[8, 8]))
