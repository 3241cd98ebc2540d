"""The page in a real browser: what a person does by keys ends up in the file, exactly.

Screenshots are left in the folder that OMNIINPUT_SCREENSHOTS names.
"""

import os
import statistics
from pathlib import Path

import numpy as np
import pytest
from browser import MISSING, PRESS, browser, colours, problems, resize, shown_id, text_of, wait
from page_server import Server, no_room_beyond
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from task_files import make_tasks

from omniinput_hpc.annotation.scores import read_scores, scores_path

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.slow]


def press(driver, key):
    driver.find_element(By.TAG_NAME, "body").send_keys(key)


def score_by_key(driver, key, given):
    """Press a number key, wait for the next item, and note what was given."""
    id_ = shown_id(driver)
    press(driver, key)
    wait(lambda: shown_id(driver) != id_, what=f"the item after key {key}")
    given[id_] = int(key) / 9
    return id_


def start(driver, server):
    driver.get(server.address)
    wait(lambda: shown_id(driver) is not None and text_of(driver, "progress"))


def picture(driver, name):
    folder = os.environ.get("OMNIINPUT_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        driver.save_screenshot(str(Path(folder) / f"{name}.png"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


def test_thirty_items_by_keys_with_every_mishap(tmp_path, driver):
    tasks = make_tasks(tmp_path, 30)
    path, given = scores_path(tasks.path, "ana"), {}
    rng = np.random.default_rng(4)

    def next_key():
        return str(rng.integers(10))

    with Server(tasks.path, "ana") as server:
        start(driver, server)
        assert "token" not in driver.current_url
        for _ in range(5):
            score_by_key(driver, next_key(), given)
        # back, and another score
        here = shown_id(driver)
        press(driver, "b")
        wait(lambda: shown_id(driver) != here)
        assert shown_id(driver) == list(given)[-1]
        assert f"{list(given.values())[-1]:.2f}" in text_of(driver, "own")
        score_by_key(driver, "9", given)
        assert shown_id(driver) == here
        # undo: the change, then the score itself
        press(driver, "u")
        changed = list(given)[-1]
        wait(lambda: shown_id(driver) == changed)
        press(driver, "u")
        wait(lambda: not text_of(driver, "own"))
        del given[changed]
        wait(lambda: read_scores(path).by_id() == given)
        score_by_key(driver, next_key(), given)
        # skip comes back at the end
        skipped = shown_id(driver)
        press(driver, "s")
        wait(lambda: shown_id(driver) != skipped)
        for _ in range(5):
            score_by_key(driver, next_key(), given)
        # reload in the middle, and the slider
        driver.refresh()
        wait(lambda: shown_id(driver))
        assert shown_id(driver) == skipped  # the first without a score
        slider = driver.find_element(By.ID, "slider")
        slider.send_keys(Keys.HOME, *[Keys.ARROW_RIGHT] * 37, Keys.ENTER)
        wait(lambda: shown_id(driver) != skipped)
        given[skipped] = 0.37
        # the server is killed: nothing is lost, the page says so, and goes on by itself
        server.kill()
        waiting = shown_id(driver)
        press(driver, "7")
        wait(lambda: "connection is lost" in text_of(driver, "alert"))
        press(driver, "1")  # ignored: the first is still on its way
        assert shown_id(driver) == waiting
        picture(driver, "lost")
        server.start()
        wait(lambda: shown_id(driver) != waiting)
        given[waiting] = 7 / 9
        assert not text_of(driver, "alert")
        assert read_scores(path).by_id() == given
        # killed with a score under way, and the page closed with it: sent at the next start
        server.kill()
        waiting = shown_id(driver)
        press(driver, "3")
        wait(lambda: "connection is lost" in text_of(driver, "alert"))
        server.start()
        start(driver, server)
        given[waiting] = 3 / 9
        wait(lambda: read_scores(path).by_id() == given)
        # a full disk: said, and tried again until there is room
        waiting = shown_id(driver)
        with no_room_beyond(server.process.pid, path.stat().st_size):
            press(driver, "8")
            wait(lambda: "The server could not save" in text_of(driver, "alert"))
            assert shown_id(driver) == waiting
            picture(driver, "full-disk")
        wait(lambda: shown_id(driver) != waiting)
        given[waiting] = 8 / 9
        while shown_id(driver):
            score_by_key(driver, next_key(), given)
        wait(lambda: "All items are scored" in text_of(driver, "message"))
        assert text_of(driver, "progress") == "30 of 30"
        # undo after the browser was closed
        driver.get("about:blank")
        driver.delete_all_cookies()
        start(driver, server)
        last = read_scores(path).lines[-1].id
        press(driver, "u")
        wait(lambda: shown_id(driver) == last)
        score_by_key(driver, "0", given)
        driver.get(f"http://localhost:{server.port}/")  # the cookie alone is enough
        wait(lambda: "All items" in text_of(driver, "message"))
        driver.delete_all_cookies()
        driver.get(f"http://localhost:{server.port}/")
        assert "open the address with the token" in driver.page_source
    back = read_scores(path, tasks)
    assert back.by_id() == given and len(given) == 30
    assert all(line.undo or 0 <= line.seconds < 60 for line in back.lines)
    assert len({line.nonce for line in back.lines}) == len(back.lines)


def test_from_key_to_next_item(tmp_path, driver):
    tasks = make_tasks(tmp_path, 40, "image")
    with Server(tasks.path, "ana") as server:
        start(driver, server)
        took = [driver.execute_async_script(PRESS, "5") for _ in range(39)]
    assert None not in took
    median = statistics.median(took)
    print(f"key to next item, painted: median {median:.1f} ms, slowest {max(took):.1f} ms")
    assert len(read_scores(scores_path(tasks.path, "ana")).by_id()) == 39
    assert median < 250  # busy machines too; campaign.py latency tells 50 ms on a free one


HOSTILE = {
    "script": "<script>document.title='owned'</script>",
    "handler": "<img src=x onerror=\"document.title='owned'\"><svg/onload=document.title='owned'>",
    "close": "</div></main></body><iframe src=javascript:document.title='owned'></iframe>",
    "entity": "&lt;b&gt; &#x3c;script&#x3e; {session} {guideline} ${1+1} {{7*7}} %s",
    "link": "javascript:document.title='owned' data:text/html,<script>alert(1)</script>",
    "style": "<style>*{display:none}</style><link rel=stylesheet href=//evil.example/x.css>",
    "control": "a\x00b\x07c\x08d\x1b[31me\x7ff\x85g\r\nh",
    "direction": "abc \u202ed\u05d0\u05d1\u05d2 fed\u202c \u2066x\u2069 \u200f\u061c",
    "bidi-open": "\u202e" * 40 + "score me 1",
    "rtl": "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd abc 123",
    "zalgo": "Z" + "\u0310\u0489\u033f" * 300 + "algo",
    "long": "x" * 10_000,
    "longlines": "\n".join("word " * 2000 for _ in range(3)),
    "newlines": "a" + "\n" * 3000 + "b",
    "surrogate": "a\ud800b\udc00c \U0001f600 \U000e0041",
    "separators": "a\u2028b\u2029c\u00a0d\u3000e\tf \u200b\ufeff",
    "json": '"}]},{"id":"x","score":1}\\u003cscript\\u003e\\',
    "blank": "   ",
    "empty": "",
    "template": "`${document.title='owned'}` onload=document.title='owned' autofocus",
}

LAYOUT = """
const box = document.getElementById("text"), marks = box.querySelectorAll(".mark");
return {
  title: document.title,
  tags: [...new Set([...box.querySelectorAll("*")].map((e) => e.tagName))].join(),
  plain: [...box.childNodes].map((n) => n.nodeType === 3 ? n.data
    : "\\u0001" + n.textContent + "\\u0001").join(""),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  inside: box.scrollWidth - box.clientWidth,
  tall: box.getBoundingClientRect().height / window.innerHeight,
  keys: document.getElementById("keys").getBoundingClientRect().width,
  frames: document.querySelectorAll("iframe, object, embed, img[src^=x]").length,
};
"""


@pytest.mark.parametrize("width", [1200, 360])
def test_injected_text_stays_text_and_the_layout_holds(tmp_path, driver, width):
    tasks = make_tasks(tmp_path, texts=list(HOSTILE.values()))
    by_id = {task.id: task.text for task in tasks.tasks}
    with Server(tasks.path, "ana") as server:
        resize(driver, width, 800)
        start(driver, server)
        problems(driver)
        for position in range(len(HOSTILE)):
            assert driver.execute_script("return item.position") == position
            text = by_id[shown_id(driver)]
            for whitespace in (False, True):
                found = driver.execute_script(LAYOUT)
                assert found["title"] == "Scores" and found["frames"] == 0
                assert found["tags"] in ("", "SPAN"), text[:40]
                assert found["wide"] <= 0 and found["inside"] <= 0, (text[:40], found)
                assert found["tall"] < 0.53 and found["keys"] > 250, text[:40]
                strange = [
                    c
                    for c in text
                    if c in "\x00\x07\x08\x1b\x7f\x85\r\u202e\u202c\u2066\u2028\ufeff"
                ]
                assert not any(c in found["plain"] for c in strange)
                if (
                    not whitespace
                    and not strange
                    and "\ud800" not in text
                    and text
                    and "\u0489" not in text
                ):
                    assert found["plain"] == text  # to the last character
                press(driver, "w")
            name = next(k for k, v in HOSTILE.items() if v == text)
            if name in ("script", "direction", "zalgo", "long", "control"):
                picture(driver, f"hostile-{name}-{width}")
            id_ = shown_id(driver)
            press(driver, "0")
            wait(lambda id_=id_: shown_id(driver) != id_)
        assert problems(driver) == []
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert len(read_scores(scores_path(tasks.path, "ana")).by_id()) == len(HOSTILE)


def test_an_injected_script_would_be_noticed(tmp_path, driver):
    """The campaign's own check: text put in as HTML is found by it."""
    tasks = make_tasks(tmp_path, texts=[HOSTILE["handler"], HOSTILE["long"]])
    with Server(tasks.path, "ana") as server:
        start(driver, server)
        driver.execute_script("document.getElementById('text').innerHTML = item.text")
        found = driver.execute_script(LAYOUT)
        assert (
            found["tags"] not in ("", "SPAN")
            or found["frames"]
            or found["plain"] != HOSTILE["long"]
        )
        handler = next(t for t in tasks.tasks if t.text == HOSTILE["handler"])
        if shown_id(driver) == handler.id:
            wait(lambda: problems(driver), what="the policy's complaint")
        assert driver.title == "Scores"  # and even then the policy keeps it from running


def test_a_double_click_scores_one_item(tmp_path, driver):
    tasks = make_tasks(tmp_path, 3)

    def click(times):
        event = f"new MouseEvent('click', {{detail: {times}}})"
        driver.execute_script(f"document.querySelector('#keys button').dispatchEvent({event})")

    with Server(tasks.path, "ana") as server:
        start(driver, server)
        first = shown_id(driver)
        click(1)
        wait(lambda: shown_id(driver) != first)
        second = shown_id(driver)
        click(2)
        press(driver, "9")
        wait(lambda: shown_id(driver) != second)
    assert read_scores(scores_path(tasks.path, "ana")).by_id() == {first: 0.0, second: 1.0}


@pytest.mark.parametrize("kind", ["text", "image"])
def test_own_labels_a_question_and_the_last_score(tmp_path, driver, kind):
    tasks = make_tasks(tmp_path, 6, kind)
    question = "Would a person have <made> this?"
    more = ["--question", question, "--labels", "no,perhaps,yes, surely"]
    with Server(tasks.path, "ana", more=more) as server:
        start(driver, server)
        assert text_of(driver, "question") == question
        names = [b.text.split("\n") for b in driver.find_elements(By.CSS_SELECTOR, "#keys button")]
        assert names == [["0", "no"], ["1", "perhaps"], ["2", "yes"], ["3", "surely"]]
        assert not driver.find_element(By.ID, "slider").is_displayed()
        assert text_of(driver, "last") == ""
        first = shown_id(driver)
        for ignored in ("4", "9", Keys.ENTER):
            press(driver, ignored)
        press(driver, "3")
        wait(lambda: "Saved: surely" in text_of(driver, "last"))
        picture(driver, f"{kind}-labels")
        if kind == "image":
            small = driver.find_element(By.ID, "small")
            large = driver.find_element(By.ID, "image")
            assert small.is_displayed() and 0 < 3 * small.size["width"] < large.size["width"]
        press(driver, "u")
        wait(lambda: text_of(driver, "last") == "Undone.")
        assert shown_id(driver) == first
        driver.find_elements(By.CSS_SELECTOR, "#keys button")[1].click()
        wait(lambda: "Saved: perhaps" in text_of(driver, "last"))
        press(driver, "b")
        wait(lambda: "Your score so far: perhaps" in text_of(driver, "own"))
        assert problems(driver) == []
        driver.get(f"http://localhost:{server.port}/progress?token={server.progress_token}")
        assert "1 of 6" in driver.find_element(By.TAG_NAME, "body").text
        picture(driver, f"{kind}-progress")
    assert read_scores(scores_path(tasks.path, "ana")).by_id() == {first: 1 / 3}


@pytest.mark.parametrize("kind", ["text", "image"])
def test_light_dark_narrow_and_for_screen_readers(tmp_path, driver, kind):
    words = "The quick brown fox  jumps over\n\tthe lazy dog, and then, as it were, " * 3
    tasks = make_tasks(tmp_path, 8, kind, [words] * 8)
    with Server(tasks.path, "ana") as server:
        start(driver, server)
        press(driver, "6")
        wait(lambda: "1 of 8" in text_of(driver, "progress"))
        backgrounds = []
        for scheme in ("light", "dark"):
            colours(driver, scheme)
            picture(driver, f"{kind}-{scheme}")
            backgrounds.append(
                driver.execute_script("return getComputedStyle(document.body).backgroundColor")
            )
        assert backgrounds[0] != backgrounds[1]
        if kind == "text":
            press(driver, "w")
            picture(driver, "text-whitespace")
            assert "\u00b7" in text_of(driver, "text") and "\u2192" in text_of(driver, "text")
            press(driver, "w")
        else:
            scale = driver.execute_script(
                "const i = document.getElementById('image');"
                "return [i.naturalWidth, i.clientWidth, getComputedStyle(i).imageRendering]"
            )
            assert scale[2] == "pixelated" and scale[1] >= 200 and scale[1] % scale[0] == 0
        resize(driver, 340, 700)
        picture(driver, f"{kind}-narrow")
        assert driver.execute_script(LAYOUT)["wide"] <= 0
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        colours(driver, "light")
        tree = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        named = {
            (n["role"]["value"], n.get("name", {}).get("value", ""))
            for n in tree
            if not n.get("ignored")
        }
        for role, name in (
            ("button", "Score 0.00, key 0"), ("button", "Score 1.00, key 9"), ("slider", "Finer"),
            ("progressbar", "Items scored"), ("region", "Item to score"),
            ("complementary", "Guideline"), ("button", "B Back"), ("button", "U Undo"),
        ):  # fmt: skip
            assert (role, name) in named, (role, name, sorted(named))
        if kind == "image":
            assert any(name == "The picture to score" for _, name in named)
        # keyboard only: everything that can be clicked is reached by Tab
        reached = set()
        for _ in range(30):
            press(driver, Keys.TAB) if not reached else driver.switch_to.active_element.send_keys(
                Keys.TAB
            )
            reached.add(
                driver.execute_script(
                    "return document.activeElement.id || document.activeElement.textContent"
                )
            )
        assert {"slider", "give", "back", "skip", "undo", "white", "guide"} <= reached
