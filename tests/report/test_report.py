"""The report: strict HTML from hostile text, one run and several, in a real browser and on paper.

Screenshots are left in the folder that OMNIINPUT_SCREENSHOTS names.
"""

import base64
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from browser import MISSING, browser, colours, problems, resize, wait
from hostile_words import WORDS, write_model_folder
from matplotlib.image import imread
from run_files import write_run
from score_files import write_score_files
from script_tools import is_plain
from strict_page import problems_of

from omniinput_hpc.report import page

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
LIGHT, DARK = (255, 255, 255), (22, 24, 27)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a run of hostile words, scores, and a report of all of it."""
    folder = tmp_path_factory.mktemp("report")
    write_model_folder(folder / "none")
    run = write_run(folder / "lattice.h5", walkers=16, seed=1)
    write_score_files(folder / "lattice.h5", run, ["ana", "ben"], bias=0.1)
    arguments = ["lattice.h5", "--scores", "lattice.scores.ana.jsonl", "lattice.scores.ben.jsonl"]
    # in a process of its own, which must not load torch
    call = (
        "import sys; sys.path.insert(0, sys.argv[1]); import report; "
        "code = report.run_script(report.main, sys.argv[2:]); "
        "assert not {'torch', 'transformers', 'mpi4py'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", call, str(ROOT / "analysis"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    name, *lines = done.stdout.splitlines()
    assert name == "lattice.report.html" and "converged: yes" in lines
    assert any("scored inputs were right" in line or "are right" in line for line in lines)
    return folder


@pytest.fixture(scope="module")
def html(folder):
    return (folder / "lattice.report.html").read_text(encoding="utf-8")


def test_the_page_is_strict_and_shows_hostile_text_as_text(html):
    bad, words = problems_of(html)
    assert not bad
    for word in (*WORDS[:2], WORDS[3]):
        assert word in words
    assert "<U+202E>gnp<U+0000>" in words
    assert "default-src 'none'" in html and "http-equiv" in html
    for title in (
        "Output distribution",
        "Precision and recall",
    ):
        assert f"<h3>{title}</h3>" in html
    for title in ("Method and settings", "Convergence"):
        assert f"<summary>{title}</summary>" in html
    assert "<h3>Some inputs with z from " in html
    assert "<h1>All inputs of none</h1>" in html and "how many are right?" in words
    assert words.index("The recorded inputs of lowest and highest z") > words.index("z from ")
    assert "Krippendorff" in words and " are accepted, " in words


def test_a_page_that_does_not_escape_is_noticed(tmp_path, inside, monkeypatch):
    write_model_folder(tmp_path / "none")
    write_run(tmp_path / "lattice.h5", walkers=8, rounds=4)
    escaping = page.environment
    monkeypatch.setattr(page, "environment", lambda: escaping(autoescape=False))
    assert inside("report.py", "lattice.h5")[0] == 0
    bad, _ = problems_of((tmp_path / "lattice.report.html").read_text(encoding="utf-8"))
    assert "script" in bad and any("onerror" in what for what in bad)


def test_control_characters_and_direction_marks_are_shown_as_codes():
    assert page.visible("a\u202eb\0\ud800\n") == "a<U+202E>b<U+0000><U+D800>\n"
    lines = page.environment().from_string(
        '{% import "macros.html" as page %}{{ page.lines(said) }}'
    )
    assert lines.render(said=["<b>\u202e"]).strip() == "<p>&lt;b&gt;&lt;U+202E&gt;</p>"


def test_figures_are_made_smaller_without_a_change():
    style = ' style="fill: var(--blue)"'
    points = "".join(f'  <use xlink:href="#m" x="{x}.123456" y="2.5"{style}/>\n' for x in range(30))
    glyph = '<g transform="scale(0.015625)"><path d="M 1.23456 2 \nL 3 4.987654"/></g>'
    small = page._smaller(f"<svg>\n{glyph}\n{points}</svg>")
    assert "scale(0.015625)" in small and 'd="M 1.23 2 \nL 3 4.98"' in small
    name = re.search(r"<style>\.(\w+)\{fill: var\(--blue\)\}</style>", small)[1]
    assert small.count(f'<use href="#m" x="7.12" y="2.5" class="{name}"/>') == 1
    assert style not in small and page._smaller(f"<svg><g{style}/></svg>").count(style) == 1


def test_inputs_are_spread_as_their_bins_are_and_tables_agree_with_the_scripts(
    folder, html, tmp_path, inside
):
    rows = data_file(html, "lattice.representatives.csv").splitlines()
    body = [line.split(",") for line in rows[1:]]
    low, high, z = (np.array([float(row[i]) for row in body]) for i in range(3))
    assert ((low <= z) & (z < high)).all()
    (tmp_path / "run.h5").write_bytes((folder / "lattice.h5").read_bytes())
    assert inside("reweight.py", "run.h5")[0] == 0
    written = (tmp_path / "run.density.csv").read_text()
    assert data_file(html, "lattice.density.csv") == written
    assert "precision_low" in data_file(html, "lattice.pr.csv")


def data_file(html, name):
    """Return a file that the page carries."""
    link = html[html.index(f'download="{name}"') :]
    return base64.b64decode(link.split("base64,", 1)[1].split('"', 1)[0]).decode()


def test_what_holds_at_thresholds_and_of_test_data(tmp_path, inside, undrawn):
    write_run(tmp_path / "one.h5", walkers=16, seed=1)
    (tmp_path / "sets.csv").write_text("set,role,z\nmine,in,1.5\nmine,in,2.0\nmine,in,-40.0\n")
    asked = ["--rule", "toy_rules:begins_with_zero", "--threshold", "2", "--threshold", "mine:0.5"]
    asked += ["--test-sets", "sets.csv"]
    assert inside("report.py", "one.h5", *asked)[0] == 0
    _, words = problems_of((tmp_path / "one.report.html").read_text(encoding="utf-8"))
    assert "score 1" in words and "score 0" in words  # of the rule, beside the inputs
    assert words.count("(95% bands)") == 2 and "(the bin edge nearest to 1.5): precision" in words
    assert "warning: 33.3% of the 3 outputs of mine (the most confident at z = -40)" in words
    code, _, err = inside("report.py", "one.h5", "one.h5", *asked)
    assert code == 2 and "--threshold and --test-sets are for a report about one run" in err


def test_the_page_has_the_interval_that_the_command_prints(tmp_path, inside, undrawn):
    """Once in the lines, once in the table of several runs; no nan where nothing is right."""
    (tmp_path / "never_rules.py").write_text("def never(x):\n    return 0.0 * x[:, 0]\n")
    for seed, name in enumerate(("one.h5", "two.h5"), start=1):
        write_run(tmp_path / name, walkers=16, seed=seed)
    by = ("--rule", "toy_rules:begins_with_zero")
    out = inside("precision_recall.py", "one.h5", *by)[1]
    (line,) = [line for line in out.splitlines() if line.startswith("AUPR: ")]
    interval = line.split("95% interval ")[1].split(",")[0]
    assert inside("report.py", "one.h5", *by, "--output", "alone.html")[0] == 0
    assert line in problems_of((tmp_path / "alone.html").read_text(encoding="utf-8"))[1]
    assert inside("report.py", "one.h5", "two.h5", *by, "--output", "both.html")[0] == 0
    words = problems_of((tmp_path / "both.html").read_text(encoding="utf-8"))[1]
    assert words.count(interval) >= 3 and words.count(line) == 1
    assert inside("report.py", "one.h5", "--rule", "never_rules:never")[0] == 0
    (path,) = tmp_path.glob("one.report*.html")
    words = problems_of(path.read_text(encoding="utf-8"))[1]
    assert re.search(r"inputs were right; 95% interval 0\.0+ to 0\.", words)
    assert "no right input" in words
    assert " nan" not in words and "inf" not in words.split("Method and settings")[0]


def test_several_runs_masks_and_what_is_not_there(tmp_path, inside):
    run = write_run(tmp_path / "one.h5", walkers=16, seed=1)
    write_run(tmp_path / "two.h5", walkers=16, seed=2, rounds=6)
    write_score_files(tmp_path / "one.h5", run, ["ana"])
    write_score_files(tmp_path / "foreign.h5", run, ["ana"], fingerprint="another")
    code, out, err = inside("report.py", "one.h5", "two.h5", "--output", "both.html")
    assert (code, err) == (0, "") and out.splitlines()[0] == "both.html"
    assert "one:" in out and "two:" in out and out.count("converged: ") == 2
    bad, words = problems_of((tmp_path / "both.html").read_text(encoding="utf-8"))
    assert not bad and "values are shown: " in words  # there is no folder `none` here
    assert words.count("this page does not say") == 2 and "6 of 6" in words
    write_model_folder(tmp_path / "none")
    ana = ["--scores", "one.scores.ana.jsonl"]
    assert inside("report.py", "one.h5", "--mask", *ana, "--tasks", "one.tasks.jsonl")[0] == 0
    html = (tmp_path / "one.report.html").read_text(encoding="utf-8")
    assert "score 0." in html and "tasks of one.tasks.jsonl" in html
    narrow = ("--mask", "--range", "1.0", "3.0", "--width", "0.5")
    code, out, _ = inside("report.py", "one.h5", *narrow)
    assert (code, out.splitlines()[0]) == (0, "one.report.no-scores.html")
    html = (tmp_path / "one.report.no-scores.html").read_text(encoding="utf-8")
    assert "[e-mail]" in html and "[phone]" in html
    assert "example.com or" not in html and "123-4567" not in html
    assert "values" not in data_file(html, "one.representatives.csv").splitlines()[0]
    for arguments, word in [
        (["one.h5", "--scores", "foreign.scores.ana.jsonl"], "no task belongs to this run's model"),
        (["one.h5", "--tasks", "foreign.tasks.jsonl"], "has no inputs of one.h5"),
        (["one.h5", "--per-bin", "0"], "--per-bin"),
        (["one.h5", "--range", "90", "91"], "--range 90 91: the run has no bins there"),
        (["one.h5", "--width", "0.001"], "--width"),
    ]:
        code, _, err = inside("report.py", *arguments)
        assert is_plain(code, err, word), err
    assert not list(tmp_path.glob("*.partial"))


def test_a_python_model_is_not_built_unless_asked(tmp_path, inside):
    write_run(tmp_path / "one.h5", walkers=8, rounds=4)
    toml = 'kind = "python"\nfactory = "my_rules:make"'
    with h5py.File(tmp_path / "one.h5", "r+") as file:
        file.attrs["config"] = file.attrs["config"].replace(
            'kind = "causal-lm"\npath = "none"\nlength = 8', toml
        )
    (tmp_path / "my_rules.py").write_text("raise SystemExit('its code ran')")
    code, _, err = inside("report.py", "one.h5")
    assert (code, err) == (0, "")
    assert "with --render, the run&#39;s own" in (tmp_path / "one.report.html").read_text()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


def look(driver, name):
    """Return the picture of the page, [h, w, 3], and keep it where asked."""
    png = driver.get_screenshot_as_png()
    folder = os.environ.get("OMNIINPUT_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.png").write_bytes(png)
    return np.rint(imread(io.BytesIO(png))[..., :3] * 255).astype(int)


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_in_a_browser(folder, driver):
    driver.get((folder / "lattice.report.html").as_uri())
    assert problems(driver) == []
    assert driver.execute_script("return window.injected") is None
    assert driver.execute_script("return document.scripts.length") == 1
    pointed_at(driver)
    fetched = "return performance.getEntriesByType('resource').map(e => e.name)"
    assert [name for name in driver.execute_script(fetched) if not name.startswith("data:")] == []
    for width in (1200, 360):
        resize(driver, width, 900)
        overflow = "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
        assert driver.execute_script(overflow) <= 0, width
        height = driver.execute_script("return document.documentElement.scrollHeight")
        resize(driver, width, min(height, 5000))
        for scheme, ground in (("light", LIGHT), ("dark", DARK)):
            colours(driver, scheme)
            pixels = look(driver, f"report-{width}-{scheme}")
            share = (np.abs(pixels - ground).max(axis=2) < 3).mean()
            assert 0.3 < share < 0.98, (width, scheme, share)
            # ink that differs from the ground: text and curves
            assert (np.abs(pixels - ground).max(axis=2) > 120).mean() > 0.01
    on_paper(driver)
    assert downloaded(driver, folder / "saved").startswith("z_lower,z_upper,log_g")


def pointed_at(driver):
    """Point at the density, move the threshold, search: what the page then says."""
    read = "return [...document.querySelectorAll('.said')].map(one => one.textContent)"
    assert all("point at the picture" in said for said in driver.execute_script(read))
    point = """
        const area = document.querySelector("figure[data-marks] svg").getBoundingClientRect();
        document.querySelector("figure[data-marks] svg").dispatchEvent(new PointerEvent(
            "pointermove", {clientX: area.left + 9, clientY: area.top + area.height / 2}));
        const slider = document.querySelector("figure[data-slider=Threshold] .slider");
        slider.value = slider.max;
        slider.dispatchEvent(new Event("input"));
        const field = document.querySelector(".search");
        field.value = "EXAMPLE.com";
        field.dispatchEvent(new Event("input"));
    """
    driver.execute_script(point)
    said = driver.execute_script(read)
    assert "inputs, \u00b1 " in said[0] and "z = " in said[0]
    assert any("accepted: precision 0." in one and "wrong inputs" in one for one in said)
    shown = "return [...document.querySelectorAll('.shown li:not([hidden]) .text')]"
    shown += ".map(one => one.textContent)"
    texts = driver.execute_script(shown)
    assert texts and all("example.com" in text for text in texts)
    assert len(driver.execute_script("return document.querySelectorAll('.ring')")) == 3
    driver.execute_script("document.querySelector('.search').value = ''")
    driver.execute_script("document.querySelector('.search').dispatchEvent(new Event('input'))")
    assert len(driver.execute_script(shown)) > len(texts)


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_without_javascript_nothing_is_missing(folder, driver):
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    driver.get((folder / "lattice.report.html").as_uri())
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    count = "return document.querySelectorAll(arguments[0]).length"
    assert driver.execute_script(count, "figure svg") >= 5
    assert driver.execute_script(count, ".shown li") > 5
    assert driver.execute_script(count, ".slider, .said, .search, [hidden]") == 0


def on_paper(driver):
    """Look at the printed page: light, the whole input file open, nothing wider than the paper."""
    resize(driver, 794, 900)
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    )
    ground = "return getComputedStyle(document.body).backgroundColor"
    assert driver.execute_script(ground) == "rgb(255, 255, 255)"
    shown = "return document.querySelector('details pre').getBoundingClientRect().height"
    assert driver.execute_script(shown) > 100
    height = driver.execute_script("return document.documentElement.scrollHeight")
    resize(driver, 794, min(height, 5000))
    look(driver, "report-print")
    pdf = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"]
    assert base64.b64decode(pdf)[:5] == b"%PDF-"
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def downloaded(driver, folder):
    """Save the first table by its link, and return what was saved."""
    folder.mkdir()
    driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)}
    )
    driver.execute_script("document.querySelector('a[download$=\".density.csv\"]').click()")
    wait(lambda: list(folder.glob("*.density.csv")), what="the table")
    return next(folder.glob("*.density.csv")).read_text()
