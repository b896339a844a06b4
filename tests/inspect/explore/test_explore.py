"""The page of `explore`, in a real browser: what it shows equals the plan, also after a constant was changed in it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.core.schema import Schema
from zskip.errors import InvalidOption
from zskip.inspect.explore.export import columns_of, fitting
from zskip.language.tree import Reference
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics, Ranges, Statistics
from zskip.storage import open_storage
from zskip.tablelog.commit import TableUpdate, commit

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1280,1600",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not BROWSER or not DRIVER:
        pytest.skip("There is no chromium and chromedriver here: apt install chromium-driver brings both")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(120)
    yield driver
    driver.quit()


def wait_for(browser: Any, script: str, *arguments: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 60).until(lambda each: each.execute_script(script, *arguments))


def show(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    wait_for(browser, "return document.body.dataset.ready")
    assert browser.execute_script("return document.body.dataset.ready") == "yes", text_of(browser, "result")
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def text_of(browser: Any, name: str) -> str:
    return str(browser.execute_script("return document.getElementById(arguments[0]).textContent", name))


def kept(browser: Any) -> list[int]:
    return [int(file) for file in browser.execute_script("return Array.from(zskipPage.kept)")]


def change(browser: Any, constant: int, text: str) -> None:
    """Type a constant into its field, as a reader would."""
    browser.execute_script(
        "const field = document.getElementsByName('constant' + arguments[0])[0];"
        "field.value = arguments[1]; field.dispatchEvent(new Event('change'));",
        constant,
        text,
    )


def planned(table: zskip.Table, where: str) -> list[int]:
    paths = {Path(path).name for path in table.plan(where, freshness="trust").paths}
    every = [Path(path).name for path in table.plan(freshness="trust").paths]
    return [int(path in paths) for path in every]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> zskip.Table:
    random = Random(5)
    rows = 2_000

    def some(make: Any, nulls: float = 0.1) -> list[Any]:
        return [None if random.random() < nulls else make() for _ in range(rows)]

    return zskip.write(
        pa.table(
            {
                "i": pa.array(some(lambda: random.randrange(-500, 500)), pa.int64()),
                "f": pa.array(some(lambda: random.choice([random.gauss(0, 9), float("nan"), -0.0, 0.0]), 0.02)),
                "s": some(lambda: random.choice(["", "a", "ab", "é", "Z", "zz", "\U0001f600"]) + random.choice("xyz")),
                "d": some(lambda: date(2024, 1, 1) + timedelta(random.randrange(400))),
                "t": pa.array(
                    some(lambda: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=random.randrange(10**5))),
                    pa.timestamp("us", "UTC"),
                ),
                "m": pa.array(some(lambda: Decimal(random.randrange(-9999, 9999)).scaleb(-2)), pa.decimal128(9, 2)),
            }
        ),
        tmp_path_factory.mktemp("explore") / "hostile",
        by=["i", "s", "d", "f"],
        files=40,
        row_group_rows=25,
    )


# A predicate with a place for each constant, and constants to begin with and to change to, as the page shows them.
CASES = [
    ("i >= {0} AND i < {1}", ["-100", "50"], ["17", "18"]),
    ("i > {0} AND i < {1}", ["3", "9"], ["7", "8"]),
    ("i = {0} OR i = {1}", ["-400", "499"], ["1000", "0"]),
    ("NOT (i <= {0}) AND s = '{1}'", ["300", "abx"], ["480", "\U0001f600y"]),
    ("s > '{0}' AND s < '{1}'", ["a", "b"], ["abz", "abz0"]),
    ("s >= '{0}' AND d < DATE '{1}'", ["z", "2024-03-01"], ["é", "2024-01-01"]),
    ("f > {0} OR i < {1}", ["15.5", "-490"], ["20", "-499"]),
    ("f <= {0} AND f >= {1}", ["0", "-0.5"], ["-8", "-9"]),
    ("i IS NULL AND d >= DATE '{0}'", ["2025-01-01"], ["2024-06-01"]),
    ("t >= TIMESTAMPTZ '{0}+00' AND m < {1}", ["2024-03-01 00:00:00", "-90.5"], ["2024-01-02 12:30:00", "0.01"]),
    ("i IN ({0}, {1}, 7) AND s < '{2}'", ["1", "2", "a"], ["-77", "450", "b"]),
    ("(i < {0}) IS NOT TRUE AND m > {1}", ["-480", "99"], ["490", "-99.99"]),
]  # fmt: skip


def survivors(browser: Any, part: int) -> list[int]:
    """The files that the page keeps for one part of its predicate, by the function that it keeps files with."""
    script = "return Array.from(survivors(zskipPage.tree.parts[arguments[0]], zskipPage))"
    return [int(file) for file in browser.execute_script(script, part)]


def test_what_the_page_keeps_is_what_the_plan_keeps(browser: Any, hostile: zskip.Table, tmp_path: Path) -> None:
    # One page for all cases: to load one takes seconds. IS TRUE keeps the parts of a case together.
    where = " OR ".join(f"(({text}) IS TRUE)".format(*before) for text, before, _ in CASES)
    show(browser, hostile.explore(tmp_path / "page.html", where=where))
    assert browser.execute_script("return zskipPage.tree.parts.length") == len(CASES)
    assert kept(browser) == planned(hostile, where)
    number = 0
    for part, (text, before, after) in enumerate(CASES):
        assert survivors(browser, part) == planned(hostile, text.format(*before)), text
        # Of a list only two constants change.
        for place, constant in enumerate(after):
            change(browser, number + place + ("IN (" in text and place == 2), constant)
        number += len(after) + ("IN (" in text)
        assert survivors(browser, part) == planned(hostile, text.format(*after)), text
    assert text_of(browser, "result").startswith(f"{sum(kept(browser))} of {len(hostile.plan())} file")


@pytest.mark.slow
def test_a_time_may_be_typed_with_its_zone(browser: Any, hostile: zskip.Table, tmp_path: Path) -> None:
    show(browser, hostile.explore(tmp_path / "page.html", where="t >= TIMESTAMPTZ '2024-03-01 00:00:00+00'"))
    for text in (
        "2024-02-01 12:30:00+00",
        "2024-02-01T12:30:00Z",
        "2024-02-01 14:30:00.0+02:00",
        "2024-02-01 07:00-0530",
    ):
        change(browser, 0, "2024-03-01")
        change(browser, 0, text)
        assert kept(browser) == planned(hostile, "t >= TIMESTAMPTZ '2024-02-01 12:30:00+00'"), text
        assert text_of(browser, "changed") == "but with t >= 2024-02-01 12:30:00"


def test_conditions_on_booleans_keep_what_the_plan_keeps(browser: Any, tmp_path: Path) -> None:
    """Of more than six columns, those that the predicate needs are drawn, and the others named."""
    rows = pa.table({"i": range(1000), **dict.fromkeys("cdefgh", range(1000)), "b": [n >= 500 for n in range(1000)]})
    table = zskip.write(rows, tmp_path / "t", by=["i"], files=20)
    cases = ["b", "NOT b", "b IS FALSE", "b IS NOT TRUE", "NOT (b = true)", "NOT b AND i >= 0"]
    show(browser, table.explore(tmp_path / "page.html", where=" OR ".join(f"(({case}) IS TRUE)" for case in cases)))
    assert text_of(browser, "undrawn").startswith("Not drawn: g, h. Choose the columns by columns=")
    assert [*browser.execute_script("return zskipPage.columns.map((each) => each.path)")] == list("ibcdef")
    for part, where in enumerate(cases):
        assert survivors(browser, part) == planned(table, where), where
        assert sum(survivors(browser, part)) == 10


def test_a_file_says_why_and_a_wrong_constant_changes_nothing(
    browser: Any, hostile: zskip.Table, tmp_path: Path
) -> None:
    workload = [
        "d IS NULL",
        "i = 3",
        "SELECT s, count(*) FROM hostile WHERE i = 3 AND s > 'a' GROUP BY s",
        "SELECT s FROM t",
    ]
    # The page cannot evaluate the last condition: it keeps the outcomes of that.
    where = "i > {} AND s = 'ax' AND lower(s) = 'ax'"
    page = hostile.explore(tmp_path / "page.html", where=where.format(450), workload=workload)
    show(browser, page)
    browser.execute_script("zskipTell(0)")
    assert "i > 450" in text_of(browser, "file")
    assert len(browser.find_elements("css selector", "#conditions tr")) == 3
    assert any(words in text_of(browser, "file") for words in ("no row can match", "some rows may match"))
    assert "row group" in text_of(browser, "file")
    listed = [row.text for row in browser.find_elements("css selector", "#workload tr")]
    files = [sum(planned(hostile, where)) for where in ("d IS NULL", "i = 3", "i = 3 AND s > 'a'", "TRUE")]
    assert [
        line for query, number, line in zip(workload, files, listed, strict=True) if f"{query} {number} " not in line
    ] == []
    assert listed[3].endswith("40 100.0 % 100.0 % 100.0 %")
    assert not browser.find_element("id", "alternatives-section").is_displayed()
    before = kept(browser)
    assert before == planned(hostile, where.format(450))
    for text in ("many", "450.5", "0x10", ""):
        change(browser, 0, text)
        assert kept(browser) == before
        wrong = browser.find_element("css selector", "#constants .wrong").text
        assert wrong == f"“{text}” is not a {'whole ' * (text == '450.5')}number; the plan still has 450"
    change(browser, 0, "100")
    assert text_of(browser, "changed") == "but with i > 100"
    change(browser, 0, "450")
    assert text_of(browser, "changed") == browser.find_element("css selector", "#constants .wrong").text == ""
    change(browser, 0, "0")
    assert kept(browser) == planned(hostile, where.format(0))
    assert sum(kept(browser)) > sum(before)
    # The files that are read are drawn in a strip out of sight when it comes into sight.
    browser.execute_script("document.querySelector('.strips').lastElementChild.scrollIntoView()")
    strip = browser.execute_script("return zskipPage.columns.at(-1).path")
    wait_for(
        browser,
        "const boxes = (name) => Array.from(Bokeh.documents[0].get_model_by_name(name).data.bottom);"
        "const every = boxes('strip:' + arguments[0] + ':files'), read = boxes('strip:' + arguments[0] + ':read');"
        "return every.length > 0 && String(every.filter((_, file) => zskipPage.kept[file])) === String(read)",
        strip,
    )


def test_times_are_typed_to_the_microsecond_and_never_rounded(browser: Any, tmp_path: Path) -> None:
    start = datetime(1969, 12, 31, 23, 59, 59, 999_995)
    moments = [start + timedelta(microseconds=number) for number in range(10)]
    times = [(start.replace(hour=1) + timedelta(microseconds=number)).time() for number in range(10)]
    text = "</script><script>document.body.dataset.harmed = 'yes'</script>"  # from a table, text is only text
    rows = pa.table({"t": moments, "c": times, text: ["a", text] * 5})
    table = zskip.write(rows, tmp_path / "t", by=["t"], files=10)
    where = "t >= TIMESTAMP '{}' AND c < TIME '{}'"
    show(browser, table.explore(tmp_path / "page.html", where=where.format(moments[1], rows["c"][4])))
    assert sum(kept(browser)) == 3
    browser.execute_script("zskipTell(1)")
    assert not browser.execute_script("return document.body.dataset.harmed")
    assert browser.execute_script("return document.getElementById('undrawn').hidden")
    fields = [field.get_attribute("value") for field in browser.find_elements("css selector", "#constants input[name]")]
    assert fields == ["1969-12-31 23:59:59.999996", "01:59:59.999999"]
    for constants in (("1969-12-31 23:59:59.999999", "02:00:00.000003"), ("1970-01-01", "02:00:00.000004")):
        for number, text in enumerate(constants):
            change(browser, number, text)
        assert kept(browser) == planned(table, where.format(*constants))
    before = kept(browser)
    assert sum(before) == 4
    for number, text, reason in (
        (0, "1970-01-01 00:00:00.0000001", "the column has 6 decimals of a second"),
        (0, "1970-02-30", "“1970-02-30” is not a timestamp such as 2024-01-31 12:00:00"),
        (1, "25:00", "“25:00” is not a time such as 12:00:00"),
    ):
        change(browser, number, text)
        assert kept(browser) == before
        assert reason in browser.find_elements("css selector", "#constants .wrong")[number].text


@pytest.mark.slow
def test_other_layouts_stand_beside_today(browser: Any, tmp_path: Path) -> None:
    """The rows are sorted by a alone, so a look-up on b reads all files, and a layout of both does not."""
    random = np.random.default_rng(1)
    rows = pa.table({"a": random.integers(0, 1000, 20_000), "b": random.integers(0, 1000, 20_000)})
    table = zskip.write(rows, tmp_path / "t", by=["a", "b"], layout="linear", files=16)
    page = table.explore(tmp_path / "page.html", where="b = 7", workload=["b = 9 OR b = 11"], alternatives=True)
    show(browser, page)
    lines = [row.text.split() for row in browser.find_elements("css selector", "#alternatives tr")]
    assert [line[0] for line in lines][:4] == ["today", lines[1][0], "hilbert", "linear"]
    assert [line[3] for line in lines] == ["16"] * 4 + ["64"] * 3
    today, best, _, linear, more, *_ = [float(line[-4]) for line in lines]  # the rows that are read, in percent
    assert today > 95 < linear
    assert more < best < 45


@pytest.mark.slow
def test_attributes_of_dimensions_are_columns_of_the_page(browser: Any, tmp_path: Path) -> None:
    """They were left out, and other layouts failed for a column that the rows lack."""
    zskip.write(pa.table({"k": range(8), "region": ["AFRICA", "ASIA"] * 4}), tmp_path / "customer", by=["k"])
    joins = {"customer": (str(tmp_path / "customer"), {"ck": "k"})}
    rows = pa.table({"ck": [number % 8 for number in range(400)], "day": range(400)})
    table = zskip.write(rows, tmp_path / "facts", by=["customer.region", "day"], joins=joins, files=8)
    where = "\"customer.region\" = 'ASIA' AND day < 100"
    show(browser, table.explore(tmp_path / "star.html", where=where, alternatives=True))
    assert sum(kept(browser)) == 1
    labels = browser.execute_script(
        "return [0, 0.5, 1, 2].map((tick) => axisLabel(zskipPage, '\"customer.region\"', tick))"
    )
    assert labels == ["AFRICA", "", "ASIA", ""]
    show(browser, table.explore(tmp_path / "some.html", columns=["customer.region", "day"]))
    assert list(table.clustering(["customer.region"])) == ["customer.region"]


def test_a_notebook_shows_a_plan_as_its_picture(hostile: zskip.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = hostile.plan("i > 450 AND s = '<b>'")
    shown = plan._repr_html_()
    assert shown.count("<svg") == 1
    assert f"{len(plan)} of 40 read" in shown
    assert "<b>" not in shown
    assert "<svg" in hostile.plan()._repr_html_()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert plan._repr_html_().startswith("<pre>")


@pytest.mark.slow
def test_between_is_one_condition_beside_another(browser: Any, hostile: zskip.Table, tmp_path: Path) -> None:
    where = "i BETWEEN 100 AND 120 AND s >= 'b' AND (d IS NULL OR d < DATE '2024-02-01')"
    show(browser, hostile.explore(tmp_path / "page.html", where=where))
    assert kept(browser) == planned(hostile, where)
    rows = [row.text for row in browser.find_elements("css selector", "#conditions tr")]
    for row, text in zip(rows, ("i BETWEEN 100 AND 120", "s >= 'b'"), strict=False):
        assert row.startswith(f"{text} {40 - sum(planned(hostile, text))} "), rows


def many_files(folder: Path, count: int, names: str = "ab", *, floats: bool = False, width: int = 2_000) -> zskip.Table:
    """The index of a table of so many files with random boxes: no data is written, and a page reads none."""
    random = np.random.default_rng(3)
    exact, none = pa.array(np.ones(count, bool)), pa.array(np.zeros(count, np.int64))
    columns = {}
    for name in names:
        lower = random.random(count) * 10**6 if floats else random.integers(0, 10**6, count)
        upper = lower + (random.random(count) * width if floats else random.integers(0, width, count))
        columns[name] = ColumnStatistics(pa.array(lower), pa.array(upper), none, none, exact, exact)
    units = FileStatistics(pa.array(np.full(count, 100_000)), columns)
    paths = pa.array([f"part-{number}.parquet" for number in range(count)])
    sizes, unknown = pa.array(np.full(count, 10_000_000)), pa.nulls(count, pa.int64())
    data = DataFiles(paths, sizes, unknown, pa.nulls(count, pa.string()), units, units, np.arange(count + 1))
    schema = Schema(pa.schema({name: pa.float64() if floats else pa.int64() for name in names}))
    commit(open_storage(str(folder)), None, TableUpdate("index", add=data, schema=schema, managed=False))
    return zskip.open(folder)


SOURCE = "Bokeh.documents[0].get_model_by_name(arguments[0]).data"


@pytest.mark.slow
def test_many_files_are_drawn_as_one_image_and_as_boxes_when_few_are_in_sight(browser: Any, tmp_path: Path) -> None:
    table = many_files(tmp_path / "many", 6_000)
    where = "a BETWEEN 500000 AND 560000 AND b < 400000"
    show(browser, table.explore(tmp_path / "page.html", where=where))
    wait_for(browser, f"return {SOURCE}.image.length === 1", "picture:image")
    bounds = {
        name: [np.array(each) for each in browser.execute_script(
            "const own = zskipPage.levels[0].bounds[arguments[0]]; return [[...own.lower], [...own.upper]]", name
        )]
        for name in "ab"
    }  # fmt: skip
    read = np.array(planned(table, where), bool)

    def lit() -> Any:
        """The pixels of files that are read: True, from the bottom up."""
        image = browser.execute_script(
            f"const [image] = {SOURCE}.image, lit = zskipPage.colors.lit; return [image.shape, [...image].map("
            "(pixel) => pixel === lit ? 1 : 0).join('')]",
            "picture:image",
        )
        return np.array(list(image[1]), int).reshape(image[0]).astype(bool)

    def expected(keep: Any) -> Any:
        shown = lit()
        pixels = np.zeros_like(shown)
        ranges = browser.execute_script(
            "const {x_range, y_range} = Bokeh.documents[0].get_model_by_name('picture');"
            "return [[x_range.start, x_range.end], [y_range.start, y_range.end]]"
        )
        places = []
        for (start, end), (lower, upper), size in zip(ranges, bounds.values(), shown.shape[::-1], strict=True):
            ends = (np.array([lower - 0.5, upper + 0.5]) - start) / (end - start) * size
            places.append(np.clip(np.floor(ends), 0, size - 1).astype(int))
        for left, right, low, high in zip(*places[0][:, keep], *places[1][:, keep], strict=True):
            pixels[low : high + 1, left : right + 1] = True
        return pixels

    assert 0 < lit().sum() < lit().size / 10
    assert (lit() == expected(read)).all()
    change(browser, 1, "800000")
    read = np.array(planned(table, where.replace("560000", "800000")), bool)
    wait_for(
        browser, "return new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(() => then(true))))"
    )
    assert (lit() == expected(read)).all()

    browser.execute_script(
        "const {x_range, y_range} = Bokeh.documents[0].get_model_by_name('picture');"
        "x_range.setv({start: 490000, end: 520000}); y_range.setv({start: 300000, end: 500000});"
    )
    wait_for(browser, f"return {SOURCE}.left.length > 0", "picture:files")
    seen = (bounds["a"][1] >= 490_000) & (bounds["a"][0] <= 520_000)
    seen &= (bounds["b"][1] >= 300_000) & (bounds["b"][0] <= 500_000)
    for source, files in (("files", seen), ("read", seen & read)):
        drawn = browser.execute_script(f"return [...{SOURCE}.left]", f"picture:{source}")
        assert drawn == (bounds["a"][0][files] - 0.5).tolist()
    assert browser.execute_script(f"return {SOURCE}.image.length", "picture:image") == 0


@pytest.mark.slow
def test_a_click_chooses_the_smallest_box_there_or_one_nearby(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver import ActionChains

    table = many_files(tmp_path / "few", 30, width=600_000)
    show(browser, table.explore(tmp_path / "page.html", where="a < 500000"))
    assert re.match(r"part-\d+\.parquet: read, ", text_of(browser, "file"))
    wait_for(browser, f"return {SOURCE}.left.length === 30", "picture:files")
    boxes = browser.execute_script(
        f"return ['left', 'right', 'bottom', 'top'].map((side) => [...{SOURCE}[side]])", "picture:files"
    )
    left, right, bottom, top = np.array(boxes)
    across, up = (left + right) / 2, (bottom + top) / 2

    def smallest(file: int) -> int:
        around = (left <= across[file]) & (right >= across[file]) & (bottom <= up[file]) & (top >= up[file])
        return int(np.argmin(np.where(around, (right - left) * (top - bottom), np.inf)))

    assert len({smallest(file) for file in range(30)}) < 25
    for file in range(30):
        browser.execute_script("zskipTap(arguments[0], arguments[1])", across[file], up[file])
        assert text_of(browser, "file").startswith(f"part-{smallest(file)}.parquet: ")
    last = text_of(browser, "file")
    browser.execute_script("zskipTap(-1e9, -1e9)")
    assert text_of(browser, "file") == last
    # By the mouse, at the corner of all boxes: nothing is there, and the file of the box that ends beside it is meant.
    ranges = browser.execute_script(
        "const {x_range: x, y_range: y, inner_width, inner_height} = Bokeh.documents[0].get_model_by_name('picture');"
        "return [x.start, x.end, inner_width, y.start, y.end, inner_height]"
    )
    frame = browser.execute_script(
        "const {bbox} = Bokeh.index.roots[0].frame, own = Bokeh.index.roots[0].el.getBoundingClientRect();"
        "return [own.left + bbox.left, own.top + bbox.top]"
    )
    file = int(np.argmax(right))
    aside = frame[0] + 2 + (right[file] - ranges[0]) / (ranges[1] - ranges[0]) * ranges[2]
    above = frame[1] + (1 - (up[file] - ranges[3]) / (ranges[4] - ranges[3])) * ranges[5]
    ActionChains(browser).move_by_offset(aside, above).click().perform()
    wait_for(browser, f"return document.getElementById('file').textContent.startsWith('part-{file}.parquet: ')")
    wait_for(browser, f"return {SOURCE}.left.length === 1", "picture:chosen")


@pytest.mark.slow
def test_bounds_that_do_not_compress_leave_columns_out_and_stay_exact(browser: Any, tmp_path: Path) -> None:
    table = many_files(tmp_path / "many", 100_000, "abcd", floats=True)
    where = "b BETWEEN {0} AND 501000.5 AND a < 100000"
    page = table.explore(tmp_path / "page.html", where=where.format(500_000))
    assert page.stat().st_size < 5_000_000
    show(browser, page)
    assert text_of(browser, "left-out") == "Left out, since the page would exceed 5 MB: c, d."
    assert kept(browser) == planned(table, where.format(500_000))
    change(browser, 0, "500123.4567890123")
    assert kept(browser) == planned(table, where.format("500123.4567890123"))


def test_columns_fill_the_page_in_their_order_after_those_that_are_needed() -> None:
    random = np.random.default_rng(1)
    columns = {name: ((), [random.random(1000)]) for name in "abcd"}
    assert fitting(columns, {"c"}, 30_000) == {"a", "b", "c"}
    assert fitting(columns, {"c"}, 0) == {"c"}
    assert fitting(columns, set(), 0) == {"a"}
    assert fitting({**columns, "a": (["x" * 20_000], [np.zeros(1000)])}, set(), 25_000) == {"a"}


INF = float("inf")
# The bounds of one file, those that the page gets, and whether it may compare them with constants.
BOUNDS = [
    (pa.int64(), 3, 5, [3, 5], True),
    (pa.int64(), 3, None, [3, INF], True),
    (pa.int64(), 5, 3, [-INF, INF], True),  # the planner does not use them either
    (pa.int64(), 3, 2**60, [3, 2**60], False),
    (pa.uint8(), 0, 255, [0, 255], True),
    (pa.uint8(), None, 0, [-INF, 0], True),
    (pa.uint64(), 0, 2**64 - 1, [0, 2**64], False),
    (pa.bool_(), False, True, [0, 1], True),
    (pa.decimal128(9, 2), Decimal("0.01"), Decimal(7), [1, 700], True),
    (pa.decimal128(21, 2), Decimal("0.25"), Decimal(10**18), [0.25, 1e18], False),
    (pa.decimal128(38, 10), None, Decimal("0.5"), [-INF, 0.5], False),
    (pa.float64(), float("nan"), 2.5, [-INF, 2.5], True),
    (pa.string(), "", "b", [1, 3], True),
    (pa.string(), None, "b", [-INF, 1], True),
    (pa.binary(), b"\x00", b"\xff", [1, 3], False),
    (pa.null(), None, None, [-INF, INF], True),
]


@pytest.mark.parametrize(("type", "lower", "upper", "expected", "exact"), BOUNDS)
def test_the_page_gets_the_known_bounds(type: Any, lower: Any, upper: Any, expected: list[float], exact: bool) -> None:
    flags = [pa.array([flag]) for flag in (True, False, False)]
    ranges = Ranges(pa.array([lower], type), pa.array([upper], type), *flags)
    reference = Reference("a", pa.int64() if pa.types.is_null(type) else type)
    [column], [level] = columns_of([reference], [Statistics(pa.array([9]), {"a": ranges})])
    assert [end[0] for end in level.bounds["a"][:2]] == expected
    assert column.exact == exact
    assert column.texts == ([] if column.kind != "text" else ["00", "ff"] if not exact else ["", "b"][lower is None :])


def test_only_what_is_known_is_drawn(browser: Any, tmp_path: Path) -> None:
    """Columns without ranges had pictures, of decimals of more than 18 digits and files of NULL alone too."""
    folder = tmp_path / "t"
    folder.mkdir()
    for file in range(3):
        rows = {
            "price": pa.array([Decimal(f"{file}.25"), Decimal(f"{file}.75")], pa.decimal128(21, 2)),
            "some": pa.array([None, None] if file == 1 else [file, file + 1], pa.int64()),
            "ok": [file > 0] * 2,
            "raw": [bytes([file]), b"\xff"],
            "void": pa.nulls(2, pa.int64()),
            "tags": [[1], [2]],
        }
        pq.write_table(pa.table(rows), folder / f"{file}.parquet")
    where = "price < 1.5 AND ok = false AND void IS NULL"
    table = zskip.index(folder)
    show(browser, table.explore(tmp_path / "page.html", where=where))
    assert kept(browser) == planned(table, where) == [1, 0, 0]
    assert text_of(browser, "without-ranges") == "2 columns have no ranges and are not drawn: void, tags."
    strips = browser.execute_script("return [...document.querySelectorAll('.strips > div')].map((each) => each.id)")
    assert strips == [f"view:strip:{path}" for path in ("ok", "price", "some", "raw")]
    choose = browser.find_element("id", "number")
    choose.clear()
    choose.send_keys("1\t")
    own = {row.text for row in browser.find_elements("css selector", "#file tr")}
    assert own >= {"price about 1.25 to 1.75", "ok true to true", "raw 01 to ff", "some only NULL", "void only NULL"}
    change(browser, 0, "TRUE")
    assert kept(browser) == planned(table, where.replace("false", "true"))
    browser.execute_script("const up = document.getElementById('up'); up.value = 'some'; up.onchange()")
    assert text_of(browser, "boxless") == "1 file without known values in these two columns has no box."
    with pytest.raises(InvalidOption, match="has a range of void to show"):
        table.explore(tmp_path / "page.html", columns=["void"])


def test_a_file_without_statistics_has_the_limits_of_its_types(browser: Any, tmp_path: Path) -> None:
    rows = pa.table({"u": pa.array([1, 9], pa.uint8()), "s": ["a", "b"], "b": [False, True], "f": [1.0, 2.0]})
    for file in range(2):
        pq.write_table(rows, tmp_path / f"{file}.parquet", write_statistics=file == 0)
    table = zskip.index(tmp_path)
    cases = ["u < 0", "u > 255", "u <= 0", "b > true", "b < false", "s < ''", "NOT (s >= '')", "s <= ''"]
    cases += ["f < -1e300", "f > 1e300", "f > 1e308 AND f < 1.5e308"]
    show(browser, table.explore(tmp_path / "page.html", where=" OR ".join(f"(({case}) IS TRUE)" for case in cases)))
    for part, where in enumerate(cases):
        assert survivors(browser, part) == planned(table, where), where
    assert [survivors(browser, part)[1] for part in range(len(cases))] == [0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1]


def test_labels_of_axes_are_short_and_no_condition_needs_no_list(browser: Any, tmp_path: Path) -> None:
    rows = pa.table(
        {"url": [f"https://example.org/{name}" for name in ("a", "a/long/path/below", "b")], "n": [1, 2, 3]}
    )
    show(browser, zskip.write(rows, tmp_path / "t", by=["n"], files=3).explore(tmp_path / "page.html"))
    for path, tick, label in (
        ("url", 0, "…a"),
        ("url", 1, "…a/long/path/b…"),
        ("n", 0.1 * 3, "0.3"),
        ("n", 2e15, "2e15"),
        ("n", 1_234_567, "1234567"),
        ("n", -4e-11, "-4e-11"),
    ):
        assert browser.execute_script("return axisLabel(zskipPage, ...arguments)", path, tick) == label
    assert not browser.find_element("id", "conditions-section").is_displayed()


def test_the_page_is_dark_where_the_reader_prefers_it(browser: Any, hostile: zskip.Table, tmp_path: Path) -> None:
    show(browser, hostile.explore(tmp_path / "page.html", where="i > 450"))
    script = (
        "const style = getComputedStyle(document.body), {el, model} = Bokeh.index.roots[0];"
        "const mark = model.renderers.find((each) => each.name === 'mark').glyph.line_color.value;"
        "const label = getComputedStyle(el).getPropertyValue('--bk-major-label-text-color');"
        "return String([style.backgroundColor, style.color, mark, label]) === arguments[0]"
    )
    for scheme, paper, ink, label in (
        ("dark", "rgb(21, 26, 31)", "rgb(216, 223, 229)", "#d8dfe5"),
        ("light", "rgb(255, 255, 255)", "rgb(29, 43, 54)", "#1d2b36"),
    ):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        wait_for(browser, script, f"{paper},{ink},{ink},{label}")


def test_a_table_without_files_is_refused(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "t", by=["a"])
    assert table.plan().paths == []
    with pytest.raises(InvalidOption, match="no files"):
        table.explore(tmp_path / "page.html")


def test_a_path_that_cannot_be_written_is_refused_before_the_work(hostile: zskip.Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r'There is no folder ".*nodir" for x.html'):
        hostile.explore(tmp_path / "nodir" / "x.html", where="not even SQL (")
    with pytest.raises(InvalidOption, match="is a folder"):
        hostile.explore(tmp_path, where="not even SQL (")
    (tmp_path / "data.html").write_text("""grep '<meta name="generator" content="zskip explore">' *.html""")
    with pytest.raises(InvalidOption, match=r"data.html\" is there, and is no page of explore"):
        hostile.explore(tmp_path / "data.html", where="not even SQL (")


def test_a_condition_without_a_field_says_so(hostile: zskip.Table, tmp_path: Path) -> None:
    fixed = "its constants cannot be changed here"
    for where, found in (("abs(i) > 450", True), ("i > 450", False)):
        assert (fixed in hostile.explore(tmp_path / "page.html", where=where).read_text()) == found


def test_a_page_replaces_an_earlier_one_and_an_empty_file(hostile: zskip.Table, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.touch()
    for where in ("i > 450", pc.field("i") > 450):
        page = hostile.explore(target, where=where, columns=["i"]).read_text()
        assert '{"is": "compare", "op": ">", "column": "i", "constant": {"key": 450.0}}' in page


@pytest.mark.slow
def test_axes_by_rank_spread_values_that_lie_close_together(browser: Any, tmp_path: Path) -> None:
    ports = pa.table({"port": [20, 22, 25, 53, 80, 443, 8080, 65_000], "text": list("abcdefgh")})
    table = zskip.write(ports, tmp_path / "t", by="port", files=4)
    show(browser, table.explore(tmp_path / "page.html", where="port = 53 AND text >= 'c'"))
    wait_for(browser, f"return {SOURCE}.left.length > 0", "picture:files")
    drawn = f"return [[...{SOURCE}.left], [...{SOURCE}.right]]"
    assert browser.execute_script(drawn, "picture:files") == [[19.5, 24.5, 79.5, 8079.5], [22.5, 53.5, 443.5, 65000.5]]
    browser.execute_script("document.getElementById('by-rank').click()")
    wait_for(browser, f"return {SOURCE}.left[0] === -0.5", "picture:files")
    assert browser.execute_script(drawn, "picture:files") == [[-0.5, 1.5, 3.5, 5.5], [1.5, 3.5, 5.5, 7.5]]
    assert browser.execute_script(f"return [...{SOURCE}.at]", "across-constants") == [3]  # the rank of 53
    assert browser.execute_script("return [0, 3, 7].map((tick) => axisLabel(zskipPage, 'port', tick))") == [
        "20",
        "53",
        "65000",
    ]
    change(browser, 0, "50")
    assert browser.execute_script(f"return [...{SOURCE}.at]", "across-constants") == [2 + 25 / 28]
