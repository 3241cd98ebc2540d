"""The pages: links resolve, commands and flags exist, names are those of the code."""

import contextlib
import functools
import importlib.metadata
import importlib.util
import io
import re
import shlex
import shutil
import subprocess

import nbformat
import numpy as np
import pytest
from run_files import write_run
from run_tools import ROOT, run
from written_pages import PAGE, filled

from omniinput_hpc.cli.omniinput import VERBS, main
from omniinput_hpc.runfile import layout

TOP = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs/llms.txt"]
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md"))]
TEXT = {page: page.read_text(encoding="utf-8") for page in PAGES}
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = ("omniinput", ".venv/bin/omniinput")
PLACEHOLDER = re.compile(r"^(\.\.\.|[A-Z]+(\.[a-z0-9.]+)?|RUN.*|[AB]\.h5|\[.*)$")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page):
    """Return a page without its code blocks."""
    return BLOCK.sub("", TEXT[page])


def anchors(page):
    """Return the anchors that a code host gives to a page's headings."""
    heads = re.findall(r"^#{1,6} (.+)$", prose(page), re.MULTILINE)
    words = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).lower() for head in heads]
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in words}


@pages
def test_links_resolve(page):
    for target in LINK.findall(prose(page)):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(path), f"{page.name}: {target}; has {sorted(anchors(path))}"


def test_every_page_is_linked():
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in PAGES
        for target in LINK.findall(prose(page))
        if target[0] != "#"
    }
    assert [page for page in PAGES[1:] if page not in linked] == []


def split(lines):
    """Yield each command of some lines, as words."""
    for line in lines:
        for part in line.split("&&"):
            words = shlex.split(part, comments=True)
            if words:
                yield words


def typed(text):
    """Yield each command of a page's shell blocks, as words."""
    for language, block in BLOCK.findall(text):
        if language == "sh":
            yield from split(block.replace("\\\n", " ").splitlines())


def commands(page):
    """Yield each command of a page's shell blocks and of its `...` spans, as words."""
    yield from typed(TEXT[page])
    spans = r"`([^`\n]*(?:python -m |omniinput [a-z]|mpirun )[^`\n]*)`"
    yield from split(re.findall(spans, prose(page)))


def not_on_the_path(text):
    """Return the commands of a page that a new shell in a fresh clone does not find."""
    found, activated = [], False
    for words in typed(text):
        activated |= words == ["source", ".venv/bin/activate"]
        if not activated and {"python", "omniinput"} & set(words):
            found.append(" ".join(words))
    return found


@pages
def test_commands_work_when_pasted(page):
    """In a shell of their own, in the repository, after the set-up lines of the page itself."""
    assert not_on_the_path(TEXT[page]) == []


def test_a_command_that_does_not_work_when_pasted_is_found():
    block = "```sh\n{}omniinput reweight runs/a.h5\n```\n"
    assert not_on_the_path(block.format("")) == ["omniinput reweight runs/a.h5"]
    assert not_on_the_path(block.format(".venv/bin/")) == []
    assert not_on_the_path(block.format("source .venv/bin/activate   # once\n")) == []


def test_the_set_up_puts_the_command_on_the_path():
    """`pip` puts the script of the distribution beside its Python."""
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="omniinput")
    assert script.load() is main


@functools.cache
def flags(*program):
    """Return what a program's --help says of its options; offline verbs run in this process."""
    if program[0] == "omniinput" and not VERBS[program[1]].module:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            main([program[1], "--help"])
        text = out.getvalue()
    else:
        done = run(*program[1:] * (program[0] == "omniinput"), "--help")
        assert done.returncode == 0, done.stderr
        text = done.stdout
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text))


