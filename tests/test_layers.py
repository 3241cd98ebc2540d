"""Which room may import which, and which library is imported where (docs/architecture.md)."""

import ast

from run_tools import ROOT

PACKAGE = "omniinput_hpc"
LEAVES = ("errors", "rng", "histogram", "text", "plugins")
COMMANDS = ("__main__", "enumerate", "rescore", "test_sets")
TORCH_FREE_MODELS = (
    "models.custom", "models.input_space", "models.images.files", "models.language.hf_folder",
    "models.language.tokenizer", "models.table", "models.display",
)  # fmt: skip

MAY_IMPORT = {
    **{leaf: ("errors",) for leaf in LEAVES},
    "config": LEAVES,
    "tempering": LEAVES,
    "parallel": LEAVES,
    "estimators": LEAVES,
    "models": (*LEAVES, "config"),
    "runfile": (*LEAVES, "parallel", "config"),
    "kernels": (*LEAVES, "config", "tempering", "models"),
    "sampling": (*LEAVES, "config", "tempering", "parallel", "models", "runfile", "kernels"),
    "annotation": (*LEAVES, "config", "estimators", *TORCH_FREE_MODELS, "runfile.lock"),
    "annotation.judges": (*LEAVES, "config", "estimators", "models", "annotation"),
    "results": (*LEAVES, "config", "estimators", "runfile", "annotation", *TORCH_FREE_MODELS),
    "plots": ("estimators", "results", "models.table"),
    "report": (*LEAVES, "config", "estimators", "runfile", "annotation", "results", "plots"),
    "zoo": (*LEAVES, "config", "tempering", "models", "kernels"),
    "cli": (*LEAVES, "config", "tempering", "parallel", "models", "runfile", "kernels", "sampling",
            "estimators", "annotation", "results", "zoo"),
}  # fmt: skip

LIBRARIES = {
    "mpi4py": ("parallel.comm",),
    "h5py": ("runfile",),
    "pydantic": ("config", "annotation"),
    "torch": ("models", "kernels", "zoo", "annotation.judges", "sampling.walkers",
              "sampling.anchors"),
    "matplotlib": ("plots", "report"),
    "starlette": ("annotation",),
}  # fmt: skip


def within(module, rooms):
    """Whether a module is one of some rooms, or in one."""
    return any(module == room or module.startswith(room + ".") for room in rooms)


def imports(path, package):
    """Yield the full name of whatever a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield from (f"{base}.{alias.name}" for alias in node.names)


def faults(folder=ROOT / PACKAGE):
    """Return a line for each import that the tables above do not allow."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        room = next((r for r in sorted(MAY_IMPORT, key=len, reverse=True) if within(module, [r])),
                    module)  # fmt: skip
        allowed = MAY_IMPORT["cli"] + ("cli",) if room in COMMANDS else MAY_IMPORT.get(room, ())
        for name in imports(path, module):
            library, _, inside = name.partition(".")
            if library == PACKAGE:
                if module and not within(
                    inside, (room, room.partition(".")[0], *allowed, "__version__")
                ):
                    found.append(f"{module} imports {inside}")
            elif library in LIBRARIES and not within(module, LIBRARIES[library]):
                found.append(f"{module} imports {library}")
    return found


def test_rooms_import_what_they_may():
    assert faults() == []
