"""Which room may import which, which library is imported where, and how long things may be.

docs/architecture.md has the same table.
"""

import ast
import functools
import shutil

import pytest
from run_tools import ROOT

PACKAGE, ZOO = "omniinput_hpc", "omniinput_zoo"
"""Modules of the first are named without it below. It never imports the second."""
LEAVES = ("errors", "rng", "histogram", "text", "plugins", "untrusted")
MAX_ROOT_MODULES = 11
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 450, 60, 7
MAX_ROOM_LINES = {
    "annotation": 4550, "api": 500, "cli": 5395, "config": 2600, "estimators": 11420, "export": 470,
    "kernels": 5160, "models": 11575, "parallel": 610, "pilot": 1830, "plots": 1880, "report": 1540,
    "results": 6060, "runfile": 4250, "sampling": 4920, "tempering": 870, "untrusted": 1020,
}  # fmt: skip
"""Lines of a room at most, with the rooms inside it; a change that needs more says why."""
COMMANDS = ("__main__", "enumerate", "init", "rescore", "test_sets")
TORCH_FREE_MODELS = (
    "models.custom", "models.input_space", "models.images.files", "models.language.hf_folder",
    "models.language.tokenizer", "models.table", "models.display", "models.observables",
)  # fmt: skip

MAY_IMPORT = {
    **{leaf: ("errors",) for leaf in LEAVES},
    "config": LEAVES,
    "tempering": LEAVES,
    "parallel": LEAVES,
    "estimators": LEAVES,
    "models": (*LEAVES, "config"),
    "runfile": (*LEAVES, "parallel", "config", "estimators.run_data",
                "estimators.density.rung_weights"),
    "kernels": (*LEAVES, "config", "tempering", "models"),
    "sampling": (*LEAVES, "config", "tempering", "parallel", "models", "runfile", "kernels"),
    "pilot": (*LEAVES, "config", "tempering", "parallel", "models", "runfile", "kernels",
              "sampling", "estimators"),
    "annotation": (*LEAVES, "config", "estimators", *TORCH_FREE_MODELS, "runfile.lock"),
    "annotation.judges": (*LEAVES, "config", "estimators", "models", "annotation"),
    "results": (*LEAVES, "config", "estimators", "runfile", "annotation", *TORCH_FREE_MODELS,
                "plots"),
    "plots": ("errors", "text", "estimators", "models.table"),
    "report": (*LEAVES, "config", "estimators", "runfile", "annotation", "results", "plots"),
    "api": (*LEAVES, "config", "estimators", "runfile", "annotation", "results",
            *TORCH_FREE_MODELS),
    "export": (*LEAVES, "config", "estimators", "runfile", "annotation", "results",
               *TORCH_FREE_MODELS),
    "cli": (*LEAVES, "config", "tempering", "parallel", "models", "runfile", "kernels", "sampling",
            "estimators", "pilot", "annotation", "results"),
    "cli.verbs": (*LEAVES, "config", "estimators", "runfile", "annotation", "results", "plots",
                  "report", "export", *TORCH_FREE_MODELS, "parallel.alone", "cli"),
    ZOO: (*LEAVES, "config", "tempering", "models", "kernels"),
    f"{ZOO}.benchmark": (*LEAVES, "estimators", "runfile", "cli", ZOO),
    f"{ZOO}.census": (*LEAVES, "config", "parallel", "models", "runfile", "kernels", "sampling",
                      "results", "cli"),
    "zoo": (ZOO,),
    "benchmark": (f"{ZOO}.benchmark",),
    "census": (f"{ZOO}.census",),
}  # fmt: skip

LIBRARIES = {
    "mpi4py": ("parallel.comm",),
    "h5py": ("runfile",),
    "pydantic": ("config", "annotation"),
    "torch": ("models", "kernels", ZOO, "annotation.judges", "sampling.walkers",
              "sampling.anchors"),
    "matplotlib": ("plots", "results", "report", "api"),
    "starlette": ("annotation", "report.served"),
    "inspect_ai": ("export", "annotation"),
    "pyarrow": ("export",),
}  # fmt: skip


def within(module, rooms):
    """Whether a module is one of some rooms, or in one."""
    return any(module == room or module.startswith(room + ".") for room in rooms)


def short(name):
    """Return a module's name in the tables: without omniinput_hpc."""
    return "" if name == PACKAGE else name.removeprefix(f"{PACKAGE}.")


def modules(folder=ROOT):
    """Return the path of each module of both packages."""
    paths = (
        path for package in (PACKAGE, ZOO) for path in sorted((folder / package).rglob("*.py"))
    )
    found = {}
    for path in paths:
        parts = path.relative_to(folder).with_suffix("").parts
        found[short(".".join(part for part in parts if part != "__init__"))] = path
    return found


