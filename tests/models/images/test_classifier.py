"""Image classifiers: the gather is the dense convolution, gradients predict, files are checked."""

import json

import numpy as np
import pytest
import torch
from image_models import SHAPES, options, save, tiny_module
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images import classifier, files
from omniinput_hpc.models.images.files import Shape
from omniinput_hpc.models.images.networks import HIDDEN_CHANNELS, KERNEL, OneHotConvolution


@pytest.fixture(params=[("cnn", "grey"), ("mlp", "grey"), ("resnet", "grey"), ("resnet", "colour")])
def folder(request, tmp_path):
    architecture, shape = request.param
    return save(tmp_path, architecture, SHAPES[shape], n_outputs=4)


def inputs(model, n=5, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.n_values, (n, model.n_sites), generator=generator)


def dense_weight(layer):
    """Return the weight [3, channels * n_values, 3, 3] of the equivalent `conv2d`."""
    s = layer.shape
    by_output = layer.table.view(s.channels * s.n_values, HIDDEN_CHANNELS, KERNEL, KERNEL)
    return by_output.permute(1, 0, 2, 3).flip(2, 3)


def dense(layer, x, weight=dense_weight):
    """The first layer as the papers say it: one-hot pixels through conv2d."""
    s = layer.shape
    image = F.one_hot(x.view(-1, s.height, s.width, s.channels), s.n_values).float()
    channels = image.permute(0, 3, 4, 1, 2).flatten(1, 2)  # [W, c * n_values, h, w]
    return F.conv2d(channels, weight(layer), layer.bias, padding=1)


@pytest.mark.parametrize("shape", [Shape(28, 28, 1, 256), Shape(5, 7, 3, 9), Shape(1, 4, 1, 2)])
def test_the_gather_is_the_dense_convolution(shape):
    torch.manual_seed(1)
    layer = OneHotConvolution(shape)
    layer.bias.data.normal_()
    x = torch.randint(shape.n_values, (3, shape.n_sites))
    torch.testing.assert_close(layer(x), dense(layer, x), atol=1e-5, rtol=0)
    # a window that is not flipped must be noticed
    wrong = dense(layer, x, lambda layer: dense_weight(layer).flip(2, 3))
    assert (layer(x) - wrong).abs().max() > 0.01


