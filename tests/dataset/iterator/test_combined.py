"""A few samples of many parts are those of one long iterator, and are read one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    CombinedDatasetIterator,
    DatasetIteratorIF,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_bases import SourceAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.formats.records import RecordReader, RecordWriter
from data_stack.loader import Loader
from data_stack.testing.comparing import assert_same

N_PARTS = 60
N_IN_PART = 10
RNG = np.random.default_rng(3)

#: Makes a column of so many values, of the part with a number.
COLUMNS: dict[str, Callable[[int, int], Any]] = {
    "uint8 images": lambda n, _: RNG.integers(0, 255, (n, 3, 2), dtype=np.uint8),
    "float16": lambda n, _: RNG.random(n).astype(np.float16),
    "big-endian": lambda n, _: RNG.random(n).astype(">f8"),
    "times": lambda n, part: np.arange(n).astype("M8[ms]") + part,
    "text of numpy": lambda n, part: np.array([f"{part}"] * n, dtype="U4"),
    "records": lambda n, part: np.full(n, part, dtype=[("a", "i2"), ("b", "f4")]),
    "objects": lambda n, part: np.array([[part]] * n + [None], dtype=object)[:n],
    "a list": lambda n, part: [float(part)] * n,
    "integers and floats": lambda n, part: np.full(n, part, dtype=("i8", "f8")[part % 2]),
    "other shapes": lambda n, part: np.zeros((n, 1 + part % 2), dtype=np.float32),
    "an empty part": lambda n, part: np.full(n if part % 3 else 0, part),
}


def parts(column: str, change: Callable[[Any], Any] = lambda part: part) -> DatasetIteratorIF:
    made = []
    for number in range(N_PARTS):
        values = COLUMNS[column](N_IN_PART, number)
        made.append(change(SequenceDatasetIterator([values, np.full(len(values), number)])))
    return CombinedDatasetIterator(made)


def first_of(sample: Any) -> Any:
    return sample[0], sample[1]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda part: part,
    "a view": lambda part: part[::-1],
    "names": lambda part: part.as_dict("a", "b"),
    "a selection": lambda part: part.select(1, 0),
    "a map": lambda part: part.map(first_of),
    "in memory": lambda part: part.in_memory(),
    "a cache": lambda part: part.cache(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("column", COLUMNS)
def test_few_samples_of_many_parts_equal_those_of_batches(column: str, change: str) -> None:
    combined = parts(column, CHANGES[change])
    positions = np.random.default_rng(5).permutation(len(combined))[:40]
    whole: Any = combined.read_batch(np.arange(len(combined)))

    few: Any = combined.read_batch(positions)

    expected = {key: whole[key][positions] for key in whole} if isinstance(whole, dict) else None
    assert_same(few, expected or tuple(values[positions] for values in whole))


@pytest.mark.parametrize("column", ["uint8 images", "big-endian", "text of numpy", "objects"])
def test_a_column_of_few_samples_is_that_of_the_batch(column: str) -> None:
    combined = parts(column)
    positions = np.random.default_rng(5).permutation(len(combined))[:40]

    values = combined.read_column(0, positions)

    batch: Any = combined.read_batch(positions)
    assert_same(values, batch[0])
    assert_same(combined.read_column(0)[positions], values)


def test_samples_at_scattered_positions_come_in_the_order_asked_for() -> None:
    combined = parts("float16", CHANGES["names"]).rename({"b": "part"})
    positions = [500, 3, 250, 3]

    samples = combined.__getitems__(positions)

    assert [sample["part"] for sample in samples] == [50, 0, 25, 0]


def test_only_parts_with_several_samples_are_asked_for_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_requests: list[int] = []
    combined = parts("float16")
    access: Any = access_to(combined)
    for part in access.parts:
        original = part.batch

        def batch(positions: Any, original: Any = original) -> Any:
            n_requests.append(len(positions))
            return original(positions)

        monkeypatch.setattr(part, "batch", batch)

    combined.read_batch(np.arange(0, len(combined), 15))
    n_of_scattered = len(n_requests)
    combined.read_batch(np.arange(30))

    assert n_of_scattered == 0
    assert n_requests == [10, 10, 10]


def test_views_of_one_source_are_read_together() -> None:
    source = SequenceDatasetIterator([np.arange(300), np.arange(300.0)])
    folds = CombinedDatasetIterator([source[number::50] for number in range(50)])
    positions = np.random.default_rng(0).permutation(300)[:40]

    values: Any = folds.read_batch(positions)

    expected = np.concatenate([np.arange(300)[number::50] for number in range(50)])
    assert_same(values[0], expected[positions])


# ---------------------------------------------------------------------- fixed columns

HAVE_FIXED_COLUMNS = {
    "uint8 images": True,
    "float16": True,
    "big-endian": True,
    "times": True,
    "text of numpy": True,
    "records": True,
    "objects": False,
    "a list": False,
    "integers and floats": False,
    "other shapes": False,
    "an empty part": True,
}


@pytest.mark.parametrize("column", COLUMNS)
def test_columns_are_fixed_where_all_parts_have_the_same(column: str) -> None:
    combined = parts(column)

    assert access_to(combined).fixed_columns == HAVE_FIXED_COLUMNS[column]


@pytest.mark.parametrize("change", ["itself", "a view", "names", "a selection", "in memory"])
def test_columns_stay_fixed_under_layers_that_keep_values(change: str) -> None:
    combined = parts("uint8 images", CHANGES[change])

    assert access_to(combined).fixed_columns


def test_parts_with_other_orders_of_keys_have_no_fixed_columns() -> None:
    one = SequenceDatasetIterator([np.arange(3), np.arange(3)]).as_dict("a", "b")
    other = SequenceDatasetIterator([np.arange(3), np.arange(3)]).as_dict("b", "a")

    assert not access_to(one.combine(other)).fixed_columns


def test_numbers_of_python_and_numpy_keep_their_types(tmp_path: Path) -> None:
    arrays = SequenceDatasetIterator([np.arange(3)]).as_dict("number")
    with RecordWriter(tmp_path / "records", {"number": "i64"}) as writer:
        writer.extend({"number": [3, 4]})
    with RecordReader(tmp_path / "records") as records:
        combined = arrays.combine(records)

        in_memory = combined.in_memory()

        assert [type(sample["number"]) for sample in in_memory] == [np.int64] * 3 + [int] * 2
        assert list(in_memory) == list(combined)


def test_a_combination_without_samples_has_no_fixed_columns() -> None:
    empty = SequenceDatasetIterator([np.arange(0)])

    combined = empty.combine(empty)

    assert not access_to(combined).fixed_columns
    no_samples: Any = combined.in_memory().read_batch([])
    assert no_samples[0].dtype == np.int64


@pytest.mark.parametrize("column", COLUMNS)
def test_a_loader_makes_the_batches_that_the_combination_has(column: str) -> None:
    combined = parts(column)
    numbered = combined.zip(SequenceDatasetIterator([np.arange(len(combined))]))
    loader = Loader(numbered, 4, shuffle=True, seed=2, worker_kind="inline")

    positions = []
    for batch in loader:
        positions += batch[-1].tolist()
        assert_same(batch, numbered.read_batch(batch[-1]))

    assert sorted(positions) == list(range(len(combined)))


@pytest.mark.parametrize("column", ["uint8 images", "float16", "a list"])
def test_zipped_columns_are_fixed_where_those_of_all_parts_are(column: str) -> None:
    values = COLUMNS[column](5, 0)
    one = SequenceDatasetIterator([np.arange(5)])

    zipped = one.zip(SequenceDatasetIterator([values]))

    assert access_to(zipped).fixed_columns == (column != "a list")


class Growing(AccessedDatasetIterator):
    """Numbers in blocks of three, to which blocks can be added."""

    _keeps_access = False

    def __init__(self, n_blocks: int) -> None:
        self.n_blocks = n_blocks

    def make_access(self) -> SampleAccess:
        return BlocksOfThree(self)


class BlocksOfThree(SourceAccess):
    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return 3 * int(self.source.n_blocks)

    def sample(self, position: int) -> int:
        return position

    def blocks(self) -> npt.NDArray[np.int64]:
        return np.full(self.source.n_blocks, 3, dtype=np.int64)


def test_new_blocks_of_a_grown_part_are_not_counted() -> None:
    growing = Growing(2)
    combined = CombinedDatasetIterator([growing, Growing(1)])

    growing.n_blocks = 4

    blocks = access_to(combined).blocks()
    assert blocks is not None
    assert blocks[blocks > 0].tolist() == [3, 3, 3]
    assert list(combined) == [0, 1, 2, 3, 4, 5, 0, 1, 2]
