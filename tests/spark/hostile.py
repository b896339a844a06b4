"""Rows that break careless pruning: NULL, NaN, −0.0, infinities, extremes, quotes, awkward names, nested fields."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa

_TEXTS = ["", "a", "A", "ab", "a%b", "a_b", "a\\b", "it's", '"', "`", "é", "😀", "\n", "zz", "Zz", "a" * 300, "\uffff"]


def hostile(rows: int = 2000, seed: int = 7) -> pa.Table:
    """A table whose columns are more or less sorted, so that files can be told apart, each with its own traps."""
    random = np.random.default_rng(seed)
    number = np.arange(rows)

    def with_nulls(values: list[object], kind: pa.DataType, share: float = 0.1) -> pa.Array:
        # The third eighth is all NULL, the fourth has none.
        eighth = number * 8 // rows
        null = np.where(eighth == 2, True, np.where(eighth == 3, False, random.random(rows) < share))
        return pa.array([None if gone else value for value, gone in zip(values, null, strict=True)], kind)

    noisy = number + random.integers(-20, 20, rows)
    doubles = (noisy / 10.0).astype(object)
    special = random.integers(0, 40, rows)
    for code, value in enumerate([np.nan, -0.0, 0.0, np.inf, -np.inf, 5e-324, 1.5]):
        doubles[(special == code) & (number % 3 > 0) & (number > rows // 4)] = value
    doubles[number * 8 // rows == 6] = np.nan
    days = [dt.date(1969, 12, 1) + dt.timedelta(days=int(n) // 4) for n in noisy]
    moments = [dt.datetime(2018, 10, 27, 20) + dt.timedelta(seconds=int(n) * 60, microseconds=7) for n in noisy]
    small = noisy % 100
    return pa.table(
        {
            "i": with_nulls([int(n) - rows // 2 for n in noisy], pa.int32()),
            "big": with_nulls([int(n) * 4_611_686_018_427 - 2**62 for n in number], pa.int64()),
            "edge": with_nulls([[2**31 - 1, -(2**31), 0, int(n)][int(n) % 4] for n in noisy], pa.int32(), 0.02),
            "d": with_nulls(list(doubles), pa.float64()),
            "f": with_nulls([np.float32(n / 7) for n in noisy], pa.float32()),
            "m": with_nulls([Decimal(int(n)).scaleb(-2) for n in noisy], pa.decimal128(12, 2)),
            "s": with_nulls([_TEXTS[int(n) * len(_TEXTS) // (rows + 41) % len(_TEXTS)] for n in noisy], pa.string()),
            "code": with_nulls([f"k{int(n):06d}" for n in noisy], pa.string()),
            "bin": with_nulls([int(n).to_bytes(3, "big", signed=True) for n in noisy], pa.binary()),
            "day": with_nulls(days, pa.date32()),
            "ts": with_nulls(moments, pa.timestamp("us", "UTC")),
            "local": with_nulls(moments, pa.timestamp("us")),
            "yes": with_nulls([bool(n % 2) for n in small], pa.bool_()),
            "st": pa.StructArray.from_arrays(
                [with_nulls([int(n) for n in noisy], pa.int64()), with_nulls([str(n % 7) for n in noisy], pa.string())],
                ["a", "Deep"],
            ),
            "we ird`x": with_nulls([int(n) for n in small], pa.int16()),
            "few": pa.array([int(n) // 500 for n in number], pa.int8()),
        }
    )
