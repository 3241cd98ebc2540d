"""Image classifiers of the hub: z is transformers' logit of what its processor makes."""

import shutil

import numpy as np
import pytest
import torch
import written_pages
from hub_images import CONFIGS, PROCESSORS, write_processor
from PIL import Image
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageClassification

from omniinput_hpc.config import ImageClassifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images import classifier, files, own_pictures
from omniinput_hpc.pilot import model_table


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return the folder of each small network, with random weights, and the network."""
    found = {}
    for kind, config in CONFIGS.items():
        torch.manual_seed(3)
        network = AutoModelForImageClassification.from_config(config()).eval()
        for name, parameter in network.named_parameters():
            if "norm" not in name:
                parameter.data *= 16 if kind == "mobilenet" else 2
        folder = tmp_path_factory.mktemp(kind)
        network.save_pretrained(folder)
        write_processor(folder, PROCESSORS[kind])
        found[kind] = folder, network
    return found


def options(folder, **keys):
    return ImageClassifier(kind="image-classifier", path=str(folder), label=1, **keys)


def logits_of(network, folder, pictures, **keys):
    """Return the logits of uint8 pictures [n, h, w, 3], by transformers' own processor."""
    processor = AutoImageProcessor.from_pretrained(folder, **keys)
    given = processor(images=[Image.fromarray(p) for p in pictures], return_tensors="pt")
    with torch.no_grad():
        return network(**given).logits


@pytest.mark.parametrize("kind", CONFIGS)
def test_z_is_transformers_logit(kind, folders):
    folder, network = folders[kind]
    model = classifier.build(options(folder), "cpu")
    s = model.shape
    assert (s.channels, s.n_values) == (3, 256) and s.height == s.width
    x = torch.randint(256, (5, model.n_sites), generator=torch.Generator().manual_seed(2))
    pictures = np.stack(model.render(x))
    expected = logits_of(network, folder, pictures, do_resize=False, do_center_crop=False)[:, 1]
    torch.testing.assert_close(model.output(x), expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 1e-3
    z, gradient = model.output_and_gradient(x)
    torch.testing.assert_close(z, expected, atol=1e-5, rtol=1e-5)
    assert gradient.shape == (5, model.n_sites, 256) and gradient.abs().max() > 0
    found = files.preflight(options(folder))
    assert (found["n_sites"], found["n_values"]) == (model.n_sites, 256)
    assert model_table.of(str(folder), None, None)["kind"] == "image-classifier"


def test_small_pictures_are_resized_as_the_processor_resizes(folders):
    """The processor rounds what it has resized to whole grey levels; the model does not."""
    folder, network = folders["vit"]
    model = classifier.build(options(folder, shape=[6, 8, 3]), "cpu")
    ramp = torch.arange(6)[:, None, None] * 20 + torch.arange(8)[:, None] * 12 + torch.arange(3)
    x = torch.stack([ramp, 255 - ramp, ramp.flip(0)]).flatten(1)
    expected = logits_of(network, folder, np.stack(model.render(x)))[:, 1]
    torch.testing.assert_close(model.output(x), expected, atol=2e-3, rtol=0)
    nearest = classifier.build(
        options(rewritten(folder, folders, resample=0), shape=[6, 8, 3]), "cpu"
    )
    assert (nearest.output(x) - expected).abs().max() > 0.01  # the wrong variant


def test_a_resized_picture_stays_between_black_and_white(folders):
    """Bicubic ones of random pictures overshoot by a tenth; the processor cuts that off."""
    folder, network = folders["vit"]
    rewritten(folder, folders, resample=3)
    model = classifier.build(options(folder, shape=[6, 8, 3], n_values=2), "cpu")
    x = torch.randint(2, (20, model.n_sites), generator=torch.Generator().manual_seed(2))
    expected = logits_of(network, folder, np.stack(model.render(x)))[:, 1]
    torch.testing.assert_close(model.output(x), expected, atol=5e-3, rtol=0)


def rewritten(folder, folders, **more):
    write_processor(folder, PROCESSORS["vit"], **more)
    return folder


def test_one_channel_stands_for_three(folders):
    folder, _ = folders["resnet"]
    grey = classifier.build(options(folder, shape=[12, 12], n_values=16), "cpu")
    colour = classifier.build(options(folder, n_values=16), "cpu")
    x = torch.randint(16, (4, 144), generator=torch.Generator().manual_seed(5))
    assert (grey.n_sites, grey.n_values) == (144, 16)
    same = x.repeat_interleave(3, dim=1)
    torch.testing.assert_close(grey.output(x), colour.output(same), atol=1e-6, rtol=1e-6)


def test_a_network_by_its_name_on_the_hub(folders, tmp_path, monkeypatch):
    from huggingface_hub import constants

    folder, _ = folders["resnet"]
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"hf download someone/resnet --include"):
        files.preflight(options("someone/resnet"))
    model = tmp_path / "models--someone--resnet"
    (model / "snapshots").mkdir(parents=True)
    (model / "snapshots" / ("0" * 40)).symlink_to(folder)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0" * 40)
    found = files.preflight(options("someone/resnet"))
    assert found["fingerprint"] == files.preflight(options(folder))["fingerprint"]
    assert classifier.build(options("someone/resnet"), "cpu").n_sites == found["n_sites"]
    assert model_table.of("someone/resnet", None, None)["kind"] == "image-classifier"


