"""Representative inputs: by weight from all rungs, in bins of the run; tables; pictures."""

import base64
import io
import json
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from configs import config_with
from matplotlib.image import imsave
from run_files import write_run
from scored_model import BETA_K, FINE, MODEL, independent_run
from task_files import KEY_HEADER

from omniinput_hpc.annotation.drawing import draw_independently
from omniinput_hpc.annotation.tasks import KeyItem, Task, key_path, write_key, write_tasks
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.density import Density, density_of_run
from omniinput_hpc.estimators.density.wide_bins import edges_for
from omniinput_hpc.plots.look import Caption
from omniinput_hpc.plots.style import save
from omniinput_hpc.results import representatives
from omniinput_hpc.results.representatives import (
    Representative,
    Representatives,
    RepresentativesResult,
    choose_inputs,
    pictures_at_ends,
)
from omniinput_hpc.results.tables import table_text
from omniinput_hpc.runfile.reader import RunReader, open_run

EDGES = FINE[3:24:5]  # bins of five levels
DRAWS = 3000


@pytest.fixture(scope="module")
def run():
    return independent_run(MODEL, BETA_K, FINE, seed=1, rounds=8, walkers=16, moves=40)


def levels(run, density):
    """Return the share of each level among a bin's draws, and the exact one, by bin."""
    count_l, found = MODEL.count_l(), draw_independently(run, density, EDGES, DRAWS, seed=2)
    got_l = np.zeros(len(count_l))
    for item in found:
        assert EDGES[item.bin] <= item.z < EDGES[item.bin + 1]
        assert float(MODEL.z(item.values)) == item.z
        got_l[round(item.z / MODEL.unit)] += item.draws
    level_bl = 3 + np.arange(20).reshape(4, 5)
    assert (got_l[level_bl].sum(axis=1) == DRAWS).all()
    return got_l[level_bl] / DRAWS, count_l[level_bl] / count_l[level_bl].sum(axis=1)[:, None]


def test_levels_are_drawn_as_the_space_holds_them(run, monkeypatch):
    density = density_of_run(run.data)
    got_bl, exact_bl = levels(run, density)
    # 640 samples a rung: shares are known to a few percent of themselves
    assert np.abs(got_bl - exact_bl).max() < 0.05
    # without weights: as the rungs see them
    monkeypatch.setattr(Density, "log_mixture", lambda self, z_i, *_: np.zeros(len(z_i)))
    wrong_bl, _ = levels(run, density)
    assert np.abs(wrong_bl - exact_bl).max() > 0.15


def test_edges(run):
    density = density_of_run(run.data)
    np.testing.assert_allclose(edges_for(density, (0.9, 3.1), 0.5), FINE[[4, 6, 8, 10, 12, 13]])
    every = edges_for(density)
    assert len(every) <= 13 and every[0] == FINE[np.flatnonzero(density.count_b)[0]]
    assert set(every) <= set(FINE)
    for bad in (((50.0, 60.0), None), (None, 0.01), ((2.0, 1.0), None)):
        with pytest.raises(EstimateError):
            edges_for(density, *bad)
    for width in (np.nan, np.inf, -1.0, 0.0):
        with pytest.raises(EstimateError, match="give a width above 0"):
            edges_for(density, None, width)
    # 0.6 is no multiple of 0.25: what was taken is said
    found = representatives.representatives(run, density, edges_for(density, (0.9, 3.1), 0.6), 2)
    assert found.how_drawn == "2 draws per bin of width 0.5, in proportion to weight"
    with pytest.raises(UserError, match="no recorded samples"):
        draw_independently(run, density, np.array([50.0, 51.0]), 5)


def some(kind, words):
    items = [
        Representative(i % 2, float(i % 2) + 0.5, word, 1 + i % 2, np.arange(3), 0.5)
        for i, word in enumerate(words)
    ]
    return Representatives(kind, None, "a note", "a law", np.array([0.0, 1.0, 2.0]), items)


def figure_of(found, names=("run",)):
    runs = [SimpleNamespace(config=config_with(model={"kind": "python", "factory": "a:b"}))]
    return RepresentativesResult(runs * len(found), [], found, "high", True, names=names).figure()


