"""A rule: texts of ten or more words, all of them in a word list."""

import re
from pathlib import Path

from tokenizers import Tokenizer

TOKENIZER = Tokenizer.from_file("inputs/models/smollm2-135m/tokenizer.json")
WORDS = Path("/usr/share/dict/american-english").read_text(encoding="utf-8").splitlines()
DICTIONARY = {word.strip().lower() for word in WORDS}


def english(x):  # int64 [n, 25] -> 0 or 1 each
    """At least ten words, and all of them are in the dictionary."""
    texts = TOKENIZER.decode_batch(x.tolist(), skip_special_tokens=False)
    words = [re.findall(r"[a-z]+(?:'[a-z]+)?", text.lower()) for text in texts]
    return [float(len(some) >= 10 and all(word in DICTIONARY for word in some)) for some in words]
