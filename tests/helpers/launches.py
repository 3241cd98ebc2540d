"""What a GPU would be given to do, counted on torch's "meta" device, which computes nothing.

A kernel is an operation that is no view; attention counts as one. Passes that a GPU has recorded as
a CUDA graph are one launch each, of as many kernels as they hold. A kernel's seconds are those of
the bytes that it reads and writes, or of its multiplications, whichever are more, and a pause: see
`Chip`.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import gpu_models
import torch
import torch.nn.functional as F
from torch._C import _dispatch_has_kernel_for_dispatch_key
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from omniinput_hpc.models.language import causal_lm, hf_decoder

LOOKUPS = ("embedding", "gather", "index", "index_select")
"""They read as much as they write, and not the whole table."""
NO_KERNEL = ("empty", "empty_like", "new_empty", "empty_strided", "detach", "_unsafe_view", "alias")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


@dataclass(frozen=True)
class Chip:
    """How fast a GPU works: by default an H200.

    The six numbers are a fit to 20 times that tests/gpu/test_speed.py measured on one: evaluations
    and moves of 64 and 256 inputs, with and without look_ahead, at the shapes of OLMo-1B and
    OLMo-7B. The fit is within 4 % (rms), and 8 % at most (docs/results/gpu.md).

    Attributes
    ----------
    bandwidth : bytes/s that kernels read and write
    matrix_bandwidth, peak : bytes/s and bfloat16 operations/s of products of matrices
    attention : seconds per sequence and head
    pause : seconds before a kernel of a graph
    eager : seconds before an operation that Python launches, with the further kernels it needs
    """

    bandwidth: float = 3.06e12
    matrix_bandwidth: float = 3.64e12
    peak: float = 6.46e14
    attention: float = 1.24e-8
    pause: float = 2.5e-6
    eager: float = 1.89e-5


CHIPS = {
    "h200": Chip(),
    # its memory copies at 3.0 TB/s instead of 4.22, everything else is alike
    "h100": Chip(bandwidth=2.17e12, matrix_bandwidth=2.58e12),
}


@dataclass
class Work:
    """What was counted.

    Attributes
    ----------
    launches : what the host hands to the GPU: kernels, and recorded passes as one each
    kernels, n_bytes, operations : of all of them, those in recorded passes included
    seconds : of the GPU
    """

    launches: int = 0
    kernels: int = 0
    n_bytes: float = 0.0
    operations: float = 0.0
    seconds: float = 0.0

    def numbers(self) -> list[float]:
        """Return all of them."""
        return list(vars(self).values())

    def minus(self, other: Work) -> Work:
        """Return what remains without another."""
        pairs = zip(self.numbers(), other.numbers(), strict=True)
        return Work(*(mine - theirs for mine, theirs in pairs))


class Counter(TorchDispatchMode):
    """Counts what is dispatched while it is entered, in `work`."""

    def __init__(self, chip: Chip | None = None) -> None:
        super().__init__()
        self.chip, self.work = chip or Chip(), Work()
        self._in_graph, self._attention = False, OneAttention(self)

    def __enter__(self):
        self._attention.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._attention.__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if _dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            TorchDispatchMode.__enter__(self)  # in inference mode they come whole
            found = func.decompose(*args, **(kwargs or {}))
            TorchDispatchMode.__exit__(self, None, None, None)
            if found is not NotImplemented:
                return found
        found = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if not (is_view(func) or name in NO_KERNEL):
            given, written = tensors_in((args, kwargs or {})), tensors_in(found)
            if name in LOOKUPS:
                given = written
            operations = 0.0
            if name in PRODUCTS:
                a, b = factors(args)
                operations = 2.0 * a.numel() * b.shape[-1]
            self.add([*given, *written], operations)
        return found

    def add(self, tensors, operations=0.0, n_attended=0):
        """Count a kernel that reads and writes tensors.

        n_attended : sequences times heads, if it is attention
        """
        n_bytes = float(sum(tensor.nbytes for tensor in tensors))
        work, chip = self.work, self.chip
        work.kernels += 1
        work.launches += not self._in_graph
        work.n_bytes += n_bytes
        work.operations += operations
        bandwidth = chip.matrix_bandwidth if operations else chip.bandwidth
        work.seconds += max(
            n_bytes / bandwidth, operations / chip.peak, n_attended * chip.attention
        )
        work.seconds += chip.pause if self._in_graph else chip.eager

    @contextmanager
    def graph(self):
        """Count what is dispatched meanwhile as the replay of one graph."""
        self.work.launches += 1
        self._in_graph = True
        yield
        self._in_graph = False

    def record(self, kv_cache, warm=False):
        """Count a KV cache's passes as a GPU runs them: recorded at their second use.

        warm : whether all have been used before
        """
        seen, work = set(), kv_cache._work

        def run_positions(tokens, begin):
            span = (begin, len(tokens))
            if warm or span in seen:
                with self.graph():
                    return work(tokens, begin)
            seen.add(span)
            return work(tokens, begin)

        kv_cache._run_positions = run_positions


class OneAttention(TorchFunctionMode):
    """Attention as the one kernel that it is on a GPU: "meta" has none, and takes it to pieces."""

    def __init__(self, counter):
        super().__init__()
        self._counter = counter

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        q, k = args[:2]
        found = torch.empty_like(q)
        products = 4.0 * q.numel() * k.shape[-2]  # of queries and keys, and of weights and values
        tensors = [*tensors_in((args, kwargs or {})), found]
        self._counter.add(tensors, products, q.shape[0] * q.shape[1])
        return found


def factors(args):
    """Return the two factors of a product, the last two matrices that it was given."""
    matrices = [t for t in args if isinstance(t, torch.Tensor) and t.dim() >= 2]
    return matrices[-2:]


def is_view(func):
    """Whether an operation only looks at its input in another way."""
    alias = func._schema.returns[0].alias_info if func._schema.returns else None
    return alias is not None and not alias.is_write


def tensors_in(found):
    """Return all tensors in nested tuples, lists and dicts."""
    if isinstance(found, torch.Tensor):
        return [found]
    if isinstance(found, dict):
        found = found.values()
    elif not isinstance(found, list | tuple):
        return []
    return [tensor for inner in found for tensor in tensors_in(inner)]


def model_on_meta(n_layers, width=32, n_inner=48, n_vocab=300, length=6):
    """Return a language model of OLMo's kind without numbers, on the "meta" device."""
    from transformers import OlmoConfig

    shape = OlmoConfig(
        vocab_size=n_vocab, hidden_size=width, intermediate_size=n_inner,
        num_hidden_layers=n_layers, num_attention_heads=max(2, width // 128), pad_token_id=1,
        eos_token_id=0,
    )  # fmt: skip
    with (
        mock.patch.object(gpu_models, "config_of", lambda _: shape),
        mock.patch.object(hf_decoder, "try_out", lambda *_: None),  # compares numbers
        mock.patch.object(causal_lm, "check_length", lambda *_, **__: None),  # needs numbers
    ):
        model = gpu_models.random_model("", "bfloat16", "meta", length)
        assert model._decoder is not None  # made here
    return model
