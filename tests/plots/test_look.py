"""What users choose for figures: names, title and style, where they hold and where they end."""

import shlex
import subprocess
import sys

import matplotlib as mpl
import pytest
from scored_model import a_density

from omniinput_hpc.cli.scripts import run_script
from omniinput_hpc.errors import UserError
from omniinput_hpc.plots import look, style
from omniinput_hpc.plots.density import density_figure
from omniinput_hpc.results.caption import caption_of

STYLE = 'font.size: 17\naxes.prop_cycle: cycler("color", ["#102030", "405060"])\n'


@pytest.fixture
def mine(tmp_path):
    """Return the path of a style file."""
    path = tmp_path / "my.mplstyle"
    path.write_text(STYLE)
    return str(path)


def legend_of(figure):
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_a_label_is_in_the_legend_and_without_one_nothing_changes():
    def draw():
        return density_figure(a_density(1), "z")

    named = legend_of(look.drawn(draw, "GPT-2, small", None, None))
    assert named[0] == "GPT-2, small, ± 1 standard error"
    assert legend_of(draw()) == ["sampled, ± 1 standard error", *named[1:]]


def test_a_style_gives_letters_and_colours_and_ends_with_the_figure(mine):
    before = dict(mpl.rcParams)

    def draw():
        return density_figure(a_density(1), "z")

    plain, styled = draw(), look.drawn(draw, None, None, mine)
    assert [figure.axes[1].xaxis.label.get_size() for figure in (plain, styled)] == [11.0, 17.0]
    colours = [figure.axes[0].containers[0].lines[0].get_color() for figure in (plain, styled)]
    assert colours[0] == style.BLUE
    assert mpl.colors.to_hex(colours[1]) == "#102030"
    assert dict(mpl.rcParams) == before and look.current() == look.Look()


def test_colours_of_a_style_repeat(mine):
    look_of = look.Look(style=look.read_style(mine))
    assert [mpl.colors.to_hex(c) for c in look_of.colours(style.SERIES)] == ["#102030", "#405060"]
    assert look.Look(style=look.read_style("dark_background")).colours("x") != "x"
    assert look.Look().colours(style.SERIES) == style.SERIES


def test_a_saved_figure_has_the_style_of_its_command_only(tmp_path):
    """`savefig.dpi` counts only when the figure is saved."""
    (tmp_path / "fine.mplstyle").write_text("savefig.dpi: 40\n")

    def main(arguments):
        look.use([["a.h5"]], ["A"], "Mine", *arguments)
        style.save(style.blank(2.0, 1.0), tmp_path / "drawn.png", caption_of([]))
        assert caption_of([]).title == "Mine"

    for words, width in ([[], 200], [[str(tmp_path / "fine.mplstyle")], 80]):
        assert run_script(main, words) == 0
        assert mpl.image.imread(tmp_path / "drawn.png").shape[1] == width
        assert look.current() == look.Look()


def test_a_figure_of_two_runs_may_name_the_first_only():
    def named():
        return [look.current().named(default, i) for i, default in enumerate(("one", "two"))]

    found = []
    look.drawn(lambda: found.extend(named()) or style.blank(1.0, 1.0), "x", None, None)
    assert found == ["x", "two"]


def test_one_label_for_each_run():
    with pytest.raises(UserError, match=r"--label: expected one for each run \(2; .*found 1"):
        look.use([["a.h5"], ["b.h5", "c.h5"]], ["A"])
    assert look.current() == look.Look()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            None,
            r"this is neither a file nor a style of matplotlib, which has: .*ggplot",
        ),
        ("font.size: huge\n", "cannot be read: Key font.size"),
        (b"\x89PNG\xff", "cannot be read: 'utf-8' codec"),
        ("some words\n", "has no setting of matplotlib"),
    ],
)
def test_what_is_no_style_is_refused(tmp_path, text, words):
    path = tmp_path / "some.mplstyle"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=words) as told:
        look.use([["a.h5"]], style=str(path))
    assert str(path) in str(told.value) and "\n" not in str(told.value)


def test_no_style_is_fetched_from_the_net():
    with pytest.raises(UserError, match="neither a file nor a style"):
        look.use([["a.h5"]], style="https://example.org/my.mplstyle")


def test_tex_stays_off(tmp_path):
    (tmp_path / "tex.mplstyle").write_text("text.usetex: True\n")
    assert look.read_style(str(tmp_path / "tex.mplstyle")) == look.WITHOUT_TEX


def test_a_reader_that_has_seen_enough_is_no_mistake():
    """As by `omniinput reweight RUN.h5 | head -1`: nothing is said, and the exit code is 0."""
    code = (
        "from omniinput_hpc.cli.scripts import run_script\n"
        "raise SystemExit(run_script(lambda words: print('a line\\n' * 100_000, flush=True), []))"
    )
    head = f"{sys.executable} -c {shlex.quote(code)} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", head], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a line\n", "")
