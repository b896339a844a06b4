"""Draws the pictures of docs/gallery.md and docs/star-schema.md: pages of `explore`, as a browser shows them.

`python docs/make_gallery.py`; needs zskip[plot], selenium, chromium and chromedriver. Two tables hold real data; of the
third, of 100,000 files, only the ranges exist: they are those of two billion points, laid out as tiles.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import zskip

PICTURES = Path(__file__).resolve().parent / "pictures"
SIZE = {"width": 1220, "height": 1010, "deviceScaleFactor": 1, "mobile": False}
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
SLABS = 316
POINTS_IN_A_FILE = 20_000


def many_files(folder: Path) -> zskip.Table:
    """The index of about 100,000 files: slabs along latency, each cut along time of day."""
    random = np.random.default_rng(7)
    latency = np.sort(random.lognormal(3, 0.8, SLABS * 400))[::400]
    lower, upper, first, last = [], [], [], []
    for slab in range(SLABS):
        hours = np.sort(np.mod(random.normal(14, 4.5, (SLABS + 1) * 40), 24))[::40]
        lower += [latency[slab]] * SLABS
        upper += [latency[slab + 1] if slab + 1 < SLABS else 1.2 * latency[slab]] * SLABS
        first += hours[:-1].tolist()
        last += hours[1:].tolist()
    count = len(lower)
    rows = np.full(count, POINTS_IN_A_FILE)
    schema = pa.schema([("hour", pa.float64()), ("latency_ms", pa.float64())])
    bounds = {"hour.lower": first, "hour.upper": last, "latency_ms.lower": lower, "latency_ms.upper": upper}
    nulls = {f"{name}.{kind}_count": np.zeros(count, np.int64) for name in schema.names for kind in ("null", "nan")}
    given = {"path": [f"part-{number:06}.parquet" for number in range(count)], "row_count": rows, "size": rows * 16}
    return zskip.index(folder, schema=schema, statistics=pa.table({**given, **bounds, **nulls}))


def orders(lake: Path) -> zskip.Table:
    """Orders, laid out by the regions of their customers and the categories of their parts, at random."""
    random = np.random.default_rng(7)
    regions, categories = ["AFRICA", "AMERICA", "ASIA", "EUROPE"], [f"MFGR#{number}" for number in range(11, 36)]
    customers = {"c_custkey": np.arange(5_000), "c_region": random.choice(regions, 5_000)}
    parts = {"p_partkey": np.arange(2_000), "p_category": random.choice(categories, 2_000)}
    zskip.write(pa.table(customers), lake / "customer", by=["c_custkey"])
    zskip.write(pa.table(parts), lake / "part", by=["p_partkey"])
    rows = {
        "o_custkey": random.integers(0, 5_000, 200_000),
        "o_partkey": random.integers(0, 2_000, 200_000),
        "o_day": random.integers(0, 365, 200_000),
    }
    joins = {
        "customer": (lake / "customer", {"o_custkey": "c_custkey"}),
        "part": (lake / "part", {"o_partkey": "p_partkey"}),
    }
    by = ["customer.c_region", "part.p_category", "o_day"]
    return zskip.write(pa.table(rows), lake / "orders", by=by, joins=joins, files=100)


def shot(browser: Any, page: Path, target: Path, file: int | None) -> None:
    """Save what the browser shows of a page, with one file chosen."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(page.as_uri())
    WebDriverWait(browser, 120).until(lambda each: each.execute_script("return document.body.dataset.ready") == "yes")
    if file is not None:
        browser.execute_script("zskipTell(arguments[0])", file)
    WebDriverWait(browser, 5).until(lambda each: each.execute_script("return document.readyState") == "complete")
    browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 500))")
    browser.save_screenshot(str(target))
    print(f"wrote {target.name}, {target.stat().st_size:,} bytes, of a page of {page.stat().st_size:,} bytes")


def main() -> None:
    from selenium import webdriver

    with tempfile.TemporaryDirectory() as temporary:
        lake = Path(temporary)
        os.chdir(lake)
        zeek = zskip.write(zskip.demo_data(), "zeek", by=["ts", "id.orig_h", "id.resp_h", "id.resp_p"], files=100)
        flights = zskip.write(zskip.demo_data("flights"), "flights", by=["date", "distance"], files=400)
        (lake / "requests").mkdir()
        pages = {
            "gallery-zeek": zeek.explore(
                "zeek.html", where="\"id.orig_h\" = '10.47.1.100' AND ts >= TIMESTAMPTZ '2018-03-24 17:30:00+00'"
            ),
            "gallery-flights": flights.explore(
                "flights.html", where="distance BETWEEN 1000 AND 1100 AND date >= DATE '2013-11-01'"
            ),
            "star": orders(lake).explore(
                "star.html", where="\"customer.c_region\" = 'ASIA' AND \"part.p_category\" = 'MFGR#12'"
            ),
            "gallery-100000": many_files(lake / "requests").explore(
                "requests.html", where="latency_ms > 60 AND hour BETWEEN 9 AND 10.5", columns=["hour", "latency_ms"]
            ),
        }
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for flag in (*FLAGS, f"--user-data-dir={lake / 'profile'}"):
            options.add_argument(flag)
        browser = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
            for name, page in pages.items():
                shot(browser, lake / page, PICTURES / f"{name}.png", None if name == "gallery-100000" else 0)
        finally:
            browser.quit()


if __name__ == "__main__":
    main()
