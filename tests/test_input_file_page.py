"""The page about the input file is the one that the keys' descriptions give."""

from input_file_page import page
from run_tools import ROOT

from omniinput_hpc.config import Config
from omniinput_hpc.config.table import tables_in


def tables(table=Config):
    """Return a table and all that its keys may hold, however deep."""
    inner = [t for field in table.model_fields.values() for t in tables_in(field.annotation)]
    return [table, *(t for one in inner for t in tables(one))]


def test_every_key_is_described():
    assert len(tables()) > 14
    for table in tables():
        for key, field in table.model_fields.items():
            assert field.description, f"{table.__name__}.{key}"


def test_every_key_stands_on_the_page():
    text = page()
    for table in tables():
        for key in table.model_fields:
            assert f"`{key}`" in text or f" {key} = " in text or f"[{key}]" in text or key == "name"


def test_the_page_is_as_the_descriptions_give_it():
    stored = (ROOT / "docs/input-file.md").read_text(encoding="utf-8")
    assert stored == page(), "python tests/helpers/written_pages.py"
