"""What is masked, what is not, and that hostile text does not take long."""

import time

import pytest

from omniinput_hpc.results.redact import mask


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mail ann.b@example.com now", "mail [e-mail] now"),
        ("mail ann @ mail . example . org", "mail [e-mail]"),
        ("ann+x(at)example.com", "[e-mail]"),
        ("call (555) 123-4567.", "call [phone]."),
        ("call +1 555 123 4567", "call [phone]"),
        ("call 555-1234 or 5551234567", "call [phone] or [phone]"),
        ("Tel: +49-30-1234-5678", "Tel: [phone]"),
        ("at 12 Main St. in", "at [address] in"),
        ("1600 Pennsylvania Avenue NW", "[address] NW"),
        ("221b Baker Street", "[address]"),
        ("on 12 main street", "on [address]"),
        ("P.O. Box 1234, Ohio", "[address], Ohio"),
        ("in der Hauptstra\u00dfe 12", "in der [address]"),
    ],
)
def test_masked(text, shown):
    assert mask(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "", "in 1984 and 2001", "from 1990-1995", "on 2014-05-06", "06.05.2014", "pi is 3.14159265",
        "1,000,000 people", "a @ b", "12 people on the way", "5 years in place", "x1234567y",
        "version 1.2.3", "[0, 1, 2, 3]", "@home",
    ],
)  # fmt: skip
def test_not_masked(text):
    assert mask(text) == text


@pytest.mark.parametrize("part", ["a.", "1 ", "1-", "12 Aa ", "a@a.", "(12) "])
def test_long_text_is_masked_in_time(part):
    begin = time.process_time()
    mask(part * (20_000 // len(part)))
    assert time.process_time() - begin < 2.0
