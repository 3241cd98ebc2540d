"""IDX and CIFAR files: read as they are, and every broken one is one plain message."""

import gzip
import struct

import numpy as np
import pytest
from idx_files import idx, write_mnist

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images import data_sets


def refused(read, *arguments):
    with pytest.raises(UserError) as caught:
        read(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("zipped", [False, True])
def test_mnist_is_read(tmp_path, zipped):
    x, y = write_mnist(tmp_path, 30, zipped=zipped)
    read = data_sets.read_idx_set(tmp_path, "mnist", "test")
    np.testing.assert_array_equal(read.x, x.reshape(30, 784))
    np.testing.assert_array_equal(read.y, y)
    both = read.only(0, 1)
    assert set(both.y) == {0, 1} and len(both) == np.isin(y, [0, 1]).sum()
    only = read.only(1)
    np.testing.assert_array_equal(only.x, x.reshape(30, 784)[y == 1])


def test_emnist_is_put_upright_and_qmnists_labels_have_eight_columns(tmp_path):
    x = np.zeros((2, 28, 28), np.uint8)
    x[:, 3, 20] = 200
    (tmp_path / "emnist-byclass-test-images-idx3-ubyte").write_bytes(idx(x))
    (tmp_path / "emnist-byclass-test-labels-idx1-ubyte").write_bytes(idx(np.array([61, 4], "u1")))
    read = data_sets.read_idx_set(tmp_path, "emnist", "test")
    assert read.x[0].reshape(28, 28)[20, 3] == 200 and list(read.y) == [61, 4]
    as_stored = data_sets.read_idx_set(tmp_path, "emnist-as-stored", "test")
    assert as_stored.x[0].reshape(28, 28)[3, 20] == 200 and list(as_stored.y) == [61, 4]
    (tmp_path / "qmnist-test-images-idx3-ubyte").write_bytes(idx(x))
    labels = np.arange(16, dtype=">i4").reshape(2, 8)
    (tmp_path / "qmnist-test-labels-idx2-int").write_bytes(idx(labels))
    assert list(data_sets.read_idx_set(tmp_path, "qmnist", "test").y) == [0, 8]


def test_broken_idx_files(tmp_path):
    write_mnist(tmp_path, 30)
    images_file = tmp_path / "t10k-images-idx3-ubyte"
    labels_file = tmp_path / "t10k-labels-idx1-ubyte"
    good, labels = images_file.read_bytes(), labels_file.read_bytes()
    said = []
    for content in (
        good[:-1],
        good + b"\0",
        good[:9],
        b"",
        b"\x89PNG" + good,
        labels,
        gzip.compress(good)[:-30],
        idx(np.zeros((3, 27, 28), np.uint8)),
        idx(np.zeros((3, 28, 28), ">f4")),
        idx(np.zeros((29, 28, 28), np.uint8)),
    ):
        images_file.write_bytes(content)
        said.append(refused(data_sets.read_idx_set, tmp_path, "mnist", "test"))
    expected = [
        "cut short", "too long", "cut short in its header", "not an IDX file", "not an IDX file",
        "not images", "gzipped file is cut short", "not images", "not images", "29 images",
    ]  # fmt: skip
    for message, words in zip(said, expected, strict=True):
        assert words in message and str(images_file) in message
    huge = struct.pack(">BBBB3I", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    images_file.write_bytes(huge)
    assert "cut short" in refused(data_sets.read_idx_set, tmp_path, "mnist", "test")
    images_file.write_bytes(good)
    labels_file.write_bytes(good)
    assert "not labels" in refused(data_sets.read_idx_set, tmp_path, "mnist", "test")
    labels_file.unlink()
    missing = refused(data_sets.read_idx_set, tmp_path, "mnist", "test")
    assert "t10k-labels-idx1-ubyte.gz is missing: fetch it (MNIST" in missing


def cifar_records(n, n_labels, seed=0):
    random = np.random.default_rng(seed)
    records = random.integers(0, 256, (n, n_labels + 3072), dtype=np.uint8)
    records[:, :n_labels] = random.integers(0, 10, (n, n_labels))
    return records


def test_cifar_is_read_and_broken_files_are_refused(tmp_path):
    records = cifar_records(10_000, 1)
    file = tmp_path / "test_batch.bin"
    file.write_bytes(records.tobytes())
    read = data_sets.read_cifar(tmp_path, 10, "test")
    picture = data_sets.CIFAR_SHAPE.pixels(read.x[7:8].astype(np.int64))[0]
    np.testing.assert_array_equal(picture[..., 1], records[7, 1 + 1024 : 1 + 2048].reshape(32, 32))
    np.testing.assert_array_equal(read.y, records[:, 0])
    assert "train" not in refused(data_sets.read_cifar, tmp_path, 10, "train")
    assert "data_batch_1.bin is missing: fetch cifar-10-binary.tar.gz" in refused(
        data_sets.read_cifar, tmp_path, 10, "train"
    )
    file.write_bytes(records.tobytes()[:-5])
    assert "cut short" in refused(data_sets.read_cifar, tmp_path, 10, "test")
    file.write_bytes(b"\x80\x04" + bytes(3000))
    assert "is a pickle" in refused(data_sets.read_cifar, tmp_path, 10, "test")
    records[3, 0] = 11
    file.write_bytes(records.tobytes())
    assert "class 11" in refused(data_sets.read_cifar, tmp_path, 10, "test")
    file.unlink()
    (tmp_path / "test_batch").write_bytes(b"\x80\x02}q\x00.")
    assert "pickled version, which is never loaded" in refused(
        data_sets.read_cifar, tmp_path, 10, "test"
    )
    (tmp_path / "test.bin").write_bytes(cifar_records(10_000, 2).tobytes())
    assert data_sets.read_cifar(tmp_path, 100, "test").y.max() == 9
