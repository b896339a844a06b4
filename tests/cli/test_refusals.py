"""What the command line refuses: the exit code, the words on stderr, and nothing on stdout or left in the folder."""

from __future__ import annotations

import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.cli.main import main

# The exit code, the command, and what stderr says.
CASES = [
    # names that are mistyped, and arguments that are missing or too many
    (2, "wrote", "usage: zskip"),
    (2, "write", "usage: zskip"),
    (2, "plan x", "usage: zskip"),
    (2, "advice", 'Did you mean "advise"?'),
    (2, "inform t", 'Did you mean "info"?'),
    (2, "plan t 'a = 1' --explian", 'zskip plan: error: there is no option "--explian". Did you mean "--ex'),
    (2, "write a b --layuot=tree", 'there is no option "--layuot". Did you mean "--layout"?'),
    (2, "sql 'SELECT 1'", 'there is no "sql". "zskip query" answers whole statements.'),
    (2, "repair t", 'there is no "repair". "zskip index --repair" rebuilds'),
    (2, "refresh raw", 'there is no "refresh". "zskip index --refresh" takes'),
    (2, "plan t --where 'a = 1'", 'there is no option "--where": the predicate stands behind the path, in quotes.'),
    (2, "optimize t --by b", 'there is no option "--by" here: zskip cluster lays a table out by other columns.'),
    (2, "write a b --mode apend", 'Did you mean "append"?'),
    (2, "plan t a = 1", '"=" is one argument too many. Quote a predicate that has spaces.'),
    (2, "plan t a -- --b", '"--b" is one argument too many.'),
    (2, "plan t 'a = 1' --xyzzy", 'there is no option "--xyzzy".\n'),
    (2, "completion bsh", 'Did you mean "bash"?'),
    (2, "plan t --explian", 'there is no option "--explian". Did you mean "--explain"?'),
    (2, "advise --worklod=q.sql", 'there is no option "--worklod". Did you mean "--workload"?'),
    (2, "plan t --exp", "the following arguments are required: predicate"),
    (2, "query flights TRUE --json --csv", "--csv: not allowed with argument --json"),
    # values that an option does not take
    (2, "write a b --files many", '"many" is not a whole number.'),
    (2, "restore t x", '"x" is not a whole number.'),
    (2, "query t --limit 2.5", '"2.5" is not a whole number.'),
    (2, "tend t --max-seconds soon", '"soon" is not a number.'),
    (2, "verify t --predicates -3", "--predicates is a whole number of at least 0, not -3."),
    (2, "query flights TRUE --limit -1", "--limit is a number of rows"),
    (2, f"query flights TRUE --limit {'9' * 23}", "--limit is a number of rows"),
    (2, "write flights.parquet new --by date --files 0", "--files"),
    (2, "write flights.parquet new --by date --layout tre", 'Did you mean "tree"?'),
    (2, "write flights.parquet new --by date --files 5 --rows-per-file 9", "--files, --rows-per-file and --file-size"),
    (2, "write flights.parquet new --by date --file-size 1XB", "--file-size is a size above zero"),
    (2, "write flights.parquet new --by date --weights 1,2", "of --by, none below 0"),
    (2, "write flights.parquet new --by date --sketch date", "columns and kinds of sketches are needed, as uid=values"),
    (2, "query x --param d=1 --param d=2", "--param gives d twice"),
    (2, "write flights.parquet new --by date --join date", "a dimension and its keys are needed, as customer="),
    (2, "append flights.parquet t --batch 7", 'a name and a number are needed, as in "loader:7"'),
    (2, "info t --storage-option region", "NAME=VALUE is needed"),
    (2, "append s3://b/x.parquet flights --storage-option no_such=1", "'no_such'"),
    (2, "overwrite s3://b/x.parquet flights --storage-option no_such=1", "'no_such'"),
    (2, "upsert s3://b/x.parquet flights --on date --storage-option no_such=1", "'no_such'"),
    (2, "append x.parquet flights --storage-option no_such=1", "is a local path"),
    (2, "append flights flights.parquet", "a table is a folder: it stands last, behind the source"),
    (2, "plan flights TRUE --as-of then", "--as-of is a time"),
    (2, "plot flights date distance --output nowhere/x.svg", 'There is no folder "nowhere" for x.svg'),
    (2, "plot flights date", "has two columns, not 1"),
    (2, "plot flights --depth --where 'distance = 1089'", "counts all look-ups"),
    (2, "sketch t", "either columns"),
    (2, "index raw --refresh --deep", "--deep is for a new index"),
    (2, "index raw --go-back", "--go-back needs --repair"),
    (2, "advise t --workload queries.sql --log-name t", "are for the queries of a log"),
    (2, "query 'SELECT 1 AS n' 'a = 1'", "goes with a table's path"),
    (2, "query 'SELECT 1 AS n' --columns n", "goes with a table's path"),
    (2, "query 'SELECT 1 AS n' --version 1", "goes with a table's path"),
    # tables, files and columns that are not there, or not what they should be
    (1, "plan none 'a = 1'", "There is no zskip table"),
    *(
        (1, f"{command} t ''", "The predicate is empty. TRUE matches all rows.")
        for command in ("plan", "query", "delete")
    ),
    (1, "query t '' --explain", "The predicate is empty. TRUE matches all rows."),
    (1, "plan t 'nope = 1'", "There is no column"),
    (1, "plan flights 'origin = JFK'", "Text needs single quotes."),
    (1, "plan flights 'origin IN (\"JFK\")'", "Text needs single quotes."),
    (1, "plan t 'a = 1' --file nope.parquet", "has no"),
    (1, "query t --columns nope", "There is no"),
    (1, "query flights TRUE --columns orign", 'Did you mean "origin"'),
    (1, "advise none --workload queries.sql", "There is no"),
    (1, "advise t --workload none", "cannot be read: No such file"),
    (1, "advise flights --workload flights.parquet", "is not UTF-8 text"),
    (1, "advise t --from-duckdb-log none", "There is no"),
    (1, "advise t --from-spark-eventlog none", "There is no"),
    (1, "bench t --queries none", "cannot be read"),
    (1, "explore t --workload none", "cannot be read"),
    (1, "restore t 99", "has no"),
    (1, "query \"SELECT * FROM 'plain'\"", "but 1 Parquet file. Index them by"),
    (1, "info new", "and no Parquet file. Make one with zskip write."),
    (1, "plan 'lake/*.parquet' TRUE", "A table is opened by its folder, not by a pattern."),
    (1, "query \"SELECT * FROM 'lake/new'\"", "zskip write or zskip index"),
    (2, "delete raw TRUE", "zskip cluster PATH --by … lays them out in place"),
    (2, "delete raw TRUE", "zskip write PATH NEW_PATH --by … writes a table of their rows"),
    (1, "index none", "There is no folder "),
    (1, "index raw", "Add --refresh"),
    (1, "index corrupt", "a.parquet"),
    (1, "write corrupt/a.parquet new --by x", "a.parquet"),
    (1, "write none new --by x", "none"),
    (2, "write plain plain/new --by date", "plain/new lies in its own source, the folder plain"),
    (2, "write raw raw/day=1/new --by date", "new lies in its own source, the folder raw"),
    (1, "write flights.parquet new --by carier", 'Did you mean "carrier"?'),
    (1, "write nested.parquet new --by list", "cannot be ordered"),
    (1, "write flights.parquet flights --by date", "Say --mode append or --mode overwrite."),
    # SQL: the error points into what was typed
    (1, "plan flights \"carier = 'UA'\"", "\n  carier = 'UA'\n  ^^^^^^\n"),
    (1, "plan flights \"carrier = = 'UA'\"", "\n  carrier = = 'UA'\n"),
    (1, "plan dots \"id.orig_h = 'a'\"", "put it in quotes"),
    (1, "plan flights \"WHERE carrier = 'UA'\"", "Leave out WHERE: give the condition alone."),
    (1, "plan flights \"`carrier` = 'UA'\"", 'dialect="spark" reads backticks'),
    (1, "query 'SELECT * FROM lake/trips'", "Quote the path of a table: FROM 'lake/trips'."),
    (1, "query \"SELECT nope FROM 'flights' WHERE carrier = 'UA'\"", "nope"),
    (1, "query \"SELECT 1 FROM 'flights' WHERE distance >\"", "syntax error at or near"),
    (1, "query \"SELEC count(*) FROM 't'\"", 'as SQL it does not parse: Parser Error: syntax error at or near "SELEC"'),
    (1, "query 'my lake'", 'There is no zskip table at "my lake"'),
    (1, "query \"DELETE FROM 'lake/t'\"", "zskip query runs queries, and this is none"),
    (1, "query 'DROP TABLE x'", "zskip delete change a table"),
    (1, "query lake", "There is no zskip table at"),
    (1, "query 'SELECT * FROM lake2'", "zskip table at the path lake2: FROM 'lake2' reads it"),
    (1, "query 'FROM plain'", "or in a shell by zskip index plain: then FROM 'plain' reads it"),
    (1, "query \"SELECT nope FROM 'lake2'\"", "\n  SELECT nope FROM 'lake2'\n         ^^^^\n"),
    (
        1,
        "query \"SELECT n FROM 'lake2' WHERE n > 'abc'\"",
        f"\n  SELECT n FROM 'lake2' WHERE n > 'abc'\n{' ' * 34}^^^^^\n",
    ),
    (1, "query lake2 \"n > 'abc'\"", "\n  n > 'abc'\n      ^^^^^\n"),
    (1, "query lake2 'order date = 3'", 'Quote the column\'s name: "order date".'),
    (1, "query lake2 \"SELECT n FROM 'lake2'\"", "or in a shell by zskip query"),
]


