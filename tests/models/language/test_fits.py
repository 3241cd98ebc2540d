"""What a person is told of devices and memory: which device, how much, and that it does not fit."""

import re
import weakref
from types import SimpleNamespace

import pytest
import torch
from language_folders import save_decoder

from omniinput_hpc.cli import run
from omniinput_hpc.config import CausalLm
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import checked, device
from omniinput_hpc.models.language import causal_lm, loading
from omniinput_hpc.models.language.packed import packs

INPUT = """
[run]
output = "{folder}/run.h5"
seed = 1
rounds = 1
[model]
kind = "causal-lm"
path = "{folder}"
length = 5
dtype = "bfloat16"
[sampler]
walkers = 4
steps = 2
exchanges = 1
[ladder]
betas = [0.0, 4.0]
[bins]
lower = 0.0
upper = 20.0
width = 0.05
[samples]
every = 2
"""


def test_check_says_a_devices_and_a_hosts_memory(tmp_path, capfd):
    save_decoder("gpt2", tmp_path)
    lm = causal_lm.build(CausalLm(kind="causal-lm", path=str(tmp_path), length=5), "cpu").lm
    numbers = sum(p.numel() for p in lm.parameters())
    (tmp_path / "a.toml").write_text(INPUT.format(folder=tmp_path))
    assert run.main([str(tmp_path / "a.toml"), "--check"]) == 0
    text = "".join(capfd.readouterr())
    parts = r"memory +([\d.]+) kB of weights \+ ([\d.]+) kB of keys, values and packed weights "
    parts += r"\+ ([\d.]+) kB"
    memory = [1000 * float(part) for part in re.search(parts, text).groups()]
    kept = 2 * (2 * 4 * 4 * (2 * 2 * 16 + 16) + 4 * 2 * 4 * 4)  # and hidden states, and scores
    if packs(lm.lm_head.weight):
        kept += 2 * (2 * 16 * (3 * 16 + 16 + 64 + 64) + 29 * 16)  # two layers and the head
    expected = [2 * numbers, kept, 3 * 4 * 4 * 5 * 29]  # bfloat16; logits in float32
    assert memory == pytest.approx(expected, rel=0.01)
    assert re.search(r"hosts +up to 1 rank\(s\) each, at peak [\d.]+ kB of memory", text)


def test_a_rank_takes_the_device_of_its_number_on_the_host(monkeypatch):
    taken = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    assert [device.choose("auto", rank, 1) for rank in (0, 3, 5)] == ["cuda:0", "cuda:3", "cuda:1"]
    assert taken == [0, 3, 1]
    assert device.choose("cpu", 2, 1) == "cpu"


@pytest.mark.parametrize(("precision", "allowed"), [("tf32", True), ("highest", False)])
def test_a_gpu_multiplies_in_the_precision_that_is_asked_for(monkeypatch, precision, allowed):
    matmul, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(convolutions, "allow_tf32", not allowed)
    before, x = matmul.allow_tf32, torch.rand(64, 64)
    product = x @ x
    try:
        matmul.allow_tf32 = not allowed
        device.choose("cpu", 0, 1, precision)
        assert matmul.allow_tf32 != allowed  # a CPU is no business of its
        assert convolutions.allow_tf32 != allowed
        device.choose("auto", 0, 1, precision)
        assert matmul.allow_tf32 == convolutions.allow_tf32 == allowed
        assert torch.equal(x @ x, product)  # and has the same bits with it
        assert not device.multiplies_in_tf32(x)
    finally:
        matmul.allow_tf32 = before


