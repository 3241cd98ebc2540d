"""What a person sees: text without torch, sharp PNG of the right pixels, a model's own render."""

import base64
import io
import json
import subprocess
import sys

import numpy as np
import pytest
from configs import config_with
from matplotlib.image import imread
from page_server import ROOT

from omniinput_hpc.annotation.display import shown_of
from omniinput_hpc.annotation.png import data_uri, pixels
from omniinput_hpc.annotation.tasks import PNG_URI
from omniinput_hpc.errors import UserError

ENGLISH = {"kind": "causal-lm", "path": str(ROOT / "inputs/models/english"), "length": 25}


@pytest.mark.parametrize("shape", [(8, 8), (5, 3), (4, 6, 3)])
def test_a_picture_comes_back_to_the_pixel(shape):
    image = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    uri = data_uri(image)
    back = imread(io.BytesIO(base64.b64decode(uri.removeprefix(PNG_URI))), format="png")
    assert (np.rint(back * 255).astype(np.uint8) == image).all() and back.shape == shape
    assert (pixels(uri) == image).all() and pixels(uri).shape == shape


def test_what_is_no_picture():
    for wrong in (np.zeros((2, 2)), np.zeros(4, np.uint8), np.zeros((2, 2, 4), np.uint8)):
        with pytest.raises(UserError, match="expected a picture"):
            data_uri(wrong)
    with pytest.raises(UserError, match="not a complete PNG"):
        pixels(data_uri(np.zeros((2, 2), np.uint8))[:-8])


def test_text_is_decoded_without_torch():
    code = (
        "import sys, numpy as np; from omniinput_hpc.annotation.display import shown_of;"
        "from omniinput_hpc.config.stored import of_tables;"
        f"s = shown_of(of_tables({{'model': {ENGLISH!r}}}));"
        "print(s.show(np.arange(100, 125)[None]));"
        "assert not {'torch', 'transformers', 'mpi4py'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and len(done.stdout) > 25, done.stderr


def test_a_prefix_is_shown_apart():
    plain = shown_of(config_with(model=ENGLISH))
    shown = shown_of(config_with(model={**ENGLISH, "prefix": "The list"}))
    x = np.arange(100, 125)[None]
    assert shown.prefix == "The list" and plain.prefix is None
    assert shown.show(x) == plain.show(x)


def test_a_value_is_not_a_token_where_special_ones_are_left_out():
    every, some = (
        shown_of(config_with(model={**ENGLISH, "tokens": t})) for t in ("all", "no-special")
    )
    x = np.arange(100, 125)[None]
    assert every.show(x) != some.show(x) or every.show(x + 1) == some.show(x)


def test_ids_are_shown_without_a_tokenizer():
    shown = shown_of(
        config_with(model={**ENGLISH, "path": str(ROOT / "inputs/models/toy"), "length": 8})
    )
    assert shown.show(np.arange(8)[None]) == ["0 1 2 3 4 5 6 7"] and "no tokenizer" in shown.note


def test_an_image_classifier_is_drawn_from_its_files(tmp_path):
    (tmp_path / "model.json").write_text(json.dumps({
        "architecture": "mlp", "height": 2, "width": 3, "channels": 1, "n_values": 17,
        "n_outputs": 1, "size": 4,
    }))  # fmt: skip
    shown = shown_of(config_with(model={"kind": "image-classifier", "path": str(tmp_path)}))
    assert shown.kind == "image"
    (uri,) = shown.show(np.array([[0, 16, 8, 0, 0, 16]]))
    back = imread(io.BytesIO(base64.b64decode(uri.removeprefix(PNG_URI))), format="png")
    assert np.allclose(np.rint(back * 255), [[0, 255, 128], [0, 0, 255]])


def test_a_model_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    (tmp_path / "drawn.py").write_text(
        "import numpy as np\n"
        "class M:\n    n_sites, n_values = 4, 2\n    def output(self, x): return x.sum(1).float()\n"
        "class R(M):\n    def render(self, x):\n"
        "        return [np.uint8(255 * a.numpy().reshape(2, 2)) for a in x]\n"
        "def plain(device): return M()\ndef render(device): return R()\n"
    )
    x = np.array([[0, 1, 1, 0]])
    model = {"kind": "python", "factory": "drawn:plain"}
    assert shown_of(config_with(model=model)).show(x) == ["0 1 1 0"]
    shown = shown_of(config_with(model={**model, "factory": "drawn:render"}))
    assert shown.kind == "image" and pixels(shown.show(x)[0]).shape == (2, 2)


def test_a_kind_that_is_not_known():
    with pytest.raises(UserError, match="music"):
        shown_of(config_with(model={"kind": "music"}))