def test_independent_labels_are_not_compared(folders, tmp_path):
    folder = shutil.copytree(folders["resnet"][0], tmp_path / "resnet")
    AutoConfig.from_pretrained(folder, problem_type="multi_label_classification").save_pretrained(
        folder
    )
    assert files.preflight(options(folder))["n_values"] == 256
    with pytest.raises(UserError, match=r'model.target = "log-softmax" compares classes, but'):
        files.preflight(options(folder, target="log-softmax"))


@pytest.mark.release
def test_the_vit_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = written_pages.run_example("make_vit.py")
    assert float(capsys.readouterr().out.partition("%")[0]) > 80
    model = classifier.build(options("digits-vit"), "cpu")
    x = torch.randint(256, (5, model.n_sites), generator=torch.Generator().manual_seed(2))
    expected = logits_of(found["network"], tmp_path / "digits-vit", np.stack(model.render(x)))[:, 1]
    torch.testing.assert_close(model.output(x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.release
def test_folders_of_timm(tmp_path):
    """As timm writes them, and as transformers does: z is timm's own logit."""
    timm = pytest.importorskip("timm")
    pytest.importorskip("torchvision")
    own, saved, photos = (tmp_path / name for name in ("own", "saved", "photos"))
    torch.manual_seed(3)
    network = timm.create_model("test_vit", num_classes=4).eval()
    timm.models.save_for_hf(network, own, safe_serialization=True)
    config = AutoConfig.from_pretrained(own)
    config.model_args = None  # timm's and transformers' number of classes would clash
    AutoModelForImageClassification.from_pretrained(own, config=config).save_pretrained(saved)
    steps = timm.data.create_transform(**timm.data.resolve_model_data_config(network))
    photos.mkdir()
    photo = np.random.default_rng(1).integers(0, 256, (240, 300, 3)).astype(np.uint8)
    Image.fromarray(photo).save(photos / "one.png")
    for folder in (own, saved):
        model = classifier.build(options(folder), "cpu")
        x = torch.randint(256, (3, model.n_sites), generator=torch.Generator().manual_seed(2))
        cut = [steps.transforms[-2](picture) for picture in model.render(x)]  # its size already
        with torch.no_grad():
            expected = network(torch.stack([steps.transforms[-1](picture) for picture in cut]))
            of_photo = network(steps(Image.fromarray(photo))[None])
        torch.testing.assert_close(model.output(x), expected[:, 1], atol=1e-5, rtol=1e-5)
        assert expected[:, 1].std() > 1e-3
        inputs = own_pictures.Inputs(options(folder), model.n_sites, 256, model.render)
        mine = torch.from_numpy(own_pictures.of_folder(photos, inputs)[0])
        torch.testing.assert_close(model.output(mine), of_photo[:, 1], atol=1e-5, rtol=1e-5)
        found = files.preflight(options(folder, shape=[4, 4], n_values=2))
        assert (found["n_sites"], found["n_values"]) == (16, 2)
        assert model_table.of(str(folder), None, None)["kind"] == "image-classifier"
