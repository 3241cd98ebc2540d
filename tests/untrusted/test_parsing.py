"""JSON and TOML of others: limits on depth, on numbers and on how much there is."""

import json
import math
import tomllib

import pytest

from omniinput_hpc.untrusted import parsing
from omniinput_hpc.untrusted.parsing import MAX_DEPTH, depth_of, leaves, parse_json, parse_toml

GOOD_JSON = [
    {"a": [1, -2.5, "x", None, True], "b": {"c": 2**63}},
    18446744073709551615,
    {"model_max_length": 1000000000000000019884624838656},
    int("9" * 300),
    "1" * 3000,
    [1e300, 0.1234567890123456789012345],
]


@pytest.mark.parametrize("value", GOOD_JSON)
def test_json_is_read(value):
    assert parse_json(json.dumps(value).encode()) == value
    assert parse_json(json.dumps(value).encode("utf-16")) == value


def test_constants_of_pythons_json_are_read():
    found = parse_json(b"[NaN, -Infinity]")
    assert math.isnan(found[0]) and found[1] == -math.inf


def nested(n):
    return b"[" * n + b"]" * n


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (nested(MAX_DEPTH + 1), "deeply"),
        (nested(100_000), "deeply"),
        (b'{"a":' * 1000 + b"1" + b"}" * 1000, "deeply"),
        (b'[{"a": %s}]' % nested(MAX_DEPTH - 1), "deeply"),
        (b"1" * 301, "more than 300 digits"),
        (b'{"a": [-%s]}' % (b"1" * 5000), "more than 300 digits"),
        (b"0." + b"1" * 400, "more than 400 characters"),
        ("1".encode("utf-16") + ("1" * 310).encode("utf-16-le"), "more than 300 digits"),
        (b"[" + b"0," * parsing.MAX_JSON_VALUES + b"0]", "more than 8,388,608 values"),
        (b"\xff", "decode"),
        (b"", "Expecting value"),
        (b"[1", "Expecting"),
    ],
)
def test_json_beyond_its_limits_is_a_value_error(text, words):
    with pytest.raises(ValueError, match=words):
        parse_json(text)


def test_the_deepest_json_is_read():
    assert parse_json(nested(MAX_DEPTH)) is not None


def test_toml_is_read():
    text = 'a = -9223372036854775808\nb.c = [1.5, "x"]\n["d.e"."f"]\ng = 2026-01-01\n'
    assert parse_toml(text) == tomllib.loads(text)
    many = "a = [" + "0.0, " * 16_384 + "]"
    assert parse_toml(many) == tomllib.loads(many)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + "1" * 5000, "beyond 64 bits"),
        ("a = " + "1" * 400, "a: a whole number beyond 64 bits"),
        ("[a]\nb = [0x" + "f" * 400_000 + "]", r"a.b\[0\]: a whole number beyond 64 bits"),
        ("a = 9223372036854775808", "beyond 64 bits"),
        ("a = " + "[" * 20_000, "deeply"),
        ("a = " + "[" * 40 + "]" * 40, "deeply"),
        ("a = " + "{b = " * 500 + "1" + "}" * 500, "deeply"),
        ("a." * 100_000 + "a = 1", "deeply"),
        ("".join(f"a{i} = 1\n" for i in range(50_001)), "longer than|more than 50,000 values"),
        ("[" + "a." * 100_000 + "a]", "deeply"),
        ("\"a\" . 'b' ." * 10_000 + "a = 1", "deeply"),
        ("a = 1\n" * 200_000, "longer than"),
        ("a = [" + "0," * 50_001 + "]", "more than 50,000 values"),
        ("a = ", "Invalid value"),
    ],
)
def test_toml_beyond_its_limits_is_a_value_error(text, words):
    with pytest.raises(ValueError, match=words):
        parse_toml(text)


def test_depth_and_leaves():
    value = {"a": [{"b": 1}, 2], "c": {}}
    assert [depth_of(v, 9) for v in (value, [], 1, [[[]]])] == [3, 1, 0, 3]
    assert depth_of([[[[[]]]]], 2) == 3  # counts no further
    assert sorted(leaves(value)) == [("a[0].b", 1), ("a[1]", 2)]


@pytest.mark.parametrize("text", ["a = " + "1" * 5000, "a = " + "[" * 20_000])
def test_without_the_limits_a_reader_fails_otherwise(text):
    """The wrong variant: what tomllib itself raises is none of its own errors."""
    with pytest.raises((ValueError, RecursionError)) as caught:
        tomllib.loads(text)
    assert not isinstance(caught.value, tomllib.TOMLDecodeError)
