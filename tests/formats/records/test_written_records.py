"""What the records of a column have in common, as the manifest describes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from data_stack.codecs.codec import ColumnType
from data_stack.codecs.registry import codec_of
from data_stack.exception import ConfigError
from data_stack.formats.records.record_batch import RecordBatch
from data_stack.formats.records.written_records import WrittenRecords

ARRAY = codec_of("array")


def batch_of(*values: Any) -> RecordBatch:
    return RecordBatch.join([ARRAY.encode(np.asarray(value)) for value in values], ARRAY)


def written_with(column: ColumnType, *batches: RecordBatch) -> WrittenRecords:
    written = WrittenRecords("x", column, ARRAY)
    for batch in batches:
        written.add(batch)
    return written


def test_a_column_is_completed_by_the_layout_of_its_records() -> None:
    values = np.zeros((2, 3), np.int16)
    batch = batch_of(values, values)

    column, record_bytes = written_with(ColumnType("array"), batch, batch).describe()

    assert column == ColumnType("array", "int16", (2, 3))
    assert record_bytes == len(ARRAY.encode(values))


@pytest.mark.parametrize("other", [np.zeros((2, 4), np.int16), np.zeros((2, 3), np.int32)])
def test_another_layout_leaves_a_column_as_declared(other: Any) -> None:
    written = written_with(
        ColumnType("array"), batch_of(np.zeros((2, 3), np.int16)), batch_of(other)
    )

    assert written.describe() == (ColumnType("array"), None)
    assert written.n_records == 2


def test_different_layouts_in_one_batch_are_none() -> None:
    batch = batch_of(np.zeros(2, np.int16), np.zeros(3, np.int16))

    assert batch.layout is None
    assert batch.sizes.sum() == len(batch.data)


def test_rows_are_encoded_as_the_codec_encodes_each() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    layout = ARRAY.derive_layout(ColumnType("array", "float32", (2, 3)))
    assert layout is not None
    buffer = np.empty(2 * layout.record_bytes, np.uint8)

    batch = RecordBatch.encode_rows(rows, layout, buffer)

    assert bytes(batch.data) == batch_of(*rows).data
    assert batch.sizes.tolist() == batch_of(*rows).sizes.tolist()


def test_records_that_no_manifest_describes_stay_undescribed() -> None:
    written = WrittenRecords("x", ColumnType("array"), ARRAY)
    written.resume_undescribed(3)
    written.add(batch_of(np.zeros(2, np.int16)))

    assert written.describe() == (ColumnType("array"), None)
    assert written.n_records == 4


def test_described_records_are_resumed_in_their_layout() -> None:
    earlier = ColumnType("array", "int16", (2,))
    values = np.zeros(2, np.int16)
    written = WrittenRecords("x", ColumnType("array"), ARRAY)
    written.resume_after(earlier, len(ARRAY.encode(values)), 3)
    written.add(batch_of(values))

    assert written.describe() == (earlier, len(ARRAY.encode(values)))


def test_earlier_records_refuse_another_declared_dtype() -> None:
    written = WrittenRecords("x", ColumnType("array", "float32", (2,)), ARRAY)

    with pytest.raises(ConfigError, match="'x' is not of float32"):
        written.resume_after(ColumnType("array", "int16", (2,)), 20, 3)


def test_an_empty_first_record_is_noted() -> None:
    text = codec_of("utf8")
    written = WrittenRecords("x", ColumnType("utf8"), text)
    written.add(RecordBatch.join([]))
    written.add(RecordBatch.join([b"", b"a"], text))

    assert written.begins_empty
    assert written.n_records == 2