def program_of(words):
    """Return the Python program that a command starts, ours only, and its arguments."""
    for index, word in enumerate(words):
        if word == "-m" and words[index + 1].startswith("omniinput_hpc"):
            if (
                words[index + 1] == "omniinput_hpc"
                and "".join(words[index + 2 : index + 3]) in VERBS
            ):
                return ("omniinput", words[index + 2]), words[index + 3 :]
            return ("-m", words[index + 1]), words[index + 2 :]
        if word in COMMAND and re.fullmatch(r"[a-z-]+", "".join(words[index + 1 : index + 2])):
            return ("omniinput", words[index + 1]), words[index + 2 :]
        if re.fullmatch(r"(analysis|tests)/[\w/]+\.py", word) and "pytest" not in words:
            return (word,), words[index + 1 :]
    return None, []


def exists(program):
    name = program[-1]
    if program[0] == "omniinput":
        return name in VERBS
    if program[0] == "-m":
        found = importlib.util.find_spec(name)
        if found is not None and found.submodule_search_locations:
            found = importlib.util.find_spec(f"{name}.__main__")
        return found is not None
    return (ROOT / name).is_file()


@pages
def test_commands_name_what_exists(page):
    """Programs, their files under inputs/, tests/ and jobscripts/, and the analysis's flags."""
    for words in commands(page):
        program, arguments = program_of(words)
        if program is not None:
            assert exists(program), " ".join(words)
            given = [
                w.strip("[]").partition("=")[0] for w in arguments if w.lstrip("[")[:2] == "--"
            ]
            if given and (program[0] == "omniinput" or program[-1] == "omniinput_hpc"):
                assert set(given) <= flags(*program), " ".join(words)
        for word in words:
            local = re.fullmatch(r"(inputs|tests|jobscripts|analysis|docs)/[\w./-]+", word)
            if local and not word.endswith("mine.toml"):
                assert (ROOT / word).exists(), f"{page.name}: {word}"


def importable(name):
    """Whether a dotted name is a module, or something in one."""
    module, _, last = name.rpartition(".")
    inside = importlib.import_module(module)
    return hasattr(inside, last) or importlib.util.find_spec(name) is not None


@pages
def test_modules_and_files_in_the_text_exist(page):
    words = re.findall(r"`([^`\n]+)`", prose(page))
    for word in words:
        if re.fullmatch(r"omniinput_(hpc|zoo)(\.\w+)+", word):
            assert importable(word), f"{page.name}: {word}"
        folders = "omniinput_hpc|omniinput_zoo|inputs|tests|jobscripts|docs"
        rooted = re.fullmatch(rf"((?:{folders})/[\w./-]+)", word)
        if rooted and "my_" not in word and not word.endswith(("mine.toml", "NAME.csv")):
            assert (ROOT / word).exists(), f"{page.name}: {word}"
        if page == PAGE and re.fullmatch(r"[a-z_]+/([\w/]+\.py)?", word) and "my_" not in word:
            assert any((ROOT / top / word).exists() for top in ("omniinput_hpc", ".")), word


def test_the_architecture_page_is_as_the_code_gives_it():
    expected = filled(TEXT[PAGE])
    assert TEXT[PAGE] == expected, ".venv/bin/python tests/helpers/written_pages.py"


def test_every_dataset_and_attribute_is_on_its_page():
    text = TEXT[ROOT / "docs/run-file.md"]
    on_page = set(re.findall(r"^\| `(\w+/\w+)` \|", text, re.MULTILINE))
    some = {"flat": True, "log_q": True, "checksums": True, "curved": True}
    some |= {"rounds_per_block": 2, "headed": True, "n_ids": 3, "observables": ("NAME",)}
    geometry = layout.Geometry(3, 2, 1, 1, 1, 1, 2, 1, **some)
    assert on_page == set(layout.layout(geometry))
    for name, field in layout.layout(geometry).items():
        row = re.search(rf"^\| `{name}` \| \[(.*?)\] \| (.*?) \|", text, re.MULTILINE)
        assert len(row[1].split(",")) == len(field.shape), name
        if not name.endswith("/x") and name != "space/allowed":
            assert row[2] == np.dtype(field.dtype).name, name