@functools.cache  # by the text: the copies below differ from the packages in a file or two
def names_in(text):
    """Return the full names of whatever a module imports, and the modules of the zoo it names."""
    imported, zoo = [], []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported += [f"{node.module or ''}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and str(node.value).startswith(ZOO):
            zoo.append(str(node.value))
    return imported, zoo


def imports(path):
    """Return the full name of whatever a file imports."""
    return names_in(path.read_text(encoding="utf-8"))[0]


def faults(folder=ROOT):
    """Return a line for each import that the tables above do not allow."""
    found = []
    for module, path in modules(folder).items():
        room = next((r for r in sorted(MAY_IMPORT, key=len, reverse=True) if within(module, [r])),
                    module)  # fmt: skip
        allowed = MAY_IMPORT["cli"] + ("cli",) if room in COMMANDS else MAY_IMPORT.get(room, ())
        for name in imports(path):
            library, inside = name.partition(".")[0], short(name)
            if library == ZOO or (library == PACKAGE and module):
                if not within(inside, (room, room.partition(".")[0], *allowed)):
                    found.append(f"{module} imports {inside}")
            elif library in LIBRARIES and not within(module, LIBRARIES[library]):
                found.append(f"{module} imports {library}")
    return found


def modules_that_name_the_zoo(folder=ROOT):
    """Return the modules of omniinput_hpc with a string that names a module of omniinput_zoo."""
    return {
        module
        for module, path in modules(folder).items()
        if not within(module, [ZOO]) and names_in(path.read_text(encoding="utf-8"))[1]
    }


def circles(folder=ROOT):
    """Return the groups of modules that import each other, imports inside functions included."""
    paths = modules(folder)

    def inside(name):
        module = short(name)
        while module and module not in paths:
            module = module.rpartition(".")[0]
        return module

    reached = {
        module: {inside(n) for n in imports(path) if n.split(".")[0] in (PACKAGE, ZOO)}
        - {module, ""}
        for module, path in paths.items()
    }
    for middle in reached:  # Warshall's algorithm
        for module in reached:
            if middle in reached[module]:
                reached[module] |= reached[middle]
    return {tuple(sorted(b for b in reached[a] if a in reached[b])) for a in reached} - {()}


def oversized(folders=(ROOT / PACKAGE, ROOT / ZOO, ROOT / "analysis")):
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


def room_lines(package=ROOT / PACKAGE):
    """Return the number of lines of each room that has a limit."""
    return {
        room: sum(len(path.read_bytes().splitlines()) for path in (package / room).rglob("*.py"))
        for room in MAX_ROOM_LINES
    }


def parameters(arguments):
    """Return the names of a function's parameters, but self and cls."""
    some = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    stars = [star for star in (arguments.vararg, arguments.kwarg) if star is not None]
    return [a.arg for a in (*some, *stars) if a.arg not in ("self", "cls")]


def copied(folder):
    """Copy both packages into a folder; return the copy of omniinput_hpc."""
    for package in (PACKAGE, ZOO):
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return folder / PACKAGE


def test_rooms_import_what_they_may():
    assert faults() == []


def test_only_the_command_line_names_modules_of_the_zoo():
    """`faults` finds imports, this the modules that are imported by name."""
    assert modules_that_name_the_zoo() == {"cli.omniinput"}


def test_a_module_that_names_the_zoo_is_found(tmp_path):
    with (copied(tmp_path) / "sampling/build.py").open("a") as file:
        file.write('\nLATE = "omniinput_zoo.exact"\n')
    assert modules_that_name_the_zoo(tmp_path) == {"cli.omniinput", "sampling.build"}


PLANTED = {
    "tempering/ladder.py": ("from omniinput_hpc.runfile import layout", "imports runfile.layout"),
    "estimators/run_data.py": ("import torch", "imports torch"),
    "sampling/loop.py": ("    import h5py", "imports h5py"),
    "config/method.py": ("from omniinput_hpc.models.table import build", "imports models.table"),
    "cli/common.py": ("from omniinput_hpc import plots", "imports plots"),
    "__init__.py": ("from omniinput_zoo import toy", "imports omniinput_zoo.toy"),
    "sampling/build.py": ("    from omniinput_zoo import exact", "imports omniinput_zoo.exact"),
    "kernels/state.py": ("from omniinput_hpc.zoo import exact", "imports zoo.exact"),
}


@pytest.mark.slow
@pytest.mark.parametrize("file", PLANTED)
def test_a_forbidden_import_is_found(tmp_path, file):
    line, words = PLANTED[file]
    copy = copied(tmp_path)
    text = (copy / file).read_text(encoding="utf-8")
    if line.startswith(" "):  # inside a function
        line = f"def planted():\n{line}"
    (copy / file).write_text(f"{text}\n{line}\n", encoding="utf-8")
    (found,) = set(faults(tmp_path)) - set(faults())
    assert words in found


def test_no_modules_import_each_other():
    assert circles() == set()


def test_a_circle_is_found(tmp_path):
    copied(tmp_path)
    with (tmp_path / PACKAGE / "text.py").open("a") as file:
        file.write("\ndef late():\n    from omniinput_hpc.tempering import ladder\n")
    with (tmp_path / PACKAGE / "tempering/ladder.py").open("a") as file:
        file.write("\nfrom omniinput_hpc.tempering import bridge\n")
    with (tmp_path / PACKAGE / "tempering/bridge.py").open("a") as file:
        file.write("\nfrom omniinput_hpc.text import amount\n")
    assert circles(tmp_path) == {("tempering.bridge", "tempering.ladder", "text")}


def test_files_functions_and_parameter_lists_are_within_their_limits():
    assert oversized() == []
    at_root = [path.name for path in (ROOT / PACKAGE).glob("*.py")]
    assert len(at_root) <= MAX_ROOT_MODULES, at_root


def test_rooms_are_within_their_limits():
    over = {room: n for room, n in room_lines().items() if n > MAX_ROOM_LINES[room]}
    assert over == {}
    inner = {name for name in MAY_IMPORT if "." in name or name in ("zoo", "benchmark", "census")}
    folders = {path.parent.name for path in (ROOT / PACKAGE).glob("*/__init__.py")}
    assert MAX_ROOM_LINES.keys() == folders - inner


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
