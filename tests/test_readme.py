"""README is one page; the input files of the pages on one's own models run as printed."""

import re

import pytest
from run_tools import LATTICE, ROOT, assert_same
from run_tools import run as run_apart

from omniinput_hpc.cli import run
from omniinput_hpc.config import input_file
from omniinput_hpc.results.tables import read_table
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.sampling import trial

README = (ROOT / "README.md").read_text(encoding="utf-8")
OWN = (ROOT / "docs/own-model.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")


def block(text, language, after):
    return re.search(rf"```{language}\n(.*?)```", text[text.index(after) :], re.DOTALL).group(1)


def test_it_is_one_page():
    lines = README.splitlines()
    assert len(lines) <= 130
    words = len(re.findall(r"\w+", README))
    assert words < 2500, words


def test_a_model_of_your_own_passes_the_check_as_printed(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(trial, "BATCH_SECONDS", 0.0)  # to be quick
    toml = tmp_path / "my.toml"
    toml.write_text(block(OWN, "toml", "# A model of your own"))
    code = run.main([str(toml), "--check", "--set", f"run.output={tmp_path / 'my.h5'}"])
    text = "".join(capfd.readouterr())
    assert code == 0, text
    assert "12 rungs" in text and "beta 0 to 24" in text


def test_the_example_is_the_run_whose_figures_are_stated(tmp_path):
    """The page's minutes, picture and verdict are those of inputs/english-25.toml."""
    toml = tmp_path / "my.toml"
    toml.write_text(block(OWN, "toml", "# A model of your own"))
    stated = ["run.output='runs/my.h5'"]
    assert input_file.load(toml, []) == input_file.load(ROOT / "inputs/english-25.toml", stated)


def test_one_block_is_the_cluster():
    """Its command, and its cost is that of the input file's header."""
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    (cluster,) = [block for block in blocks if "mpirun" in block]
    assert "sbatch --ntasks=64 jobscripts/run.sbatch inputs/olmo7b.toml\n" in cluster
    assert "mpirun -n 64 python -m omniinput_hpc inputs/olmo7b.toml" in cluster
    header = (ROOT / "inputs/olmo7b.toml").read_text(encoding="utf-8").partition("[run]")[0]
    cost = re.search(r"# Cost: [^:]*: (.+?)\.\n", header)[1]
    assert cost in README
    config = input_file.load(ROOT / "inputs/olmo7b.toml", [])
    assert len(config.beta_k) * config.sampler.blocks % 64 == 0


def test_a_first_look_does_not_spoil_the_run(tmp_path, monkeypatch, capfd):
    """As printed it has a file of its own; in the real run's file the real run is refused."""
    given = re.findall(r"--set (\S+)", re.search(r"local\.sh my\.toml (--set .*)", OWN)[1])
    toml = tmp_path / "my.toml"
    toml.write_text(block(OWN, "toml", "# A model of your own"))
    looked, real = input_file.load(toml, given), input_file.load(toml, [])
    assert looked.run.output != real.run.output
    (tmp_path / "a.toml").write_text(LATTICE.format(output=tmp_path / "a.h5"))
    words = [f"--set={word}" for word in given if "output" not in word]
    monkeypatch.chdir(tmp_path)
    assert run.main(["a.toml", *words]) == 0
    before = (tmp_path / "a.h5").read_bytes()
    assert run.main(["a.toml"]) == 2
    assert "holds another run" in "".join(capfd.readouterr())
    assert (tmp_path / "a.h5").read_bytes() == before
    more = ["--set=run.rounds=5", *words[1:]]
    assert "rounds" in words[0]
    assert run.main(["a.toml", *more]) == 0


@pytest.mark.slow
def test_the_model_of_the_tutorial_runs_as_printed(tmp_path):
    code = block(TUTORIAL, "python", "### A model that is not from Hugging Face")
    assert len(code.strip().splitlines()) <= 15
    change = block(TUTORIAL, "python", "If z is a sum of terms")
    toml = block(TUTORIAL, "toml", "### A model that is not from Hugging Face")
    with_change = code.replace("\n\n\ndef make", f"\n\n{change.rstrip()}\n\n\ndef make")
    assert "def change" in with_change
    for name, model in (("plain", code), ("with-change", with_change)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "my_model.py").write_text(model)
        (tmp_path / name / "my_model.toml").write_text(toml)
        done = run_apart("my_model.toml", cwd=tmp_path / name)
        assert done.returncode == 0, done.stderr
        with open_run(tmp_path / name / "runs/my_model.h5") as made:
            assert made.rounds == 20
            assert made.outside_k2().sum() == 0
    assert_same(*(tmp_path / name / "runs/my_model.h5" for name in ("plain", "with-change")))


def ranges_of(text):
    """Return width and range of a text's examples of omniinput choose on the Toy's run."""
    words = r"runs/toy\.h5 (?:--per-bin \d+ )?--width (\S+) --range (\S+) ([\d.]+)"
    return [tuple(map(float, found)) for found in re.findall(words, text)]


def test_inputs_chosen_from_the_toy_make_a_curve():
    """The examples' bins are whole bins of the run, and two or more of them hold right inputs."""
    unit = input_file.load(ROOT / "inputs/toy.toml", []).bins.width
    _, exact = read_table(ROOT / "inputs/exact/toy.csv", ["z_lower", "r"])
    right = exact["z_lower"][exact["r"] > 0.5]
    names = ("docs/tutorial.md", "docs/scoring.md", "omniinput_hpc/cli/verbs/choose.py")
    for name in names:
        found = ranges_of((ROOT / name).read_text(encoding="utf-8"))
        assert found, name
        for width, low, high in found:
            for size in (width, low, high - low):
                assert abs(size / unit - round(size / unit)) < 1e-6, name
            bins = {int((z - low + 1e-9) // width) for z in right if low <= z + 1e-9 < high}
            assert len(bins) >= 2, name