@pytest.fixture(scope="module")
def lake(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    rows = pq.read_table(fixtures / "flights.parquet", columns=["date", "carrier", "origin", "distance"]).slice(0, 500)
    pq.write_table(rows, folder / "flights.parquet")
    pq.write_table(pa.table({"list": [[1], [2]]}), folder / "nested.parquet")
    for name in ("raw", "corrupt", "plain"):
        (folder / name).mkdir()
    pq.write_table(rows, folder / "raw" / "x.parquet")
    pq.write_table(rows, folder / "plain" / "x.parquet")
    (folder / "corrupt" / "a.parquet").write_bytes(b"PAR1 this is not what it says PAR1")
    (folder / "queries.sql").write_text("a = 1")
    zskip.index(folder / "raw")
    zskip.write(rows, folder / "flights", by=["date", "distance"], files=4)
    zskip.write(pa.table({"a": range(400), "b": [n % 7 for n in range(400)]}), folder / "t", by="a", files=4)
    zskip.write(pa.table({"n": [1, 2], "order date": [3, 4]}), folder / "lake2", by="n")
    zskip.write(pa.table({"id.orig_h": ["a", "b"]}), folder / "dots", by='"id.orig_h"')
    return folder


@pytest.mark.parametrize(("code", "command", "message"), CASES, ids=[case[1][:60] for case in CASES])
def test_it_is_refused_in_words(
    code: int,
    command: str,
    message: str,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(lake)
    before = sorted(lake.rglob("*"))
    try:
        found: object = main(shlex.split(command))
    except SystemExit as stopped:  # by argparse
        found = stopped.code
    printed = capsys.readouterr()
    assert found == code
    assert message in printed.err
    assert printed.out == ""
    assert "Traceback" not in printed.err
    assert "LINE" not in printed.err  # of DuckDB's own errors, about a statement that was rewritten
    assert printed.err.count("^\n") <= 1
    assert sorted(lake.rglob("*")) == before


def test_a_traceback_on_request(lake: Path) -> None:
    with pytest.raises(zskip.ZskipError):
        main(["plan", str(lake / "flights"), "carier = 'UA'", "--traceback"])
