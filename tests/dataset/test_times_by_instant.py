"""Times are compared by instant, and never as letters or as numbers without a unit."""

from __future__ import annotations

import datetime
import zoneinfo
from typing import Any

import numpy as np
import pytest

from data_stack import SequenceDatasetIterator
from data_stack.exception import ConfigError

_UTC = datetime.timezone.utc
_BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
_NEW_YORK = zoneinfo.ZoneInfo("America/New_York")


def _instants(start: datetime.datetime, minutes: int, zone: datetime.tzinfo) -> list[Any]:
    step = datetime.timedelta(minutes=minutes)
    return [(start + number * step).astimezone(zone) for number in range(6)]


#: Half hours through the night in which the clocks are set back: 1:30, 2:00, 2:30, 2:00, 2:30,
#: 3:00.
_AUTUMN = _instants(datetime.datetime(2024, 10, 26, 23, 30, tzinfo=_UTC), 30, _BERLIN)
#: Hours through the night in which the clocks are put forward: 0, 1, 3, 4, 5, 6.
_SPRING = _instants(datetime.datetime(2024, 3, 30, 23, tzinfo=_UTC), 60, _BERLIN)


def _numbered(times: Any) -> Any:
    return SequenceDatasetIterator([times, list(range(len(times)))]).as_dict("t", "x")


def _numbers(iterator: Any) -> list[int]:
    return [int(number) for number in iterator.read_column("x")]


def test_an_hour_that_comes_twice_is_sorted_by_instant() -> None:
    places = [3, 0, 5, 1, 4, 2]

    shuffled = _numbered([_AUTUMN[place] for place in places])

    assert [places[number] for number in _numbers(shuffled.sort("t"))] == [0, 1, 2, 3, 4, 5]
    descending = _numbers(shuffled.sort("t", descending=True))
    assert [places[number] for number in descending] == [5, 4, 3, 2, 1, 0]


def test_an_hour_that_comes_twice_is_divided_by_instant() -> None:
    parts = _numbered(_AUTUMN).split([0.5, 0.5], time="t")

    assert list(map(_numbers, parts)) == [[0, 1, 2], [3, 4, 5]]


def test_instants_of_several_zones_are_one_order() -> None:
    mixed = [
        time.astimezone(_NEW_YORK) if number % 2 else time for number, time in enumerate(_AUTUMN)
    ]

    assert _numbers(_numbered(mixed[::-1]).sort("t")) == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("overlap", [True, False])
def test_a_clock_that_is_put_forward_leaves_no_gap(overlap: bool) -> None:
    hour = datetime.timedelta(hours=1)

    windows = _numbered(_SPRING).windows(2, order_by="t", max_gap=hour, overlap=overlap)

    assert len(windows) == (5 if overlap else 3)


@pytest.mark.parametrize("overlap", [True, False])
def test_a_clock_that_is_set_back_hides_no_gap(overlap: bool) -> None:
    # 2:00 and 2:30 after one and a half hours, which the clock on the wall does not show
    times = [_AUTUMN[1], _AUTUMN[4]]

    gap = datetime.timedelta(hours=1)

    assert len(_numbered(times).windows(2, order_by="t", max_gap=gap, overlap=overlap)) == 0


def test_the_first_and_last_instants_have_an_order() -> None:
    ahead = datetime.timezone(datetime.timedelta(hours=5))
    times = [
        datetime.datetime.max.replace(tzinfo=_UTC),
        datetime.datetime.min.replace(tzinfo=ahead),
    ]

    assert _numbers(_numbered(times).sort("t")) == [1, 0]


_TIMES = [
    np.arange(0, 3).astype("M8[s]"),
    np.arange(0, 3).astype("M8[ns]"),
    np.arange(0, 3).astype("m8[s]"),
    [np.datetime64(number, "s") for number in range(3)],
    [datetime.datetime(2020, 1, 1 + day) for day in range(3)],
    [datetime.date(2020, 1, 1 + day) for day in range(3)],
]


