"""Judges of pictures of digits: they tell 1s from other digits and from noise."""

import json

import numpy as np
import pytest

from omniinput_hpc.errors import UserError
from omniinput_zoo import mnist_judges


def small_digits(*labels):
    return mnist_judges.digits_scaled_up(*labels).reshape(-1, 784)


def test_the_prototypes_are_a_hundred_of_each_digit():
    known = mnist_judges.prototypes()
    assert np.bincount(known.y).tolist() == [100] * 10
    assert mnist_judges.pictures_of_ones().shape == (100, 28, 28)


def test_ones_are_told_from_other_digits_and_noise():
    known = mnist_judges.prototypes()
    noise = mnist_judges.uniform_noise(200).reshape(-1, 784)
    for judge in (mnist_judges.looks_like_one, mnist_judges.nearest_are_ones):
        assert judge(known.only(1).x).mean() > 0.95
        assert judge(known.only(0, 2, 3, 4, 5, 6, 7, 8, 9).x).mean() < 0.05
        assert judge(255 - known.only(1).x).mean() < 0.9  # black on white is less so
    assert mnist_judges.looks_like_one(noise).max() == 0
    assert mnist_judges.nearest_are_ones(noise).mean() < 0.3


def test_a_network_of_ten_classes_tells_ones_from_others_and_from_noise():
    known = mnist_judges.prototypes()  # of the training images
    assert mnist_judges.probability_of_one(known.only(1).x).mean() > 0.95
    others = known.only(0, 2, 3, 4, 5, 6, 7, 8, 9)
    assert mnist_judges.probability_of_one(others.x).mean() < 0.02
    noise = mnist_judges.probability_of_one(mnist_judges.uniform_noise(200).reshape(-1, 784))
    assert noise.mean() < 0.05 and noise.max() < 0.5
    about = json.loads((mnist_judges.NETWORK / "model.json").read_text())
    assert about["test_images"] == 2004 and about["test_accuracy"] > 0.95


def test_a_shaken_one_is_still_one():
    ones = mnist_judges.prototypes().only(1).x.astype(int)
    shaken = np.clip(ones + np.random.default_rng(1).integers(-40, 41, ones.shape), 0, 255)
    assert mnist_judges.looks_like_one(shaken).mean() > 0.9


def test_prototypes_are_written_as_they_are_read(tmp_path, monkeypatch):
    known = mnist_judges.prototypes()
    mnist_judges.write_prototypes(known, tmp_path)
    for file in mnist_judges.FOLDER.glob("*.gz"):
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_the_sets_are_pictures_that_repeat(tmp_path):
    files = mnist_judges.write_sets(tmp_path)
    for file in files:
        pictures = np.load(file)
        assert pictures.shape[1:] == (28, 28) and pictures.dtype == np.uint8
    (noise,) = [file for file in files if file.stem == "uniform-noise"]
    assert np.array_equal(np.load(noise), mnist_judges.uniform_noise())
    (one,) = [file for file in files if file.stem == "mnist-1"]
    assert mnist_judges.looks_like_one(np.load(one).reshape(100, -1)).mean() > 0.9
    zero = mnist_judges.digits_scaled_up(0)
    assert zero[:, :2].max() == 0 and zero.max() == 255


def test_what_a_wheel_lacks_is_named(tmp_path, monkeypatch):
    for name in ("FOLDER", "NETWORK"):
        monkeypatch.setattr(mnist_judges, name, tmp_path / "nothing")
    for read in (mnist_judges.prototypes, mnist_judges._network):
        with pytest.raises(UserError, match=r"nothing is missing, since a wheel lacks"):
            read.__wrapped__()
