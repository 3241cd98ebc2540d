"""Files of Potts models: each format gives the same parameters; broken files are refused."""

import numpy as np
import pytest
from potts_files import random_model, write_plmc, write_text

from omniinput_hpc.config import Potts
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import potts_file
from omniinput_hpc.pilot import model_table

H, J = random_model(4, 5, seed=4)
EXPECTED = (J + J.transpose(1, 0, 3, 2)).transpose(0, 2, 1, 3)


def options(path, **keys):
    return Potts(kind="potts", path=str(path), **keys)


def write_numbers(path):
    write_text(path, H, J)


def write_letters(path):
    write_text(path, H, J, "-ACGU")


def write_once(path):
    np.savez(path, h=H, J=J, alphabet="-ACGU")


def write_twice(path):
    np.savez(path, h=H.astype("f4"), J=(J + J.transpose(1, 0, 3, 2)).astype("f4"))


def write_binary(path):
    write_plmc(path, H, J, "-ACGU")


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (write_numbers, "p.dat"),
        (write_letters, "p.dat"),
        (write_once, "p.npz"),
        (write_twice, "p.npz"),
        (write_binary, "p.model_params"),
    ],
)
def test_each_format_gives_the_parameters(tmp_path, write, name):
    write(tmp_path / name)
    found = potts_file.read(options(tmp_path / name))
    np.testing.assert_allclose(found.h, H, atol=1e-6)
    np.testing.assert_allclose(found.coupling, EXPECTED, atol=1e-6)
    assert found.alphabet == "-ACGU"  # 5 values without names are RNA, as in adabmDCA
    about = potts_file.preflight(options(tmp_path / name))
    assert (about["n_sites"], about["n_values"]) == (4, 5)
    assert about["fingerprint"].startswith("sha256:")


def test_pruned_couplings_are_0_and_an_alphabet_orders_the_letters(tmp_path):
    write_letters(tmp_path / "p.dat")
    lines = (tmp_path / "p.dat").read_text().splitlines()
    kept = [line for line in lines if not line.startswith("J 0 1")]
    (tmp_path / "q.dat").write_text("\r\n".join(kept))
    found = potts_file.read(options(tmp_path / "q.dat", alphabet="UGCA-"))
    expected = EXPECTED.copy()
    expected[0, :, 1] = expected[1, :, 0] = 0
    np.testing.assert_allclose(found.coupling, expected[:, ::-1, :, ::-1], atol=1e-6)
    plain, ordered = (
        potts_file.preflight(options(tmp_path / "q.dat", **keys))["fingerprint"]
        for keys in ({}, {"alphabet": "UGCA-"})
    )
    assert plain == potts_file.fingerprint([tmp_path / "q.dat"]) and plain != ordered


def test_how_inputs_are_shown_and_read(tmp_path):
    write_letters(tmp_path / "p.dat")
    shown = potts_file.display(options(tmp_path / "p.dat"))
    x = np.array([[0, 1, 2, 4]])
    assert list(shown.show(x)) == shown.letters(x) == ["-ACU"]
    assert potts_file.encoder(options(tmp_path / "p.dat"))("-AXU") == [0, 1, -1, 4]
    write_text(tmp_path / "n.dat", *random_model(2, 3))
    assert potts_file.display(options(tmp_path / "n.dat")).letters is None
    with pytest.raises(UserError, match=r"name them with model\.alphabet"):
        potts_file.encoder(options(tmp_path / "n.dat"))
    assert model_table.of(str(tmp_path / "p.dat"), None, None)["kind"] == "potts"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("h 0 - ", "h 0 Z ", "found 20 lines h, but 4 sites"),
        ("h 3 U", "# h 3 U", "found 19 lines h, but 4 sites"),
        ("J 0 1 - - ", "J 0 0 - - ", "line 1: expected h i a value, or J i j a b value"),
        ("J 0 1 - - ", "J 1 0 A - ", "each number once"),
        ("J 0 1 - - ", "J 0 7 - - ", "line 1: expected"),
        ("J 0 1 - - ", "J 0 1 - - nan", "line 1: expected"),
        ("J 0 1 - - ", "j 0 1 - - ", "is not a Potts model"),
    ],
)
def test_broken_texts_are_refused(tmp_path, old, new, message):
    write_letters(tmp_path / "p.dat")
    text = (tmp_path / "p.dat").read_text()
    assert old in text
    (tmp_path / "p.dat").write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        potts_file.read(options(tmp_path / "p.dat"))


def test_other_broken_files_are_refused(tmp_path):
    write_binary(tmp_path / "p")
    (tmp_path / "cut").write_bytes((tmp_path / "p").read_bytes()[:-4])
    (tmp_path / "zip.npz").write_bytes(b"PK nothing")
    np.savez(tmp_path / "h.npz", h=H, J=J[:3])
    np.savez(tmp_path / "unequal.npz", h=H, J=J + 2 * J.transpose(1, 0, 3, 2))
    np.savez(tmp_path / "nan.npz", h=H * np.nan, J=J)
    for name, message in {
        "cut": "is not a Potts model",
        "zip.npz": "is not a Potts model",
        "h.npz": "does not fit J",
        "unequal.npz": "differs from J_ji",
        "nan.npz": "is not finite",
        "none": "no such file",
    }.items():
        with pytest.raises(UserError, match=message):
            potts_file.read(options(tmp_path / name))
    with pytest.raises(UserError, match="5 values, which the alphabet 'ACGU' does not name"):
        potts_file.read(options(tmp_path / "p", alphabet="ACGU"))