def test_every_attribute_of_a_run_is_on_the_page(tmp_path, lattice_toml):
    import h5py

    toml = tmp_path / "a.toml"
    toml.write_text(lattice_toml.format(output=tmp_path / "a.h5"))
    assert run(toml, "--set", "run.rounds=1").returncode == 0
    text = TEXT[ROOT / "docs/run-file.md"]
    with h5py.File(tmp_path / "a.h5", "r") as file:
        for name in file.attrs:
            assert f"`{name}`" in text, name


@pytest.mark.parametrize("page", sorted((ROOT / "docs/results").glob("*.md")), ids=lambda p: p.stem)
def test_every_figure_has_its_command(page):
    if page.name == "README.md":
        return
    text = TEXT[page]
    assert "```sh" in text, f"{page.name} names no command"
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        named = "```sh" in section or re.search(r"`[^`]*(\.py|python -m|omniinput )[^`]*`", section)
        assert named or not re.search(r"\d", section), f"{page.name}: {section.splitlines()[0]}"


def test_the_python_page_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    (tmp_path / "runs").mkdir()
    write_run(tmp_path / "runs/toy.h5")
    monkeypatch.chdir(tmp_path)
    names = {}
    for language, code in BLOCK.findall(TEXT[ROOT / "docs/python-api.md"]):
        assert language == "python"
        exec(compile(code, "docs/python-api.md", "exec"), names)
    assert np.isfinite(names["curve"].aupr.value) and len(names["inputs"]) and len(names["frame"])
    for attribute in ("config_toml", "fingerprint", "burn_in_committed", "model_beta"):
        assert attribute in dir(names["reader"])


def test_the_notebook_installs_where_the_clone_is_all_there_is(monkeypatch):
    """As on Colab, which has torch: that the folder can be imported does not mean that it runs."""
    cells = nbformat.read(ROOT / "docs/notebook.ipynb", as_version=4).cells
    source = next(cell.source for cell in cells if cell.cell_type == "code")
    found, commands = importlib.util.find_spec, []
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "mpi4py" else found(name)
    )
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    exec(source, {})
    assert [command[-1] for command in commands] == [".[mpich]"]


def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    """All its cells in order, from its run with fewer rounds; its format is a notebook's."""
    notebook = nbformat.read(ROOT / "docs/notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(subprocess, "run", without_pip(subprocess.run))
    shutil.copytree(ROOT / "inputs/models/english", tmp_path / "inputs/models/english")
    shutil.copy(ROOT / "inputs/english-25-ancestral.toml", tmp_path / "inputs")
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path / "docs")
    names = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            source = cell.source.replace('24"', '2", "--set", "sampler.steps=1"')
            exec(compile(source, "docs/notebook.ipynb", "exec"), names)
    assert (tmp_path / "runs/english.figure.png").stat().st_size > 10_000
    assert len(names["density"]) and np.isfinite(names["curve"].aupr.value)
    assert "right among them: " in capsys.readouterr().out


def without_pip(run):
    """Return subprocess.run for a machine where everything is installed."""

    def checked(command, **options):
        assert "pip" not in command
        return run(command, **options)

    return checked


def test_python_in_job_scripts_imports_what_exists():
    """`|| true` in a job script would hide an import that fails."""
    found, modules = 0, set()
    for script in (ROOT / "jobscripts").glob("*.s*"):
        modules |= set(re.findall(r"-m (omniinput_hpc[\w.]*\w)", script.read_text()))
        for code in re.findall(r"<<'PYTHON'.*?\n(.*?)^PYTHON$", script.read_text(), re.M | re.S):
            lines = re.findall(r"^(?:from omniinput_hpc|import omniinput_hpc).*$", code, re.M)
            exec("\n".join(lines), {})
            found += len(lines)
    assert found > 1
    assert "omniinput_hpc.cli.committed" in modules
    assert all(exists(("-m", module)) for module in modules), modules
