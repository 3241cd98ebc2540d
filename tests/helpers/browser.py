"""A headless Chromium for the tests of the page; says why where there is none."""

import shutil
import time
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
MISSING = "" if CHROMIUM and DRIVER else "chromium and chromium-driver are not installed"

# Presses a key as a person's keyboard does, and measures until the next item is painted.
PRESS = """
const [key, done] = arguments;
const item = document.getElementById("item"), before = item.dataset.id, begin = performance.now();
const watch = () => {
  if (item.dataset.id !== before)
    requestAnimationFrame(() => { done(performance.now() - begin); });
  else if (performance.now() - begin > 20000) done(null);
  else requestAnimationFrame(watch);
};
document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
watch();
"""


@contextmanager
def browser(folder, width=1200, height=850):
    """Start a headless Chromium with a profile of its own."""
    options = Options()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
        f"--window-size={width},{height}", f"--user-data-dir={folder}", "--disable-extensions",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(200)
    try:
        yield driver
    finally:
        driver.quit()


def wait(condition, seconds=200, what="the page"):
    """Wait until a condition holds, and return what it gave."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s for {what}")


def shown_id(driver):
    """Return the id of the item that is shown, empty where all is done."""
    return driver.execute_script("return document.getElementById('item').dataset.id")


def text_of(driver, id_):
    """Return an element's text as a reader sees it."""
    return driver.execute_script("return document.getElementById(arguments[0]).innerText", id_)


def colours(driver, scheme):
    """Ask for light or dark."""
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )


def resize(driver, width, height):
    """Give the page another size, also one narrower than a window can be."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )


def problems(driver):
    """Return what the console complains about, lost connections aside."""
    return [
        entry["message"]
        for entry in driver.get_log("browser")
        if "ERR_CONNECTION" not in entry["message"] and "ERR_EMPTY" not in entry["message"]
    ]
