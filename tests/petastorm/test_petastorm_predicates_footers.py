"""The statistics of real footers never spare the reading of a row that a predicate selects."""

from __future__ import annotations

import datetime
import math
import operator
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm.predicates import in_lambda, in_negate, in_pseudorandom_split, in_reduce, in_set
from sizes import sized

from data_stack.exception import ConfigError
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.selecting import Predicate, as_predicate, col

N_ROWS = 4
MIDNIGHT = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)

#: For each type of Parquet's, values among which some are equal, and some are hard to bound.
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "int": (pa.int32(), [-5, -1, 0, 1, 3]),
    "unsigned": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "float": (pa.float32(), [0.1, 0.5, math.nan, -1.0, math.inf]),
    "text": (pa.string(), ["", "a", "b", "ab" * 60, "ab" * 60 + "c", "ü"]),
    "bytes": (pa.binary(), [b"", b"\xff", b"a" * 100, b"a"]),
    "date": (pa.date32(), [datetime.date(2020, 1, day) for day in (1, 2, 3)]),
    "time": (pa.timestamp("us"), [datetime.datetime(2020, 1, 1, hour) for hour in (0, 5, 23)]),
    "zoned": (pa.timestamp("ms", tz="UTC"), [MIDNIGHT + datetime.timedelta(hours=hours) for hours in (0, 7, 30)]),
    "decimal": (pa.decimal128(8, 2), [Decimal("0.10"), Decimal("-3.00"), Decimal("2.55")]),
    "bool": (pa.bool_(), [True, False]),
    "clock": (pa.time64("us"), [datetime.time(0), datetime.time(12, 30)]),
}
OPERATORS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


def random_table(choice: random.Random) -> pa.Table:
    columns = {}
    for name, (type_, values) in VALUES.items():
        some = choice.choice([[choice.choice(values)], values])  # often but one value
        nulls = choice.choice([0.0, 0.0, 0.3, 1.0])
        columns[name] = pa.array([None if choice.random() < nulls else choice.choice(some) for _ in range(N_ROWS)], type_)
    return pa.table(columns)


def random_predicate(choice: random.Random) -> Predicate:
    name = choice.choice(list(VALUES))
    values = VALUES[name][1]
    is_naive = name == "zoned" and choice.random() < 0.5  # a time without a zone is one of UTC
    in_utc = [value.replace(tzinfo=None) for value in values] if is_naive else values
    comparable = [datetime.timedelta(hours=value.hour, minutes=value.minute) for value in values] if name == "clock" else in_utc
    if name == "unsigned":  # pyarrow takes Python's integers for int64, to which it cannot cast the large ones of a column
        comparable = [pa.scalar(value, pa.uint64()) for value in values]
    makers: list[Callable[[], Any]] = [
        lambda: choice.choice(OPERATORS)(col(name), choice.choice(comparable)),
        lambda: choice.choice(OPERATORS)(col(name), choice.choice(comparable)),
        lambda: ~choice.choice(OPERATORS)(col(name), choice.choice(comparable)),
        lambda: col(name).isin(choice.choices(comparable, k=2)),
        lambda: in_set([*choice.choices(values, k=2), None], name),
        lambda: in_set(choice.choices(values, k=2), name),
        lambda: col(name).is_null(),
        lambda: in_lambda([name], lambda value: value is not None and str(value) > "2"),
        lambda: in_pseudorandom_split([0.5, 0.5], 0, name),
    ]
    return as_predicate(choice.choice(makers)())


def random_combination(choice: random.Random) -> Predicate:
    predicate = random_predicate(choice)
    for _ in range(choice.randrange(3)):
        combine: list[Callable[[Predicate], Predicate]] = [
            lambda one: in_reduce([one, random_predicate(choice)], all),
            lambda one: in_reduce([one, random_predicate(choice)], any),
            in_negate,
        ]
        predicate = choice.choice(combine)(predicate)
    return predicate


@pytest.mark.parametrize("seed", range(sized(1, 6)))
def test_footers_spare_reading_and_leave_out_no_row(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    with pq.ParquetWriter(tmp_path / "a.parquet", random_table(choice).schema) as writer:
        for _ in range(20):
            writer.write_table(random_table(choice))
    columns = ParquetDataset(tmp_path).read_batch(slice(None))
    n_spared = 0

    for _ in range(30):
        predicate = random_combination(choice)
        rows = np.flatnonzero(predicate.mask(columns))

        with patch.object(RowGroups, "read", autospec=True, side_effect=RowGroups.read) as read:
            assert len(ParquetDataset(tmp_path, filters=predicate)) == len(rows), predicate
        n_spared += 20 - read.call_count

    assert n_spared > 50


def test_bounds_of_float32_leave_out_no_row_that_rounded_members_equal(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([0.1, 0.1], pa.float32())}), tmp_path / "a.parquet")

    assert len(ParquetDataset(tmp_path, filters=col("x").isin([0.1]))) == 2


def test_times_with_a_zone_are_compared_as_pyarrow_does_and_spare_row_groups(tmp_path: Path) -> None:
    utc, rome = datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=1))
    times = [datetime.datetime(2020, 1, day, tzinfo=utc) for day in range(1, 9)]
    zones = {
        f"{unit} {zone}": pa.array(times, pa.timestamp(unit, zone)) for unit in ("ms", "us", "ns") for zone in ("UTC", "+01:00")
    }
    naive = pa.array([time.replace(tzinfo=None) for time in times], pa.timestamp("us"))
    pq.write_table(pa.table({**zones, "naive": naive}), tmp_path / "a.parquet", row_group_size=2)

    for name in zones:
        of_zone = pa.scalar(times[4], zones[name].type)
        for filters in (
            col(name) >= times[4],
            col(name) >= times[4].astimezone(rome if name[0] != "n" else utc),
            [(name, ">=", times[4])],
            col(name) >= of_zone,
            in_reduce([col(name) >= times[4], col(name) > times[0].replace(tzinfo=None)], all),
        ):
            with patch.object(RowGroups, "read", autospec=True, side_effect=RowGroups.read) as read:
                assert len(ParquetDataset(tmp_path, filters=filters)) == 4
            assert read.call_count == (4 if isinstance(filters, Predicate) else 2)  # bounds are compared in one way only
        assert pq.read_table(tmp_path / "a.parquet", filters=col(name) >= of_zone).num_rows == 4
        assert len(ParquetDataset(tmp_path, filters=col(name).isin(times[:3]))) == 3
    with pytest.raises(ConfigError, match=r"row group \d .*Cannot compare timestamp with timezone to timestamp without timezone"):
        len(ParquetDataset(tmp_path, filters=col("naive") > times[0]))
