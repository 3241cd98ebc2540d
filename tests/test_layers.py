"""Which room may import which, which library is imported where, and how long things may be.

docs/architecture.md has the same table.
"""

import ast
import shutil

import pytest
from run_tools import ROOT

PACKAGE = "omniinput_hpc"
LEAVES = ("errors", "rng", "histogram", "text", "plugins", "untrusted")
MAX_ROOT_MODULES = 11
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 450, 60, 7
COMMANDS = ("__main__", "enumerate", "init", "rescore", "test_sets")
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
    "pilot": (*LEAVES, "config", "tempering", "parallel", "models", "runfile", "kernels",
              "sampling", "estimators"),
    "annotation": (*LEAVES, "config", "estimators", *TORCH_FREE_MODELS, "runfile.lock"),
    "annotation.judges": (*LEAVES, "config", "estimators", "models", "annotation"),
    "results": (*LEAVES, "config", "estimators", "runfile", "annotation", *TORCH_FREE_MODELS),
    "plots": ("estimators", "results", "models.table"),
    "report": (*LEAVES, "config", "estimators", "runfile", "annotation", "results", "plots"),
    "api": (*LEAVES, "config", "estimators", "runfile", "annotation", "results", "plots",
            *TORCH_FREE_MODELS),
    "zoo": (*LEAVES, "config", "tempering", "models", "kernels"),
    "cli": (*LEAVES, "config", "tempering", "parallel", "models", "runfile", "kernels", "sampling",
            "estimators", "pilot", "annotation", "results", "zoo"),
    "cli.verbs": (*LEAVES, "config", "estimators", "runfile", "annotation", "results", "plots",
                  "report", *TORCH_FREE_MODELS, "parallel.alone", "cli"),
    "benchmark": (*LEAVES, "estimators", "runfile", "zoo", "cli"),
    "census": (*LEAVES, "config", "parallel", "models", "runfile", "kernels", "sampling", "results",
               "cli"),
}  # fmt: skip

