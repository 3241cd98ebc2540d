"""A user's pictures become the inputs that the model's own processor would make of them."""

import json

import numpy as np
import pytest
import torch
from hub_images import CONFIGS, PROCESSORS, write_processor
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification

from omniinput_hpc.config import ImageClassifier, PythonModel
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images import classifier, own_pictures
from omniinput_hpc.models.images.own_pictures import Inputs

SMOOTH = np.add.outer(np.arange(30) * 4, np.arange(40) * 3).astype(np.uint8)
PHOTO = np.stack([SMOOTH, 255 - SMOOTH, SMOOTH // 2], axis=2)


def hub_folder(folder, kind, **more):
    torch.manual_seed(3)
    network = AutoModelForImageClassification.from_config(CONFIGS[kind]()).eval()
    network.save_pretrained(folder)
    write_processor(folder, PROCESSORS[kind], **more)
    return network


def hub_inputs(folder, **keys):
    options = ImageClassifier(kind="image-classifier", path=str(folder), label=1, **keys)
    model = classifier.build(options, "cpu")
    return Inputs(options, model.n_sites, model.n_values, model.render), model


def pictures_in(tmp_path, *images):
    folder = tmp_path / "pictures"
    folder.mkdir(exist_ok=True)
    for number, image in enumerate(images):
        image.save(folder / f"{number}.png")
    return folder


@pytest.mark.parametrize("kind", ["vit", "resnet", "mobilenet"])
def test_z_of_a_file_is_that_of_transformers_pipeline(kind, tmp_path):
    network = hub_folder(tmp_path, kind)
    inputs, model = hub_inputs(tmp_path)
    x, n_other = own_pictures.of_folder(pictures_in(tmp_path, Image.fromarray(PHOTO)), inputs)
    processor = AutoImageProcessor.from_pretrained(tmp_path)
    given = processor(images=Image.fromarray(PHOTO), return_tensors="pt")
    expected = network(**given).logits[:, 1].detach()
    z = model.output(torch.from_numpy(x))
    torch.testing.assert_close(z, expected, atol=1e-5, rtol=1e-5)
    assert n_other == 0 and x.max() > 200
    turned, _ = own_pictures.of_folder(pictures_in(tmp_path, Image.fromarray(PHOTO[::-1])), inputs)
    assert not np.array_equal(turned, x)


def test_smaller_pictures_are_taken_as_they_are_and_larger_ones_made_smaller(tmp_path):
    hub_folder(tmp_path, "vit")
    inputs, model = hub_inputs(tmp_path, shape=[6, 6], n_values=16)
    x = np.random.default_rng(2).integers(16, size=(1, 36))
    (shown,) = model.render(torch.from_numpy(x))
    large = Image.fromarray(shown).resize((60, 60), Image.Resampling.NEAREST)
    found, _ = own_pictures.of_folder(pictures_in(tmp_path, Image.fromarray(shown), large), inputs)
    np.testing.assert_array_equal(found[0], x[0])
    assert np.corrcoef(found[1], x[0])[0, 1] > 0.9


def test_sixteen_bits_and_grey_for_three_channels(tmp_path):
    hub_folder(tmp_path, "vit")
    inputs, _ = hub_inputs(tmp_path)
    grey = SMOOTH[:12, :12]
    folder = pictures_in(
        tmp_path, Image.fromarray(grey), Image.fromarray(grey.astype(np.uint16) * 257)
    )
    found, _ = own_pictures.of_folder(folder, inputs)
    np.testing.assert_array_equal(found, np.repeat(grey.reshape(1, -1, 1), 3, axis=2).reshape(1, -1)
                                  .repeat(2, axis=0))  # fmt: skip


def test_colours_are_not_made_grey_but_grey_stored_as_colours_is(tmp_path):
    hub_folder(tmp_path, "vit")
    inputs, _ = hub_inputs(tmp_path, shape=[12, 12])
    grey = Image.fromarray(SMOOTH[:12, :12])
    found, _ = own_pictures.of_folder(pictures_in(tmp_path, grey, grey.convert("RGB")), inputs)
    np.testing.assert_array_equal(found, [SMOOTH[:12, :12].ravel()] * 2)
    folder = pictures_in(tmp_path, Image.fromarray(PHOTO[:12, :12]))
    with pytest.raises(UserError, match=r"0\.png: the picture has colours; .* grey"):
        own_pictures.of_folder(folder, inputs)


def test_a_processor_that_makes_another_shape_is_refused(tmp_path):
    hub_folder(tmp_path, "vit", size={"shortest_edge": 12})
    inputs, _ = hub_inputs(tmp_path)
    folder = pictures_in(tmp_path, Image.fromarray(PHOTO))
    with pytest.raises(UserError, match=r"0\.png: the model's processor makes 12 x 16 pixels"):
        own_pictures.of_folder(folder, inputs)


def test_networks_without_a_processor_take_their_own_shape(tmp_path):
    (tmp_path / "model.json").write_text(json.dumps({
        "architecture": "mlp", "height": 3, "width": 4, "channels": 1, "n_values": 65536,
        "n_outputs": 1, "size": 2,
    }))  # fmt: skip
    options = ImageClassifier(kind="image-classifier", path=str(tmp_path))
    inputs = Inputs(options, 12, 65536, None)
    deep = np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000
    x, _ = own_pictures.of_folder(pictures_in(tmp_path, Image.fromarray(deep)), inputs)
    np.testing.assert_array_equal(x[0], deep.ravel())
    folder = pictures_in(tmp_path, Image.fromarray(PHOTO))
    with pytest.raises(UserError, match=r"0\.png: the picture is \[30, 40, 3\].* takes \[3, 4\]"):
        own_pictures.of_folder(folder, inputs)


def own(render, n_sites=12, n_values=16):
    return Inputs(PythonModel(kind="python", factory="a:b"), n_sites, n_values, render)


def shown(x):
    return list((x.numpy().reshape(-1, 3, 4) * 17).astype(np.uint8))


def test_a_users_model_takes_what_it_shows(tmp_path):
    levels = np.arange(12).reshape(1, 12)
    folder = pictures_in(tmp_path, Image.fromarray((levels.reshape(3, 4) * 17).astype(np.uint8)))
    np.testing.assert_array_equal(own_pictures.of_folder(folder, own(shown))[0], levels)
    array = np.asarray(shown(torch.from_numpy(levels)))
    np.testing.assert_array_equal(own_pictures.of_array(array, "p.npy", own(shown)), levels)


@pytest.mark.parametrize(
    ("render", "words"),
    [
        (lambda x: [255 - one for one in shown(x)], "0.png: the model's render method shows other"),
        (lambda x: [one[:, :2] for one in shown(x)], r"returns uint8 \[3, 2\] for its 12 sites"),
        (lambda x: ["a"] * len(x), r"returns <U1 \[\] for its 12 sites"),
        (None, "takes no pictures"),
    ],
)
def test_a_users_model_that_shows_something_else(render, words, tmp_path):
    folder = pictures_in(tmp_path, Image.fromarray(np.zeros((3, 4), np.uint8)))
    with pytest.raises(UserError, match=words):
        own_pictures.of_folder(folder, own(render))