def test_gradient_of_the_gather_is_autograds_through_the_dense_one(folder):
    """The gradient with respect to the dense one-hot input, from autograd, entry by entry."""
    network = classifier.load(folder)
    model = classifier.build(options(folder, label=2, sign=-1), "cpu")
    x, s = inputs(model), network.pixels.shape
    one_hot = F.one_hot(x, s.n_values).float().requires_grad_()
    image = one_hot.view(-1, s.height, s.width, s.channels, s.n_values)
    channels = image.permute(0, 3, 4, 1, 2).flatten(1, 2)
    first = F.conv2d(channels, dense_weight(network.pixels), network.pixels.bias, padding=1)
    (-network.body(first)[:, 2]).sum().backward()
    z, g = model.output_and_gradient(x)
    assert g.dtype == torch.float32 and g.shape == (5, model.n_sites, model.n_values)
    torch.testing.assert_close(g, one_hot.grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(z, model.output(x), atol=1e-5, rtol=0)
    assert g.abs().max() > 1e-3


def test_gradient_predicts_finite_substitutions(tmp_path):
    """A network without a kink (one linear layer) is linear in its one-hot input: exact."""
    folder = save(tmp_path, "mlp", SHAPES["grey"], n_outputs=1)
    weights = load_file(folder / "model.safetensors")
    weights["body.backbone.1.bias"] += 1000.0  # no ReLU is ever off
    save_file(weights, folder / "model.safetensors")
    model = classifier.build(options(folder), "cpu")
    x = inputs(model)
    z, g = model.output_and_gradient(x)
    for site in (0, 7, 19):
        new = x.clone()
        new[:, site] = (x[:, site] + 3) % model.n_values
        change = g[torch.arange(5), site, new[:, site]] - g[torch.arange(5), site, x[:, site]]
        torch.testing.assert_close(model.output(new) - z, change, atol=2e-3, rtol=0)
        assert change.abs().max() > 0.02


def test_gradient_predicts_small_substitutions_to_first_order(folder):
    """Where two values' rows are nearly the same, the gradient predicts the exchange."""
    weights = load_file(folder / "model.safetensors")
    table = weights["pixels.table"]
    table[:, 1:] = table[:, :1] + 1e-2 * table[:, 1:]
    save_file(weights, folder / "model.safetensors")
    model = classifier.build(options(folder), "cpu")
    x = inputs(model)
    z, g = model.output_and_gradient(x)
    new = x.clone()
    new[:, 11] = (x[:, 11] + 1) % model.n_values
    predicted = g[torch.arange(5), 11, new[:, 11]] - g[torch.arange(5), 11, x[:, 11]]
    true = model.output(new) - z
    assert predicted.abs().max() > 1e-5
    error = (true - predicted).abs().max() / predicted.abs().max()
    assert error < 0.1
    assert (true + predicted).abs().max() / predicted.abs().max() > 1  # a wrong sign is noticed


def test_targets_and_signs(tmp_path):
    folder = save(tmp_path, "mlp", SHAPES["grey"], n_outputs=4)
    logits = torch.stack(
        [classifier.build(options(folder, label=c), "cpu").output(x_of(folder)) for c in range(4)],
        dim=1,
    )
    for c in range(4):
        model = classifier.build(options(folder, "log-softmax", c), "cpu")
        z = model.output(x_of(folder))
        torch.testing.assert_close(z, logits.log_softmax(1)[:, c], atol=1e-5, rtol=0)
        assert bool((z <= 0).all())
    lower = classifier.build(options(folder, label=1, sign=-1), "cpu")
    torch.testing.assert_close(lower.output(x_of(folder)), -logits[:, 1])
    assert logits.std(dim=1).min() > 1e-3


def x_of(folder):
    return inputs(classifier.build(options(folder), "cpu"))


def test_render_gives_pictures(tmp_path):
    model = classifier.build(options(save(tmp_path, "cnn", SHAPES["grey"])), "cpu")
    x = torch.zeros((2, 20), dtype=torch.int64)
    x[1, 7] = model.n_values - 1
    pictures = model.render(x)
    assert [p.shape for p in pictures] == [(4, 5), (4, 5)] and pictures[0].dtype == np.uint8
    assert pictures[0].max() == 0 and pictures[1][1, 2] == 255 and pictures[1].sum() == 255
    colour = SHAPES["colour"].pixels(np.eye(1, 48, 5, dtype=np.int64) * 8)
    assert colour.shape == (1, 4, 4, 3) and colour[0, 0, 1, 2] == 255


def test_half_precision_weights_are_computed_with_in_single(tmp_path):
    folder = save(tmp_path, "resnet", SHAPES["grey"])
    file = folder / "model.safetensors"
    save_file({k: v.half() for k, v in load_file(file).items()}, file)
    network = classifier.load(folder)
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    assert not any(p.requires_grad for p in network.parameters())


def test_a_custom_network(tmp_path):
    network = tiny_module(n_classes=3)
    save_file(network.state_dict(), tmp_path / "own.safetensors")
    x = torch.randint(11, (6, 20))
    expected = network(x.view(6, 1, 4, 5) / 10).log_softmax(1)[:, 1].detach()
    made = {"factory": "image_models:tiny_module", "options": {"n_classes": 3}}
    made |= {"shape": [4, 5], "n_values": 11}
    chosen = options(tmp_path / "own.safetensors", "log-softmax", 1, **made)
    assert files.preflight(chosen)["n_sites"] == 20
    model = classifier.build(chosen, "cpu")
    torch.testing.assert_close(model.output(x), expected, atol=1e-5, rtol=0)
    z, g = model.output_and_gradient(x)
    torch.testing.assert_close(z, expected, atol=1e-5, rtol=0)
    image = (x.view(6, 1, 4, 5) / 10).requires_grad_()
    network(image).log_softmax(1)[:, 1].sum().backward()
    by_level = image.grad.view(6, 20, 1) * torch.arange(11) / 10
    torch.testing.assert_close(g, by_level, atol=1e-5, rtol=1e-4)
    chosen = options(tmp_path / "own.safetensors", label=3, **made)
    with pytest.raises(UserError, match=r"label = 3: the model .* has 3 classes, 0 to 2"):
        classifier.build(chosen, "cpu")
    with pytest.raises(UserError, match="does not accept images"):
        classifier.build(options(tmp_path / "own.safetensors", **{**made, "shape": [5, 5]}), "cpu")


def test_pixels_are_normalized_as_in_training(tmp_path):
    network = tiny_module(n_classes=3)
    save_file(network.state_dict(), tmp_path / "own.safetensors")
    made = {"factory": "image_models:tiny_module", "options": {"n_classes": 3}}
    made |= {"shape": [4, 5], "n_values": 11}
    plain = options(tmp_path / "own.safetensors", label=1, **made)
    made |= {"mean": [0.13], "std": [0.31]}
    chosen = options(tmp_path / "own.safetensors", label=1, **made)
    before, after = (files.preflight(one)["fingerprint"] for one in (plain, chosen))
    assert after.startswith(before) and after != before
    x = torch.randint(11, (6, 20))
    image = (x.view(6, 1, 4, 5) / 10).requires_grad_()
    expected = network((image - 0.13) / 0.31)[:, 1]
    z, g = classifier.build(chosen, "cpu").output_and_gradient(x)
    torch.testing.assert_close(z, expected.detach(), atol=1e-5, rtol=0)
    expected.sum().backward()
    by_level = image.grad.view(6, 20, 1) * torch.arange(11) / 10
    torch.testing.assert_close(g, by_level, atol=1e-5, rtol=1e-4)
    assert "one for each channel" in refused(tmp_path / "own.safetensors", **made | {"std": [1, 1]})


def test_colours_are_normalized_by_channel():
    shape, mean, std = Shape(2, 3, 3, 256), (0.5, 0.4, 0.3), (0.2, 0.1, 0.3)
    pixels = classifier.ScaledPixels(shape, torch.device("cpu"), mean, std)
    x = torch.arange(2 * 18).view(2, 18)
    image = (x / 255).view(2, 2, 3, 3)  # [W, h, w, channel]
    expected = ((image - torch.tensor(mean)) / torch.tensor(std)).permute(0, 3, 1, 2)
    torch.testing.assert_close(pixels.combine(pixels.contributions(x)), expected)


def test_a_shape_that_is_no_square_is_in_the_fingerprint(tmp_path):
    """Squares leave it out: older runs keep their fingerprints."""
    save_file(tiny_module(3).state_dict(), tmp_path / "own.safetensors")
    made = {"factory": "image_models:tiny_module", "options": {"n_classes": 3}, "n_values": 11}
    wide, high, square = (
        files.preflight(options(tmp_path / "own.safetensors", shape=shape, **made))["fingerprint"]
        for shape in ([4, 9], [9, 4], [6, 6])
    )
    assert wide != high
    assert square.endswith(':image_models:tiny_module:{"n_classes": 3}') and wide.startswith(square)


def test_programs_of_torch_export_are_refused():
    """They may unpickle or run code while they are loaded; with and without a factory."""
    for more in ({}, {"factory": "a:b", "shape": [4, 5], "n_values": 11}):
        with pytest.raises(
            ValueError, match=r"\(\.pt2\) are not supported: give the network as factory"
        ):
            options("own.pt2", **more)


def refused(folder, **more):
    with pytest.raises(UserError) as caught:
        files.preflight(options(folder, **more))
    return str(caught.value)


def test_what_is_refused_without_torch(tmp_path):
    folder = save(tmp_path / "model", "mlp", SHAPES["grey"], n_outputs=2)
    assert files.preflight(options(folder, label=1))["n_values"] == 11
    assert "model.label = 2: the model" in refused(folder, label=2)
    assert "is for energy-based" in refused(folder, target="log-likelihood")
    assert "no such folder" in refused(tmp_path / "nothing")
    (tmp_path / "own.bin").write_bytes(b"")
    made = {"factory": "image_models:tiny_module", "shape": [2, 2], "n_values": 4}
    assert "no such file" in refused(tmp_path / "no.safetensors", **made)
    assert "nothing is unpickled" in refused(tmp_path / "own.bin", **made)
    about = folder / "model.json"
    text = json.loads(about.read_text())
    for key, value in (("architecture", "transformer"), ("height", -1), ("channels", 2)):
        about.write_text(json.dumps({**text, key: value}))
        assert key in refused(folder)
    about.write_text("{")
    assert "not valid JSON" in refused(folder)
    about.write_text(json.dumps({**text, "n_outputs": 1}))
    assert "has only one class" in refused(folder, target="log-softmax")
    (folder / "model.safetensors").rename(folder / "model.pt")
    assert "never loaded" in refused(folder)
    about.unlink()
    assert "no model.json" in refused(folder)


def test_broken_weights_are_bad_input(tmp_path):
    folder = save(tmp_path, "mlp", SHAPES["grey"])
    file = folder / "model.safetensors"
    good = load_file(file)
    bad = {k: v.clone() for k, v in good.items()}
    bad["pixels.table"][0, 3, 2] = torch.nan
    for tensors, said in (
        (bad, "NaN or infinite numbers"),
        ({k: v for k, v in good.items() if k != "pixels.bias"}, "does not fit"),
        ({**good, "pixels.bias": torch.zeros(4)}, "does not fit"),
    ):
        save_file(tensors, file)
        with pytest.raises(UserError, match=said):
            classifier.build(options(folder), "cpu")
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(UserError, match="cannot be loaded as safetensors"):
        classifier.build(options(folder), "cpu")