LIBRARIES = {
    "mpi4py": ("parallel.comm",),
    "h5py": ("runfile",),
    "pydantic": ("config", "annotation"),
    "torch": ("models", "kernels", "zoo", "annotation.judges", "sampling.walkers",
              "sampling.anchors"),
    "matplotlib": ("plots", "report", "api"),
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
        module = module_of(path, folder)
        room = next((r for r in sorted(MAY_IMPORT, key=len, reverse=True) if within(module, [r])),
                    module)  # fmt: skip
        allowed = MAY_IMPORT["cli"] + ("cli",) if room in COMMANDS else MAY_IMPORT.get(room, ())
        for name in imports(path, module):
            library, _, inside = name.partition(".")
            if library == PACKAGE:
                if module and not within(inside, (room, room.partition(".")[0], *allowed)):
                    found.append(f"{module} imports {inside}")
            elif library in LIBRARIES and not within(module, LIBRARIES[library]):
                found.append(f"{module} imports {library}")
    return found


def circles(folder=ROOT / PACKAGE):
    """Return the groups of modules that import each other, imports inside functions included."""
    paths = {module_of(path, folder): path for path in folder.rglob("*.py")}

    def inside(name):
        _, _, module = name.partition(".")
        while module and module not in paths:
            module = module.rpartition(".")[0]
        return module

    reached = {
        module: {inside(name) for name in imports(path, module) if name.split(".")[0] == PACKAGE}
        - {module, ""}
        for module, path in paths.items()
    }
    for middle in reached:  # Warshall's algorithm
        for module in reached:
            if middle in reached[module]:
                reached[module] |= reached[middle]
    return {tuple(sorted(b for b in reached[a] if a in reached[b])) for a in reached} - {()}


def module_of(path, folder):
    """Return a file's module within the package, "" for the package itself."""
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def oversized(folders=(ROOT / PACKAGE, ROOT / "analysis")):
    """Return a line for each file, function and parameter list that is over its limit."""
    found = []
    for path in (path for folder in folders for path in sorted(folder.rglob("*.py"))):
        text = path.read_text(encoding="utf-8")
        sizes = [(path.name, len(text.splitlines()), MAX_FILE_LINES, "lines")]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{path.name}: {node.name}"
                lines = node.end_lineno - node.lineno + 1
                sizes.append((name, lines, MAX_FUNCTION_LINES, "lines"))
                sizes.append((name, len(parameters(node.args)), MAX_PARAMETERS, "parameters"))
        found += [f"{name} has {n} {what}" for name, n, limit, what in sizes if n > limit]
    return found


def parameters(arguments):
    """Return the names of a function's parameters, but self and cls."""
    some = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    stars = [star for star in (arguments.vararg, arguments.kwarg) if star is not None]
    return [a.arg for a in (*some, *stars) if a.arg not in ("self", "cls")]


def test_rooms_import_what_they_may():
    assert faults() == []


PLANTED = {
    "tempering/ladder.py": ("from omniinput_hpc.runfile import layout", "imports runfile.layout"),
    "estimators/run_data.py": ("import torch", "imports torch"),
    "sampling/loop.py": ("    import h5py", "imports h5py"),
    "config/method.py": ("from omniinput_hpc.models.table import build", "imports models.table"),
    "cli/common.py": ("from omniinput_hpc import plots", "imports plots"),
}


@pytest.mark.slow
@pytest.mark.parametrize("file", PLANTED)
def test_a_forbidden_import_is_found(tmp_path, file):
    line, words = PLANTED[file]
    copy = shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE)
    text = (copy / file).read_text(encoding="utf-8")
    if line.startswith(" "):  # inside a function
        line = f"def planted():\n{line}"
    (copy / file).write_text(f"{text}\n{line}\n", encoding="utf-8")
    (found,) = set(faults(copy)) - set(faults())
    assert words in found


def test_no_modules_import_each_other():
    assert circles() == set()


def test_a_circle_is_found(tmp_path):
    shutil.copytree(
        ROOT / PACKAGE, tmp_path / PACKAGE, ignore=shutil.ignore_patterns("__pycache__")
    )
    with (tmp_path / PACKAGE / "text.py").open("a") as file:
        file.write("\ndef late():\n    from omniinput_hpc.tempering import ladder\n")
    with (tmp_path / PACKAGE / "tempering/ladder.py").open("a") as file:
        file.write("\nfrom omniinput_hpc.tempering import bridge\n")
    with (tmp_path / PACKAGE / "tempering/bridge.py").open("a") as file:
        file.write("\nfrom omniinput_hpc.text import amount\n")
    assert circles(tmp_path / PACKAGE) == {("tempering.bridge", "tempering.ladder", "text")}


def test_files_functions_and_parameter_lists_are_within_their_limits():
    assert oversized() == []
    at_root = [path.name for path in (ROOT / PACKAGE).glob("*.py")]
    assert len(at_root) <= MAX_ROOT_MODULES, at_root


def test_what_is_over_a_limit_is_found(tmp_path):
    many = ", ".join(f"a{i}" for i in range(MAX_PARAMETERS))
    (tmp_path / "small.py").write_text(f"class A:\n    def f(self, {many}):\n        pass\n")
    assert oversized([tmp_path]) == []
    lines = "\n".join("    pass" for _ in range(MAX_FUNCTION_LINES))
    (tmp_path / "long.py").write_text(f"def f({many}, *rest):\n{lines}\n" + "\n" * MAX_FILE_LINES)
    assert oversized([tmp_path]) == [
        f"long.py has {MAX_FILE_LINES + MAX_FUNCTION_LINES + 1} lines",
        f"long.py: f has {MAX_FUNCTION_LINES + 1} lines",
        f"long.py: f has {MAX_PARAMETERS + 1} parameters",
    ]
