"""For tests/gpu: models of the papers' shapes with random weights, a stopwatch, a count of work."""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import time
from unittest import mock

import torch

from omniinput_hpc.config import CausalLm
from omniinput_hpc.models.language import causal_lm

TINY = os.environ.get("OMNIINPUT_GPU_TINY") == "1"
"""Whether small models are taken, on the CPU where there is no GPU: to try the tests out."""
HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda:0" if HAS_GPU else "cpu"
LENGTH = 7 if TINY else 25
NO_GPU = "torch sees no GPU here"
LOOKED_UP = ("wte", "wpe", "embed_tokens")  # tables that nothing is multiplied with


def config_of(shape):
    """Return the configuration of GPT-2 small, OLMo-1B or OLMo-7B, or of a tiny one."""
    from transformers import GPT2Config, OlmoConfig

    olmo_1b = {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 16, "tie_word_embeddings": True,
    }  # fmt: skip
    olmo_7b = {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32,
    }  # fmt: skip
    tiny = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 2, "pad_token_id": 1, "eos_token_id": 0,
    }  # fmt: skip
    if shape == "gpt2-small":
        small = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 300} if TINY else {}
        return GPT2Config(bos_token_id=0, eos_token_id=0, **small)
    if TINY:
        return OlmoConfig(vocab_size=300, **tiny)
    return OlmoConfig(vocab_size=50304, **{"olmo-1b": olmo_1b, "olmo-7b": olmo_7b}[shape])


def random_model(shape, dtype, device=DEVICE, length=LENGTH):
    """Return a language model of a shape with random weights, which are made on the device."""
    from transformers import AutoModelForCausalLM

    def load(kind, folder, dtype, device):
        torch.manual_seed(1)
        with torch.device(device):
            lm = AutoModelForCausalLM.from_config(config_of(shape), dtype=getattr(torch, dtype))
        lm.get_output_embeddings().weight.data.mul_(3.0)  # logits spread as a trained model's
        return lm.eval().requires_grad_(False)

    # only what reads the weights from files is replaced
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(causal_lm, "load", load):
        options = CausalLm(kind="causal-lm", path=folder, length=length, dtype=dtype)
        return causal_lm.build(options, device)


def synchronize():
    """Wait until the device has done all that it was given."""
    if HAS_GPU:
        torch.cuda.synchronize()


def timed(work, repeats=5, warm=2):
    """Return the median seconds of some work, and those until the host had handed it out."""
    for _ in range(warm):
        work()
    both = []
    for _ in range(repeats):
        synchronize()
        begin = time.perf_counter()
        work()
        handed_out = time.perf_counter() - begin
        synchronize()
        both.append((time.perf_counter() - begin, handed_out))
    return statistics.median(a for a, _ in both), statistics.median(b for _, b in both)


def free_memory():
    """Collect garbage; return the device's free bytes as the driver has them, 0 on a CPU."""
    gc.collect()
    if not HAS_GPU:
        return 0
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


class MatrixWork:
    """Counts the multiplications and additions of a KV cache's matrices, replayed ones too.

    Attributes
    ----------
    done : float, operations since it was made or set to 0
    """

    def __init__(self, model, kv_cache):
        self.done = 0.0
        lm, decoder, run = model.lm, kv_cache._decoder, kv_cache._run
        weights = [
            p.numel()
            for name, p in lm.base_model.named_parameters()
            if p.dim() == 2 and not any(table in name for table in LOOKED_UP)
        ]
        row, head = lm.get_output_embeddings().weight.numel(), decoder.head

        def counted_run(tokens):
            self.done += 2.0 * sum(weights) * tokens.numel()
            run(tokens)

        def counted_head(hidden):
            self.done += 2.0 * row * hidden[..., 0].numel()
            return head(hidden)

        kv_cache._run, decoder.head = counted_run, counted_head


def n_graphs(kv_cache):
    """Return how many spans of a KV cache were recorded as CUDA graphs."""
    return len(getattr(kv_cache._run_positions, "_graphs", {}))
