"""The papers' image networks: a one-hot 3 x 3 convolution to 3 channels, and a backbone.

OmniInput (Liu et al., 2025), appendix E. Every pixel is one-hot encoded. The first convolution of a
one-hot image picks one column of its weights per pixel, so it is evaluated as a table look-up and a
fold; the [W, n_values, H, W] tensor never exists.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

from omniinput_hpc.models.images.files import Architecture, Shape

HIDDEN_CHANNELS = 3
KERNEL = 3


class OneHotConvolution(nn.Module):
    """A 3 x 3 convolution (padding 1) of one-hot pixels to 3 channels, evaluated as a gather.

    Attributes
    ----------
    table : float32 [channels, n_values, 3 * 9] Entry [c, v, o * 9 + k] is the contribution of value
        v of channel c to output channel o at the pixel for which this one is number 8 - k of the 3
        x 3 window (the order that `fold` requires).
    bias : float32 [3]
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        fan_in = KERNEL**2 * shape.channels  # a window holds one 1 per pixel and channel
        columns = HIDDEN_CHANNELS * KERNEL**2
        scale = (1 / fan_in) ** 0.5
        self.table = nn.Parameter(scale * torch.randn(shape.channels, shape.n_values, columns))
        self.bias = nn.Parameter(torch.zeros(HIDDEN_CHANNELS))

    def contributions(self, x: torch.Tensor) -> torch.Tensor:
        """Return the table's rows of inputs x, int64 [W, D]: float32 [W, D, 27]."""
        s = self.shape
        if s.channels == 1:
            return F.embedding(x, self.table[0])
        first = torch.arange(s.channels, device=x.device) * s.n_values  # [c]
        rows = x.view(-1, s.height * s.width, s.channels) + first  # [W, h * w, c]
        return F.embedding(rows.flatten(1), self.table.flatten(0, 1))

    def combine(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the convolution's output [W, 3, h, w] from the rows [W, D, 27]."""
        s = self.shape
        per_pixel = rows.view(len(rows), s.height * s.width, s.channels, -1).sum(dim=2)
        image = F.fold(per_pixel.transpose(1, 2), (s.height, s.width), KERNEL, padding=1)
        return image + self.bias[:, None, None]

    def pull_back(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return dz/d one_hot(x) [W, D, n_values] from the gradient at the rows [W, D, 27]."""
        s = self.shape
        if s.channels == 1:
            return gradient @ self.table[0].T
        by_channel = gradient.view(len(gradient), s.height * s.width, s.channels, -1)
        g = torch.einsum("wpck,cvk->wpcv", by_channel, self.table)
        return g.reshape(len(gradient), s.n_sites, s.n_values)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return float32 [W, 3, h, w] of inputs x, int64 [W, D]."""
        return self.combine(self.contributions(x))


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut, which is a 1 x 1 convolution if there is a stride."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, stride, 1)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1)
        self.shortcut = nn.Conv2d(channels, channels, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return float32 [W, channels, h / stride, w / stride]."""
        inner = self.second(F.silu(self.first(image)))
        return F.silu(inner + self.shortcut(image))


class MeanPool(nn.Module):
    """The mean over all pixels."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return float32 [W, channels]."""
        return image.mean(dim=(2, 3))


def mlp(shape: Shape, hidden: int) -> nn.Sequential:
    """Return the papers' MLP: one hidden layer (128 features there) on the flattened image."""
    inputs = HIDDEN_CHANNELS * shape.height * shape.width
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU())


def cnn() -> nn.Sequential:
    """Return the papers' CNN: two blocks of two 3 x 3 convolutions, 32 and 128 channels.

    The papers do not specify how a block reduces the image, nor how the features are pooled: here
    the second convolution of a block has stride 2, and the features are averaged over pixels.
    """
    layers: list[nn.Module] = []
    for channels_in, channels in ((HIDDEN_CHANNELS, 32), (32, 128)):
        layers += [nn.Conv2d(channels_in, channels, 3, 1, 1), nn.ReLU()]
        layers += [nn.Conv2d(channels, channels, 3, 2, 1), nn.ReLU()]
    return nn.Sequential(*layers, MeanPool())


def resnet(channels: int) -> nn.Sequential:
    """Return the ResNet of Grathwohl et al. (2021): 64 channels, 2 + 6 blocks, swish, mean."""
    strides = (2, 2, 1, 1, 1, 1, 1, 1)
    blocks = [ResidualBlock(channels, stride) for stride in strides]
    return nn.Sequential(nn.Conv2d(HIDDEN_CHANNELS, channels, 3, 1, 1), *blocks, MeanPool())


class ImageNetwork(nn.Module):
    """The network that model.json describes: one-hot convolution, backbone, linear layer."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        shape, size = architecture.shape, architecture.size
        backbone, features = {
            "mlp": lambda: (mlp(shape, size), size),
            "cnn": lambda: (cnn(), 128),
            "resnet": lambda: (resnet(size), size),
        }[architecture.name]()
        self.architecture = architecture
        self.pixels = OneHotConvolution(shape)
        last = nn.Linear(features, architecture.n_outputs)
        self.body = nn.Sequential(OrderedDict(backbone=backbone, last=last))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs, float32 [W, n_outputs], of inputs x, int64 [W, D]."""
        outputs: torch.Tensor = self.body(self.pixels(x))
        return outputs
