"""How long the page of `explore` takes to show a changed plan, in a headless browser that draws by software.

    PYTHONPATH=. python benchmarks/explore.py

A slider of a constant is moved, and the time until the next frame has been drawn is taken: for few files, each drawn as
a box, and for 100,000, drawn as one image. Needs zskip[plot], selenium, chromium and chromedriver.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from selenium import webdriver
from targets import at_most

from tests.inspect.explore.test_explore import BROWSER, DRIVER, FLAGS, many_files, show

MOVES = 20
MOVED = """
const [value, done] = arguments, slider = document.querySelector("#constants input[type=range]");
const from = performance.now();
slider.value = value;
slider.dispatchEvent(new Event("input"));
requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(performance.now() - from), 0)));
"""


def frames(browser: webdriver.Chrome, folder: Path, files: int) -> float:
    """Milliseconds from a move of the slider to its frame, the median of some moves."""
    table = many_files(folder / str(files), files, floats=True)
    page = table.explore(folder / f"{files}.html", where="a < 300000 AND b > 500000")
    show(browser, page)
    took = [browser.execute_async_script(MOVED, str(move * 1_000_000 // MOVES)) for move in range(MOVES)]
    found = float(statistics.median(took))
    print(f"{files:,} files, {page.stat().st_size / 1e6:.2f} MB: {found:.0f} ms to a frame, at most {max(took):.0f}")
    return found


def main() -> None:
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    with tempfile.TemporaryDirectory() as temporary:
        for flag in (*FLAGS, f"--user-data-dir={temporary}/profile"):
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
        try:
            few, _, many = (frames(browser, Path(temporary), files) for files in (1_000, 10_000, 100_000))
        finally:
            browser.quit()
    at_most(4, many / few, "a frame of 100,000 files by one of 1,000", " times")


if __name__ == "__main__":
    main()
