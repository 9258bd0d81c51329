"""Windows: which samples are in them, in which form, and how they are read."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Samples

from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIteratorIF,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.layers.windowed import WindowedDatasetIterator
from data_stack.exception import ConfigError, DatasetOutOfBoundsError
from data_stack.values.stacking import stack_samples, stack_values, value_of


class Counting(SequenceDatasetIterator):
    """Remembers what it is asked for."""

    def __init__(self, *columns: Any) -> None:
        super().__init__(columns)
        self.requests: list[tuple[Any, list[int]]] = []

    def __getitems__(self, indices: Any) -> Any:
        self.requests.append(("samples", list(indices)))
        return super().__getitems__(indices)

    def read_batch(self, indices: Any) -> Any:
        self.requests.append(("batch", np.asarray(indices).tolist()))
        return super().read_batch(indices)

    def read_column(self, key: Any, indices: Any = None) -> Any:
        self.requests.append((key, [] if indices is None else np.asarray(indices).tolist()))
        return super().read_column(key, indices)


def same(one: Any, other: Any) -> bool:
    """Whether both are of the same types, dtypes, shapes and values."""
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        if not isinstance(other, np.ndarray) or one.dtype != other.dtype or one.shape != other.shape:
            return False
        return all(map(same, one.ravel(), other.ravel())) if one.dtype == object else bool((one == other).all())
    return bool(one == other)


def assert_lawful(iterator: DatasetIteratorIF, expected: list[Any], keys: Sequence[Any]) -> None:
    """All ways to the samples lead to the same."""
    n_samples = len(expected)
    assert len(iterator) == n_samples
    assert same([iterator[position] for position in range(n_samples)], expected)
    assert same(list(iterator), expected)
    everything = list(range(n_samples))
    for indices in (
        everything,
        everything[::-1],
        everything[-1:] * 3,
        [-1, 0] * (n_samples > 0),
        np.arange(n_samples, dtype=np.int32),
    ):
        chosen = [expected[index] for index in indices]
        assert same(iterator.__getitems__(indices), chosen)
        assert same(list(iterator[np.asarray(indices, dtype=np.int64)]), chosen)
        if chosen:
            assert same(iterator.read_batch(indices), stack_samples(chosen))
            for key in keys:
                assert same(iterator.read_column(key, indices), stack_values([value_of(sample, key) for sample in chosen]))
    if n_samples:
        assert same(iterator.read_batch([]), _emptied(stack_samples(expected[:1])))
        assert all(same(iterator.read_column(key, [])[:0], stack_values([value_of(expected[0], key)])[:0]) for key in keys)
        assert all(same(iterator.read_column(key), stack_values([value_of(each, key) for each in expected])) for key in keys)
        columns = access_to(iterator).columns(list(keys), np.arange(n_samples))
        assert same(columns, [stack_values([value_of(each, key) for each in expected]) for key in keys])
    for index in (n_samples, -n_samples - 1):
        with pytest.raises(DatasetOutOfBoundsError):
            iterator[index]
        with pytest.raises(DatasetOutOfBoundsError):
            iterator.read_batch([index])
    assert same(list(pickle.loads(pickle.dumps(iterator))), expected)


def _emptied(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {key: column[:0] for key, column in batch.items()}
    return tuple(column[:0] for column in batch) if isinstance(batch, tuple) else batch[:0]


def positions_of_windows(
    values: Sequence[Any] | None,
    groups: Sequence[Any] | None,
    n_samples: int,
    length: int,
    stride: int = 1,
    max_gap: Any = None,
    overlap: bool = True,
) -> list[list[int]]:
    """The same in plain Python, one sample after the other."""
    members: dict[Any, list[int]] = {}
    for position in range(n_samples):
        members.setdefault(None if groups is None else groups[position], []).append(position)
    windows = []
    for group in members.values():
        if values is not None:
            group.sort(key=values.__getitem__)
        runs: list[list[int]] = []
        for position in group:
            if not runs or (max_gap is not None and values is not None and values[position] - values[runs[-1][-1]] > max_gap):
                runs.append([])
            runs[-1].append(position)
        for run in runs:
            start = 0
            while start + length <= len(run):
                windows.append(run[start : start + length])
                last = run[start + length - 1]
                start += stride if overlap else max(stride, length)
                while not overlap and values is not None and start < len(run) and values[run[start]] <= values[last]:
                    start += 1
    return windows


def found(iterator: DatasetIteratorIF, key: Any = 0) -> list[list[int]]:
    return [window[key].tolist() for window in iterator]


def numbered(n_samples: int, *columns: Any) -> SequenceDatasetIterator:
    """Samples whose column 0 is their position."""
    return SequenceDatasetIterator([np.arange(n_samples), *columns])


# --- which samples -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_samples", "length", "stride", "overlap", "expected"),
    [
        (5, 3, 1, True, [[0, 1, 2], [1, 2, 3], [2, 3, 4]]),
        (6, 2, 3, True, [[0, 1], [3, 4]]),
        (7, 3, 1, False, [[0, 1, 2], [3, 4, 5]]),
        (7, 2, 4, False, [[0, 1], [4, 5]]),
        (3, 1, 1, True, [[0], [1], [2]]),
        (3, 3, 9, True, [[0, 1, 2]]),
        (2, 3, 1, True, []),
        (0, 1, 1, True, []),
    ],
)
def test_windows_of_an_iterator_in_its_own_order(n_samples: int, length: int, stride: int, overlap: bool, expected: Any) -> None:
    windows = WindowedDatasetIterator(numbered(n_samples), length, stride=stride, overlap=overlap)

    assert found(windows) == expected


def test_windows_do_not_span_groups_and_none_is_lost_at_a_border_of_parts() -> None:
    vehicles = [f"vehicle {number}" for number in range(20) for _ in range(250)]
    times = np.tile(np.arange(250), 20)
    whole = numbered(5000, times, vehicles)
    combined = CombinedDatasetIterator([whole[:777], whole[777:778], whole[5:5], whole[778:]])

    windows = WindowedDatasetIterator(combined, 3, order_by=1, max_gap=1, group_by=2)

    assert len(windows) == 20 * 248  # 4,960
    assert len(WindowedDatasetIterator(combined, 3)) == 4998
    assert all(len(set(names.tolist())) == 1 for names in windows.read_column(2))
    assert found(windows) == positions_of_windows(times.tolist(), vehicles, 5000, 3, max_gap=1)


@pytest.mark.parametrize(
    "groups",
    [
        [1, 2, 1, 2, 1],
        np.array([1, 2, 1, 2, 1], dtype=np.uint8),
        np.array([0.5, np.nan, 0.5, np.nan, 0.5]),
        [None, "a", None, "a", None],
        [None, 3, None, 3.0, None],
        np.array(["a", "b", "a", "b", "a"]),
        np.array(["2020", "NaT", "2020", "NaT", "2020"], dtype="M8[Y]"),
        [(1, 2), (2, 1), (1, 2), (2, 1), (1, 2)],
        [("a", 2), ("b", 1), ("a", 2), ("b", 1), ("a", 2)],
        [True, False, True, False, True],
        [b"x", "x", b"x", "x", b"x"],
    ],
)
def test_values_of_every_kind_make_groups(groups: Any) -> None:
    windows = WindowedDatasetIterator(numbered(5, groups), 2, group_by=1)

    assert found(windows) == [[0, 2], [2, 4], [1, 3]]


_NEAR = [[2, 1], [1, 0], [4, 3]]  # 0, 1 and 3; 8 and 9


@pytest.mark.parametrize(
    ("values", "max_gap", "expected"),
    [
        ([3, 1, 0, 9, 8], 2, _NEAR),
        (np.array([3, 1, 0, 9, 8], dtype=np.uint8), 2.9, _NEAR),
        (np.array([-(2**63) + 3, -(2**63) + 1, -(2**63), 2**63 - 1, 2**63 - 2]), 2, _NEAR),
        (np.array([0.3, 0.1, 0.0, 0.9, 0.8], dtype=np.float32), 0.25, _NEAR),
        (np.array([0.3, 0.1, -np.inf, np.inf, np.inf]), 0.25, [[1, 0], [3, 4]]),
        (np.array([3, 1, 0, 9, 8], dtype="M8[s]"), np.timedelta64(2000, "ms"), _NEAR),
        (np.array([3, 1, 0, 9, 8], dtype="M8[s]"), timedelta(seconds=2), _NEAR),
        (np.array([3, 1, 0, 9, 8], dtype="m8[s]"), 2.5, _NEAR),
        ([datetime(2020, 1, 1 + day) for day in (3, 1, 0, 9, 8)], timedelta(days=2), _NEAR),
        ([datetime(2020, 1, 1 + day) for day in (3, 1, 0, 9, 8)], np.timedelta64(48, "h"), _NEAR),
        ([Decimal(number) for number in (3, 1, 0, 9, 8)], 2, _NEAR),
        ([3, 1, 0, 9, 8], float("inf"), [[2, 1], [1, 0], [0, 4], [4, 3]]),
        ([3, 3, 3, 9, 9], 0, [[0, 1], [1, 2], [3, 4]]),
    ],
)
def test_gaps_end_runs_in_units_of_the_ordering_column(values: Any, max_gap: Any, expected: Any) -> None:
    windows = WindowedDatasetIterator(numbered(5, values), 2, order_by=1, max_gap=max_gap)

    assert found(windows) == expected


@pytest.mark.parametrize(
    ("values", "length", "stride", "expected"),
    [
        ([0, 1, 1, 2, 3], 2, 1, [[0, 1], [3, 4]]),  # 2 begins at a larger value than the 1 that the first has ended with
        ([0, 0, 0, 0], 2, 1, [[0, 1]]),
        ([0, 0, 0, 1], 1, 1, [[0], [3]]),
        ([0, 1, 2, 3, 4, 5], 2, 3, [[0, 1], [3, 4]]),
        ([5, 4, 3, 2, 1, 0], 3, 1, [[5, 4, 3], [2, 1, 0]]),
    ],
)
def test_windows_that_do_not_overlap_start_after_the_value_the_last_one_ended_with(
    values: list[int], length: int, stride: int, expected: Any
) -> None:
    as_list, as_objects = numbered(len(values), values), numbered(len(values), [Decimal(value) for value in values])

    windows = WindowedDatasetIterator(as_list, length, stride=stride, order_by=1, overlap=False)
    windows_of_objects = WindowedDatasetIterator(as_objects, length, stride=stride, order_by=1, overlap=False)

    assert found(windows) == found(windows_of_objects) == expected


@given(
    rows=st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["a", "b", "c"])), max_size=25),
    length=st.integers(1, 4),
    stride=st.integers(1, 5),
    overlap=st.booleans(),
    ordered=st.booleans(),
    grouped=st.booleans(),
    max_gap=st.none() | st.integers(0, 4),
    dtype=st.sampled_from([np.int64, np.uint8, np.float32, "M8[ms]", object]),
)
def test_windows_are_what_plain_python_finds(
    rows: list[tuple[int, str]], length: int, stride: int, overlap: bool, ordered: bool, grouped: bool, max_gap: Any, dtype: Any
) -> None:
    values, groups = [value for value, _ in rows], [group for _, group in rows]
    max_gap = max_gap if ordered else None
    expected = positions_of_windows(
        values if ordered else None, groups if grouped else None, len(rows), length, stride, max_gap, overlap
    )

    windows = WindowedDatasetIterator(
        numbered(len(rows), np.array(values, dtype=dtype), groups),
        length,
        stride=stride,
        order_by=1 if ordered else None,
        group_by=2 if grouped else None,
        max_gap=max_gap,
        overlap=overlap,
    )

    assert found(windows) == expected
    assert windows.read_column(0).tolist() == expected
    assert found(pickle.loads(pickle.dumps(windows))) == expected
    assert found(WindowedDatasetIterator._rebuilt([windows._dataset_iterator], windows._arguments())) == expected


# --- in which form -------------------------------------------------------------------------------------------------


FORMS: dict[str, tuple[list[Any], list[Any]]] = {
    "tuples": ([(i, float(i), np.full((2, 2), i), f"text {i}") for i in range(7)], [0, 1, 2, 3, -1]),
    "dicts": ([{"a": i, "b": str(i), "c": None} for i in range(7)], ["a", "b", "c"]),
    "bare numbers": ([float(i) for i in range(7)], [0, -1]),
    "bare texts": ([str(i) for i in range(7)], [0, 2]),
    "bare arrays": ([np.arange(3) + i for i in range(7)], [0, -1]),
    "lists": ([[i, [i, i]] for i in range(7)], [0, 1]),
    "ragged arrays": ([(np.arange(i // 3), i) for i in range(7)], [0, 1]),
    "ragged lists": ([([0] * (i // 3), i) for i in range(7)], [0, 1]),
    "numbers, then texts": ([(i if i < 4 else str(i),) for i in range(7)], [0]),
    "large integers": ([(2**70 + i,) for i in range(7)], [0]),
    "dicts within": ([({"x": i}, i) for i in range(7)], [0, 1]),
    "tuples of texts": ([(("a", str(i)), i) for i in range(7)], [0, 1]),
}


# --- with offsets --------------------------------------------------------------------------------------------------


def speeds(n_samples: int) -> Samples:
    return Samples([{"speed": i / 2, "image": np.full((2, 2), i), "time": n_samples - i} for i in range(n_samples)])


def test_offsets_name_columns_of_samples_of_the_window() -> None:
    windows = WindowedDatasetIterator(speeds(6), 4, offsets={-1: ["speed"], 0: ["speed", "image"], 2: None})

    first = windows[0]

    assert len(windows) == 3
    assert same(first, {-1: {"speed": 0.0}, 0: {"speed": 0.5, "image": np.full((2, 2), 1)}, 2: speeds(6)[3]})


@pytest.mark.parametrize(
    "offsets",
    [
        {-1: ["speed"], 0: ["speed", "image"], 2: None},
        {0: ["image"], 3: ["time"]},
        {-3: None, 0: None},
        {5: ["speed"], 8: ["speed", "time"]},
    ],
)
def test_windows_with_offsets_obey_the_law(offsets: Any) -> None:
    length, lowest = max(offsets) - min(offsets) + 1, min(offsets)
    source = speeds(9)

    windows = WindowedDatasetIterator(source, length, order_by="time", offsets=offsets)

    expected = []
    for start in range(9 - length + 1):
        rows = {offset: source[8 - (start + offset - lowest)] for offset in offsets}
        expected.append({o: rows[o] if keys is None else {key: rows[o][key] for key in keys} for o, keys in offsets.items()})
    assert_lawful(windows, expected, list(offsets))


def test_only_the_columns_at_their_offsets_are_read() -> None:
    source = Counting(np.arange(100), np.arange(100), np.arange(100))
    windows = WindowedDatasetIterator(source, 3, offsets={0: [0], 1: [0], 2: [0, 2]})

    windows.__getitems__([10, 50])

    assert source.requests == [(0, [10, 50, 11, 51, 12, 52]), (2, [12, 52])]


# --- what is read --------------------------------------------------------------------------------------------------


def test_windows_are_read_in_one_request_and_overlapping_ones_without_repeats() -> None:
    source = Counting(np.arange(1000))
    windows = WindowedDatasetIterator(source, 10)

    apart, together = windows.read_batch([5, 900]), windows.read_batch(range(100, 200))

    assert source.requests == [("batch", [*range(5, 15), *range(900, 910)]), ("batch", list(range(100, 209)))]
    assert isinstance(apart, tuple)
    assert isinstance(together, tuple)
    assert apart[0].tolist() == [list(range(5, 15)), list(range(900, 910))]
    assert together[0].tolist() == [list(range(i, i + 10)) for i in range(100, 200)]


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"length": 0},
        {"length": 2.0},
        {"length": 2, "stride": 0},
        {"length": 2, "max_gap": 1},
        {"length": 2, "max_gap": -1, "order_by": 1},
        {"length": 2, "max_gap": "1", "order_by": 1},
        {"length": 2, "max_gap": np.timedelta64("NaT"), "order_by": 1},
        {"length": 2, "max_gap": timedelta(1), "order_by": 1},
        {"length": 2, "order_by": 9},
        {"length": 1, "offsets": {}},
        {"length": 2, "offsets": [0, 1]},
        {"length": 2, "offsets": {0: [0], 2: [0]}},
        {"length": 1, "offsets": {0.5: [0]}},
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        WindowedDatasetIterator(numbered(5, np.arange(5)), **arguments)


@pytest.mark.parametrize(
    ("values", "max_gap"),
    [
        ([1, 2, None, 4], None),
        (np.array(["2020", "2021", "NaT", "2022"], dtype="M8[Y]"), None),
        ([1, 2, "x", 4], None),
        (["a", "b", "d", "c"], 1),
        ([(1, 2), (1, 3), (1, 4), (1, 5)], 1),
        (np.array(["2020", "2021", "2022", "2023"], dtype="M8[D]"), np.timedelta64(1, "M")),
        ([datetime(2020, 1, day) for day in range(1, 5)], 1),
    ],
)
def test_values_without_order_or_difference_are_refused(values: Any, max_gap: Any) -> None:
    with pytest.raises(ConfigError, match="column 1"):
        WindowedDatasetIterator(numbered(4, values), 2, order_by=1, max_gap=max_gap)
