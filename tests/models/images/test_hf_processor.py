"""What an image processor's file says, and what is refused; no weights are read."""

import json

import pytest
from transformers import ViTConfig

from omniinput_hpc.config import ImageClassifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images import files, hf_processor
from omniinput_hpc.models.language import hf_checks, hf_folder

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
        (
            {
                "do_center_crop": True,
                "crop_size": 20,  # of the picture that it then resizes
                "image_processor_type": "PerceiverImageProcessor",
            },
            (12, 16),
        ),
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


def test_mobilevit_swaps_colours_and_never_normalizes(tmp_path):
    name = "MobileViTImageProcessor"
    found = hf_processor.read(folder_with(tmp_path, image_processor_type=name, image_mean=None))
    assert (found.mean, found.std, found.flipped) == ((0.0,), (1.0,), True)
    old = {"image_processor_type": None, "feature_extractor_type": "MobileViTFeatureExtractor"}
    found = hf_processor.read(folder_with(tmp_path, **old, do_flip_channel_order=False))
    assert (found.mean, found.std, found.flipped) == ((0.0,), (1.0,), False)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"image_processor_type": "PPLCNetImageProcessor"}, "PP-LCNet is not supported"),
        ({"do_pad": True}, "do_pad is not supported"),
        ({"rescale_offset": True}, "rescale_offset is not supported"),
        ({"image_processor_type": "EfficientNetImageProcessor"}, "include_top is not supported"),
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


OF_TIMM = {
    "architecture": "resnet18", "num_classes": 1000, "model_args": {"in_chans": 3},
    "pretrained_cfg": {
        "input_size": [3, 8, 12], "interpolation": "bicubic", "mean": [0.5, 0.4, 0.3], "std": [0.2]
    },
}  # fmt: skip


def of_timm(path, monkeypatch, installed=True, **more):
    monkeypatch.setattr(hf_checks, "find_spec", lambda name: installed or None)
    (path / "config.json").write_text(json.dumps({**OF_TIMM, **more}))
    return path


def test_timm_says_it_in_its_settings(tmp_path, monkeypatch):
    found = hf_processor.read(of_timm(tmp_path, monkeypatch))
    assert (found.size, found.n_channels, found.resampling) == ((8, 12), 3, "bicubic")
    assert (found.scale, found.mean, found.std) == (1.0, (0.5, 0.4, 0.3), (0.2,))
    config = hf_folder.read_config(tmp_path)
    assert hf_checks.number_of_classes(config, tmp_path) == 1000


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"installed": False}, "needs: pip install timm torchvision"),
        ({"architecture": "hf-hub:someone/network"}, "no usable architecture"),
        ({"architecture": None}, "no usable architecture"),
        ({"model_args": {"checkpoint_path": "x"}}, "checkpoint_path makes timm read other files"),
        ({"model_args": {"pretrained": True}}, "pretrained makes timm read other files"),
        ({"model_args": {"embed_dim": 10**12}}, "model_args.embed_dim is too large"),
        ({"pretrained_cfg": {}}, "pretrained_cfg lacks a usable input_size, mean or std"),
        (
            {"pretrained_cfg": {"input_size": [4, 8, 8], "mean": 0.5, "std": 1}},
            "is not 1 or 3 channels",
        ),
        (
            {"pretrained_cfg": {"input_size": [3, 8, 8], "mean": "x", "std": 1}},
            "mean = 'x' is not a number",
        ),
    ],
)
def test_what_timm_may_not_say(more, message, tmp_path, monkeypatch):
    folder = of_timm(tmp_path, monkeypatch, **more)
    with pytest.raises(UserError, match=message):
        hf_processor.read(folder)
