"""Transformers is imported without what no run uses, and nothing of it is lost."""

import subprocess
import sys

from run_tools import environment

LEFT_OUT = "torch._dynamo", "torch.distributed.tensor", "scipy.optimize"


def run(code: str) -> str:
    """Return what a new process prints, after the functions that the tests share."""
    begin = (
        "import sys\nfrom omniinput_hpc.models.language import quick_import\n"
        f"def loaded(): return [name for name in {LEFT_OUT} if name in sys.modules]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", begin + code], env=environment(), text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_models_are_built_without_what_is_left_out():
    out = run("""
quick_import.transformers()
import torch
from transformers import AutoConfig, AutoModelForCausalLM
for name in ("gpt2", "llama", "olmo2"):
    with torch.device("meta"):
        AutoModelForCausalLM.from_config(AutoConfig.for_model(name, num_hidden_layers=1))
small = AutoConfig.for_model(
    "llama", num_hidden_layers=1, hidden_size=8, intermediate_size=8, vocab_size=9,
    num_attention_heads=2, num_key_value_heads=2,
)
AutoModelForCausalLM.from_config(small)(torch.tensor([[1, 2]])).logits.sum().backward()
print(loaded())
""")
    assert out == "[]\n"


def test_what_is_left_out_is_there_when_it_is_called():
    out = run("""
quick_import.transformers()
import torch
from transformers import masking_utils
from transformers.loss import loss_for_object_detection
with masking_utils.TransformGetItemToIndex():
    assert torch.arange(3)[torch.tensor(1)] == 1
rows, columns = loss_for_object_detection.linear_sum_assignment([[1, 0], [0, 1]])
print(columns.tolist(), torch.distributed.is_available())
import scipy.optimize
print(scipy.optimize.brentq(lambda x: x - 0.5, 0, 1))
""")
    assert out.split("\n")[:2] == ["[1, 0] True", "0.5"]


def test_the_compiler_keeps_off_functions_that_were_marked_before_it_was_loaded():
    out = run("""
import torch
with quick_import._left_out():
    marked = torch.compiler.disable(lambda x: x + torch.compiler.is_compiling())
plain = lambda x: x + torch.compiler.is_compiling()
print(loaded(), *(torch.compile(lambda x: f(x) * 2, backend="eager")(torch.ones(1)).item()
                  for f in (marked, plain)))
""")
    assert out == "[] 2.0 4.0\n"


def test_another_release_is_imported_as_usual():
    out = run("""
quick_import._STAND_INS["scipy.optimize"] = ()  # this release takes a function from it
quick_import.transformers()
print("transformers" in sys.modules)
from transformers import GPT2LMHeadModel
print(sorted(loaded()))
""")
    assert out == f"False\n{sorted(LEFT_OUT)}\n"
