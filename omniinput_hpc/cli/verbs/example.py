"""Copy an example to the current folder: an input file, its model, and its exact density."""

from __future__ import annotations

import argparse
from pathlib import Path

from omniinput_hpc.cli.arguments import new_parser
from omniinput_hpc.errors import UserError

EXAMPLES = Path(__file__).parents[2] / "examples"
"""One folder per example, with the files as they lie in the repository."""


def main(arguments: list[str], program: str = "example.py") -> None:
    """Copy the files, and print their names and the commands that use them."""
    parser = new_parser(program, __doc__, "toy", more="", kind=argparse.ArgumentParser)
    names = sorted(folder.name for folder in EXAMPLES.iterdir())
    parser.add_argument("name", choices=names, help="name of the example")
    name = parser.parse_args(arguments).name
    for path in copy(EXAMPLES / name, Path()):
        print(path)
    print(
        f"next: omniinput run inputs/{name}.toml\n"
        f"then: omniinput reweight runs/{name}.h5 --exact inputs/exact/{name}.csv"
    )


def copy(folder: Path, into: Path) -> list[Path]:
    """Copy all files of a folder and return their new paths; files that are there stay.

    Raises
    ------
    UserError
        One of them is there with another content. Nothing is copied then.
    """
    content = {
        into / path.relative_to(folder): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    for path, data in content.items():
        if path.exists() and (not path.is_file() or path.read_bytes() != data):
            raise UserError(f"{path} exists and is another file: move it, or use another folder")
    for path, data in content.items():
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return list(content)
