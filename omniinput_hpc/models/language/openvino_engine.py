"""Whole inputs evaluated by OpenVINO, an optional package, on a CPU (``model.engine``)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn

from omniinput_hpc.errors import UserError

ROUNDING = {torch.float32: 1e-4, torch.bfloat16: 0.02}
"""Largest difference from torch's outputs, times 1 + the largest of these."""
PRECISION = {torch.float32: "f32", torch.bfloat16: "bf16"}
Evaluate = Callable[[torch.Tensor], torch.Tensor]
"""Maps tokens, int64 [n, T], to float32 [n] or [n, C]."""


class Program:
    """A network as OpenVINO evaluates it, for batches of any number of inputs.

    Attributes
    ----------
    n_bytes : of the weights, of which it keeps a copy
    """

    def __init__(self, program: Any, n_bytes: int) -> None:
        self._program, self.n_bytes = program, n_bytes

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the network's float32 outputs for tokens, int64 [n, T]."""
        return torch.from_numpy(self._program([tokens.numpy()])[0].copy())


class Network(nn.Module):
    """A function of tokens that evaluates `lm`, as a module that can be traced.

    The function must pass a mask of ones: OpenVINO lacks an operation of what transformers does
    without one.
    """

    def __init__(self, lm: nn.Module, evaluate: Evaluate) -> None:
        super().__init__()
        self.lm, self._evaluate = lm, evaluate

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return what the function returns."""
        return self._evaluate(tokens)


def compiled(network: nn.Module, trial: list[torch.Tensor], device: str, name: str) -> Program:
    """Return a network as OpenVINO evaluates it.

    Parameters
    ----------
    network : maps tokens, int64 [n, T], to float32 [n] or [n, C]
    trial : batches of tokens [n, T], the same T in all, on which torch must agree
    name : of the model, for messages

    Raises `UserError` if OpenVINO cannot compile the network, if it computes something else, or if
    the device is a GPU.
    """
    if device != "cpu":
        raise UserError('model.engine = "openvino" computes on a CPU: set run.device = "cpu"')
    dtype = next(network.parameters()).dtype
    try:
        evaluate = _compile(network, trial[0], PRECISION[dtype])
        found = [evaluate(tokens) for tokens in trial]
    except Exception as error:  # errors of its front end and of the compiler have many classes
        said = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise UserError(f"{_remedy(name)}: it cannot be compiled ({said})") from error
    with torch.no_grad():
        expected = [network(tokens) for tokens in trial]
    apart = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
    if not apart <= ROUNDING[dtype] * (1.0 + max(float(z.abs().max()) for z in expected)):
        raise UserError(f"{_remedy(name)}: its outputs are not those of torch")
    return evaluate


@cache
def _core() -> Any:
    """Return the only `Core` of this process.

    Each core installs a stack for signal handlers and frees it when it is destroyed. If the first
    of two cores is destroyed first, a freed stack stays installed. The next SIGTERM or SIGUSR1 then
    crashes the process.
    """
    from openvino import Core

    return Core()


def _compile(network: nn.Module, tokens: torch.Tensor, precision: str) -> Program:
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    # `openvino.convert_model` does the same, but reports its use to Intel over the network
    front_end = FrontEndManager().load_by_framework("pytorch")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # transformers' branches depend on the shape alone
        decoder = TorchScriptPythonDecoder(network, example_input=tokens)
        graph = front_end.convert(front_end.load(decoder))
    graph.reshape([-1, tokens.shape[1]])
    options = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
    }
    n_bytes = sum(weights.nbytes for weights in network.parameters())
    return Program(_core().compile_model(graph, "CPU", options), n_bytes)


def _remedy(name: str) -> str:
    return f'{name} does not work with model.engine = "openvino"; leave this key out'