@pytest.mark.parametrize("times", _TIMES, ids=lambda times: str(getattr(times, "dtype", times[0])))
def test_a_gap_between_times_needs_a_unit(times: Any) -> None:
    with pytest.raises(ConfigError, match=r"1, a number without a unit: pass .*timedelta"):
        _numbered(times).windows(2, order_by="t", max_gap=1)


_IN_ORDER = [
    ["2022-12-30", "2022-12-31", "2023-01-02", "2024-01-03"],
    ["2022-12-30T09:00:00", "2022-12-30T10:00:00", "2023-01-01T00:00:00", "2024-01-01T00:00:00"],
    ["2022-12-30", "2022-12-30T10:00", "2022-12-30T10:00:30", "2023-01-01"],
    ["2022-12-30T09:00:00+01:00", "2022-12-30T10:00:00+01:00", "2023-01-01T00:00:00+01:00"] * 2,
    ["20221230", "20221231", "20230101", "20240101"],
    ["2022/12/30", "2022/12/31", "2023/01/01", "2023/01/02"],
    ["2020", "2021", "2022", "2023"],
    ["09:30", "10:00", "11:00", "23:59"],
    ["first", "fourth", "second", "third"],
    ["day 01", "day 02", "day 10", "day 11"],
]


@pytest.mark.parametrize("texts", _IN_ORDER, ids=lambda texts: texts[0])
@pytest.mark.parametrize("as_bytes", [False, True], ids=["text", "bytes"])
def test_texts_in_the_order_of_time_are_divided(texts: list[str], as_bytes: bool) -> None:
    values: Any = [text.encode() for text in texts] if as_bytes else texts
    if not as_bytes and len(texts) == 4:
        values = np.array(texts)

    train, test = _numbered(values).split([0.5, 0.5], time="t")

    both = [*train.read_column("t"), *test.read_column("t")]
    assert sorted(both) == sorted(values)
    assert max(train.read_column("t")) < min(test.read_column("t")) or len(set(texts)) < 4


_OUT_OF_ORDER = [
    ["12/30/2022", "12/31/2022", "01/02/2023", "01/03/2024"],
    ["30.12.2022", "31.12.2022", "01.01.2023", "02.01.2023"],
    ["2024-1-9", "2024-1-10", "2024-2-1", "2024-11-1"],
    ["5 Jan 2023", "17 Feb 2023", "1 Mar 2023", "2 Mar 2023"],
    ["Jan 05 2023", "Feb 01 2023", "Mar 01 2023", "Apr 01 2023"],
    ["2022-12-30T09:00:00+01:00", "2022-12-30T09:00:00+02:00", "2023-01-01T00:00:00+01:00"] * 2,
    ["2022-12-30T09:00:00Z", "2022-12-30T09:00:00.5Z", "2023-01-01T00:00:00Z"] * 2,
    ["2023-01-01 01:30 PM", "2023-01-01 12:30 PM", "2023-01-02 01:00 PM"] * 2,
    ["9:30", "10:00", "11:00", "23:59"],
    ["week 1", "week 2", "week 10", "week 11"],
    ["12302022", "12312022", "01012023", "01022023"],
    ["12/30", "12/31", "01/01", "01/02"],
]


@pytest.mark.parametrize("texts", _OUT_OF_ORDER, ids=lambda texts: texts[0])
@pytest.mark.parametrize("kind", ["list", "array", "bytes"])
def test_texts_in_another_order_than_time_are_refused(texts: list[str], kind: str) -> None:
    values: Any = [text.encode() for text in texts] if kind == "bytes" else texts
    if kind == "array":
        values = np.array(texts)

    with pytest.raises(
        ConfigError, match=r"cannot be divided by the times in column 't': .*strptime"
    ):
        _numbered(values).split([0.5, 0.5], time="t")