def test_pictures_of_any_text(tmp_path):
    words = [
        "$x_1$ and \\frac{",
        "\u4e2d\u6587 \U0001f600 \x07\n\u202ex",
        "",
        "long " * 300,
        "W" * 200,
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a glyph that the font lacks
        figure = figure_of([some("text", words)])
        save(figure, tmp_path / "a.png")
    drawn = [text.get_text() for text in figure.axes[0].texts]
    assert "1 to 2" in drawn and any("<U+4E2D><U+6587>" in line for line in drawn)
    assert any(line.startswith("$x_1$") for line in drawn) and "(no text)" in drawn
    assert drawn.index("1 to 2") < drawn.index("0 to 1")  # from the confident end on
    renderer = figure.canvas.get_renderer()
    edge = figure.bbox.width
    assert max(text.get_window_extent(renderer).x1 for text in figure.axes[0].texts) < edge
    save(figure, tmp_path / "a.png", Caption("a run of a long name " * 6))  # two lines
    tops = [text.get_window_extent(renderer).y1 for text in figure.axes[0].texts]
    (title,) = figure.texts
    assert len(title.get_text().splitlines()) == 4
    assert title.get_window_extent(renderer).y0 > max(tops), "the head stands above all texts"


def test_a_table_is_a_line_per_input():
    words = ['a "quoted", one', "=cmd()|'x'\nsecond line", "plain"]
    lines = table_text(some("text", words).columns(with_values=True)).splitlines()
    assert len(lines) == 1 + len(words)
    assert lines[0] == "z_lower,z_upper,z,draws,score,text,values"
    assert lines[2] == '1,2,1.5,2,0.5,"""=cmd()|\'x\'\\nsecond line""",0 1 2'
    images = replace(some("image", ["data:..."]))
    assert list(images.columns(with_values=False))[-2:] == ["draws", "score"]


def test_lists_of_tokens_are_drawn_whole_and_are_json_in_the_table(tmp_path):
    tokens = ["[CLS]", "it's", "##ing", " the", "\n", *(f"word{i}" for i in range(60)), "[SEP]"]
    found = some("text", ["one text", "another"])
    listed = replace(found, items=[replace(item, tokens=tokens) for item in found.items])
    figure = figure_of([listed])
    save(figure, tmp_path / "a.png")
    drawn = [text.get_text() for text in figure.axes[0].texts]
    lines = [line for line in drawn if "word" in line or "SEP" in line]
    assert lines[0].startswith("""['[CLS]', "it's", '##ing', '\xa0the', '\\n',""")
    assert all(line.endswith(("',", "']")) for line in lines), "broken between tokens"
    assert " ".join(lines).count("'[SEP]']") == 2 and "[...]" not in drawn
    rows = listed.columns(with_values=True)
    assert list(rows)[-3:] == ["text", "tokens", "values"]
    assert json.loads(rows["tokens"][0]) == tokens and json.loads(rows["text"][0]) == "one text"
    assert "tokens" not in found.columns(with_values=True)


def test_tokens_need_a_tokenizer(run):
    density = density_of_run(run.data)
    found = representatives.representatives(run, density, edges_for(density), 2)
    with pytest.raises(UserError, match="--tokens requires a language model"):
        representatives.with_tokens(found, run.config)


def test_pictures_of_two_runs_share_rows(tmp_path):
    file = io.BytesIO()
    imsave(file, np.eye(4), format="png")
    uri = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    first, second = some("image", [uri] * 5), some("image", [uri] * 3)
    figure = figure_of([first, second], ["gwg", "metropolis"])
    save(figure, tmp_path / "a.png")
    shown = [axes for axes in figure.axes if axes.images]
    assert len(shown) == 8
    where = {name: box_of(figure, name) for name in ("gwg", "metropolis")}
    rows = {round(axes.get_position().y0, 3) for axes in shown}
    assert len(rows) == 2 and where["gwg"].x0 < where["metropolis"].x0
    middle = where["metropolis"].x0 / figure.bbox.width
    left = [axes for axes in shown if axes.get_position().x1 < middle]
    assert len(left) == 5, "the first run's pictures stand left of the second's name"
    labels = [t.get_text() for axes in figure.axes for t in axes.texts]
    assert labels.count("1 to 2") == labels.count("0 to 1") == 1


def box_of(figure, words):
    """Return where a text stands, in pixels."""
    (found,) = [t for axes in figure.axes for t in axes.texts if t.get_text() == words]
    return found.get_window_extent()


def test_an_output_is_written_to_a_tenth_of_its_bin():
    for z, width, text in [
        (-14884.3, 50.0, "-14884"), (17.14, 4.3, "17.1"), (-0.0775, 4.3, "-0.1"),
        (-0.02, 4.3, "0.0"), (0.5437, 0.25, "0.54"), (3.14159, 0.1, "3.14"),
        (1.00004, 0.0016, "1.0000"),
    ]:  # fmt: skip
        item = Representative(0, z, "", 1, np.zeros(1, dtype=np.int64))
        edges = z + width * np.array([-0.5, 0.5])
        assert Representatives("text", None, "", "", edges, [item]).z_text(item) == text
    at_the_end = Representatives("text", None, "", "", np.array([0.85, 2.17]), [item])
    item = Representative(0, 2.168, "", 1, np.zeros(1, dtype=np.int64))
    assert at_the_end.z_text(item) == "2.17"  # 2.2 would lie outside its bin


def test_low_middle_and_high_are_different_inputs_from_those_places():
    z = np.linspace(0.0, 100.0, 1001)
    x = np.repeat(np.arange(1001)[:, None], 3, axis=1)
    twice_x, twice_z = np.concatenate([x, x]), np.concatenate([z, z])
    chosen = choose_inputs(twice_x, twice_z, 4)
    for place, (low, high) in zip(chosen, ((0, 2), (48, 52), (98, 100)), strict=True):
        assert len({int(twice_x[i, 0]) for i in place}) == 4
        assert (twice_z[place] >= low).all() and (twice_z[place] <= high).all()
    few = choose_inputs(x[::500], z[::500], 4)
    assert [len(place) for place in few] == [3, 3, 3]  # no more than there are


IMAGES = 'kind = "image-classifier"\npath = "{path}"{more}'


def image_run(folder, more="", **options):
    """Write a run whose 8 sites of 4 values are grey pictures of 2 x 4."""
    model = folder / "model"
    model.mkdir(exist_ok=True)
    shape = {"height": 2, "width": 4, "channels": 1, "n_values": 4}
    text = {"architecture": "mlp", **shape, "n_outputs": 1, "size": 3}
    (model / "model.json").write_text(json.dumps(text))
    table = IMAGES.format(path=model, more=more)
    return write_run(folder / "run.h5", walkers=16, model=table, **options)


def test_pictures_at_the_ends_are_recorded_inputs(tmp_path, monkeypatch):
    whole = image_run(tmp_path, rounds=6)
    with open_run(tmp_path / "run.h5") as run:
        chosen = pictures_at_ends(run, 3)
        assert pictures_at_ends(run, 0) == []
        z = [[z for z, _ in place] for place in chosen]
        assert min(z[0]) == whole.z_rks.min() and max(z[2]) == whole.z_rks.max()
        for value, picture in (pair for place in chosen for pair in place):
            x = np.rint(picture.ravel() / 85.0)
            same = (whole.x_rksd == x).all(axis=-1)
            assert picture.shape == (2, 4) and value in whole.z_rks[same]
        # no more than some rounds are read
        read = []
        slab = RunReader.slab
        monkeypatch.setattr(
            RunReader, "slab", lambda self, *where: read.append(where[:2]) or slab(self, *where)
        )
        per_round = whole.x_rksd[0].size
        monkeypatch.setattr(representatives, "MAX_PICTURE_BYTES", 2 * per_round)
        assert [len(place) for place in pictures_at_ends(run, 3)] == [3, 3, 3]
        assert {round_ for name, round_ in read if name == "samples/x"} == {0, 5}


def test_options_of_another_version_are_a_plain_message(tmp_path):
    image_run(tmp_path, more="\nold_key = 3")
    with (
        open_run(tmp_path / "run.h5") as run,
        pytest.raises(UserError, match=r"model.old_key: Extra inputs are not permitted"),
    ):
        pictures_at_ends(run, 3)


def test_pictures_of_another_size_are_a_plain_message(tmp_path):
    image_run(tmp_path)
    file = tmp_path / "model" / "model.json"
    file.write_text(file.read_text().replace('"height": 2', '"height": 3'))
    with (
        open_run(tmp_path / "run.h5") as run,
        pytest.raises(UserError, match="now have 12 sites, but the run's have 8"),
    ):
        pictures_at_ends(run, 3)


def test_the_bins_of_a_task_set_are_those_of_the_models_own_runs(tmp_path):
    """Another model's range may begin a fraction of a width lower."""
    ranges = {"a": [0.0, 2.0], "b": [0.75, 2.75]}
    runs = [{"path": f"{m}.h5", "model_fingerprint": m, "range": r} for m, r in ranges.items()]
    items = [
        KeyItem(f"{model}{b}", run, low + b, low + b + 0.5, 0.0, 1, [b], 0)
        for run, (model, (low, _)) in enumerate(ranges.items())
        for b in range(2)
    ]
    path = tmp_path / "both.tasks.jsonl"
    tasks_id = write_tasks(path, "text", [Task(item.id, item.id) for item in items])
    header = {"tasks_id": tasks_id, "runs": runs, "range": [0.0, 2.75]}
    write_key(key_path(path), {**KEY_HEADER, **header}, items)
    for model, (low, high) in ranges.items():
        found = representatives.of_tasks(path, model, lambda id_: None, 5)
        assert found.edges.tolist() == [low, low + 1.0, high]
        assert [(item.bin, item.shown) for item in found.items] == [
            (0, f"{model}0"),
            (1, f"{model}1"),
        ]