@pytest.fixture
def a_gpu_unseen(monkeypatch, tmp_path):
    """Let the system show a GPU that torch does not see."""
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(device, "_GPU_NODES", [(str(tmp_path), "nvidia[0-9]*")])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_gpu_that_torch_does_not_see_is_told(a_gpu_unseen, monkeypatch):
    with pytest.raises(UserError, match=r'nvidia0\) that torch does not see.*run\.device = "cpu"'):
        device.choose("auto", 0, 1)
    assert device.choose("cpu", 0, 1) == "cpu"
    assert device.try_out(0) == ("cpu", "", "unseen")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UserError, match="torch does not see"):
        device.choose("auto", 0, 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # hidden on purpose
    assert device.choose("auto", 0, 1) == "cpu"
    assert device.try_out(0) == ("cpu", "", "")


def test_a_host_without_a_gpu_takes_the_cpu(a_gpu_unseen, monkeypatch):
    monkeypatch.setattr(device, "_GPU_NODES", [("/nowhere", "nvidia[0-9]*")])
    assert device.choose("auto", 0, 1) == "cpu"


def test_a_run_on_a_host_whose_gpu_torch_does_not_see_is_bad_input(a_gpu_unseen, tmp_path, capfd):
    save_decoder("gpt2", tmp_path)
    (tmp_path / "a.toml").write_text(INPUT.format(folder=tmp_path))
    words = [str(tmp_path / "a.toml"), "--check"]
    assert run.main(words) == 2
    text = "".join(capfd.readouterr())
    assert 'run.device = "auto": this host has a GPU' in text
    assert "Traceback" not in text
    assert run.main([*words, "--set", 'run.device="cpu"']) == 0


def test_ranks_with_and_without_a_gpu_are_told():
    device.check_alike(["cpu", "cpu"], ["a", "b"])
    device.check_alike(["cuda:0", "cuda:1"], ["a", "a"])
    with pytest.raises(UserError, match=r"rank 1 on host b has no GPU, and 2 of 3 ranks have one"):
        device.check_alike(["cuda:0", "cpu", "cuda:0"], ["a", "b", "c"])


class Full(torch.nn.Linear):
    """A model for which its device has no room."""

    def to(self, where):
        raise torch.OutOfMemoryError("tried to allocate")

    def output(self, x):
        raise torch.OutOfMemoryError("tried to allocate")


def test_what_does_not_fit_is_bad_input_and_says_what_helps():
    with pytest.raises(UserError, match=r"0\.0 GB of weights do not fit on cpu, .* fewer ranks"):
        loading.to_device(Full(100, 100), "cpu", "model.path = here")
    with pytest.raises(UserError, match=r"a batch of 7 inputs does not fit .* sampler\.walkers"):
        checked.try_out(Full(1, 1), torch.zeros(7, 3, dtype=torch.int64), "the model")


@pytest.mark.parametrize("with_accelerate", [True, False])
def test_weights_are_read_straight_onto_a_gpu(tmp_path, monkeypatch, with_accelerate):
    """By accelerate where it is installed; memory that ends there is said as that."""
    given = {}

    def from_pretrained(place, **options):
        given.update(options)
        raise torch.OutOfMemoryError("tried to allocate")

    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", from_pretrained)
    monkeypatch.setattr(loading, "find_spec", lambda name: with_accelerate or None)
    monkeypatch.setattr(loading, "free_bytes", lambda where: 10**9)
    with pytest.raises(UserError, match=r"GB of weights do not fit on cuda:1, which has 1\.0 GB"):
        loading.load(
            loading.AutoModelForCausalLM, save_decoder("olmo", tmp_path), "float32", "cuda:1"
        )
    assert given.get("device_map") == ({"": "cuda:1"} if with_accelerate else None)


def test_a_cpu_is_no_place_to_move_weights_to():
    assert loading._placement("cpu") == {}


def test_weights_are_looked_at_where_they_are_used(tmp_path, monkeypatch):
    """On the device, which takes milliseconds: so a copy that went wrong shows, too."""
    move = loading.to_device

    def spoil(model, *where):
        list(move(model, *where).parameters())[2].data[0] = torch.inf
        return model

    options = CausalLm(kind="causal-lm", path=str(save_decoder("olmo", tmp_path)), length=5)
    causal_lm.build(options, "cpu")
    monkeypatch.setattr(loading, "to_device", spoil)
    with pytest.raises(
        UserError, match=r"weights of model\.layers.* are NaN or infinite in float32"
    ):
        causal_lm.build(options, "cpu")


def test_a_gpu_is_described_by_its_name_its_driver_and_cudnn(tmp_path, monkeypatch):
    assert device.gpu("cpu") == {"gpu": "none"}
    about = SimpleNamespace(name="NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda name: about)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 90701)
    driver = tmp_path / "version"
    monkeypatch.setattr(device, "_DRIVER", str(driver))
    found = {"gpu": about.name, "cudnn": "90701"}
    assert device.gpu("cuda:0") == found
    driver.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 26 01:37:27 UTC 2025\n"
        "GCC version:  gcc version 12.3.0\n"
    )
    assert device.gpu("cuda:0") == {**found, "gpu_driver": "570.124.06"}


@pytest.fixture
def a_gpu(monkeypatch):
    """Stand for torch.cuda where memory is asked for: 80 bytes in all, 10 of them torch's."""
    memory = SimpleNamespace(free=64, reserved=10)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda name: (memory.free, 80))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda name: memory.reserved)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda name: memory.reserved)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda name: memory.reserved)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda name: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    return memory


def test_memory_outside_torchs_allocator_is_seen(a_gpu):
    assert device.outside_bytes("cpu") == 0
    assert device.outside_bytes("cuda:0") == 80 - 64 - 10


class Cycle:
    """What only the garbage collector finds, as a KV cache and its graphs."""

    def __init__(self):
        self.me = self


@pytest.mark.parametrize("name", ["cpu", "cuda:0"])
def test_a_trial_begins_without_what_former_ones_left(a_gpu, name):
    left = weakref.ref(Cycle())
    assert left() is not None
    device.reset_peak(name)
    assert left() is None


def test_a_cache_of_other_walkers_replaces_the_former_one(tmp_path):
    save_decoder("llama", tmp_path)
    model = causal_lm.build(CausalLm(kind="causal-lm", path=str(tmp_path), length=5), "cpu")
    x = torch.zeros((2, 5), dtype=torch.int64)
    z = model.kv_cache(2).output(x)
    former, kept = weakref.ref(model.kv_cache(2)), model.cache_bytes
    model.kv_cache(3)
    assert former() is None
    assert model.cache_bytes > kept
    assert torch.equal(model.kv_cache(2).output(x), z)


def test_a_gpu_is_told_from_others_by_its_uuid(monkeypatch):
    uuids = {"cuda:0": "GPU-a", "cuda:1": "GPU-b", "cuda:2": None}
    about = lambda name: SimpleNamespace(uuid=uuids[name])  # noqa: E731
    monkeypatch.setattr(torch.cuda, "get_device_properties", about)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
    names = ["cpu", "cuda:0", "cuda:1", "cuda:2"]
    assert [device.identity(name) for name in names] == ["", "GPU-a", "GPU-b", "5,6,7/cuda:2"]
