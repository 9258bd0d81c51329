"""Arrow files that are damaged or lie about themselves: the truth, or an error of ours."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from process_harness import each_cut, each_flip
from sizes import sized

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DataStackError,
    LeftOutWarning,
    RequestLimitError,
)
from data_stack.formats.arrow_ipc import ArrowDataset

N = 12
TABLE = pa.table(
    {
        "number": pa.array([None if n % 5 == 0 else n for n in range(N)], pa.int32()),
        "text": [f"row {n}" for n in range(N)],
        "kind": pa.array([f"k{n % 3}" for n in range(N)]).dictionary_encode(),
        "list": pa.array([[n] * (n % 3) for n in range(N)], pa.list_(pa.int16())),
    }
)


def written(*, stream: bool, compression: str | None = None, table: pa.Table = TABLE) -> bytes:
    """Return the bytes of a table in two record batches."""
    file = io.BytesIO()
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(file, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=8)
    return file.getvalue()


def read_all(path: Path) -> list[Any]:
    """Read a file in every way."""
    rows = ArrowDataset(path)
    samples = list(rows)
    rows.read_batch(np.arange(len(rows))[::-1])
    for name in rows.column_names:
        rows.read_column(name)
    return samples


def outcome_of(path: Path, data: bytes) -> list[Any] | DataStackError:
    """Return the samples of a file, or the error of reading it."""
    path.write_bytes(data)
    try:
        return read_all(path)
    except DataStackError as error:
        return error


def test_a_file_cut_anywhere_is_an_error(tmp_path: Path) -> None:
    for cut in each_cut(written(stream=False), sized(7, 1)):
        assert isinstance(outcome_of(tmp_path / "a.arrow", cut), DatasetFileCorruptError)


@pytest.mark.filterwarnings("ignore:.*ends without the mark")
def test_a_stream_cut_within_a_message_is_an_error(tmp_path: Path) -> None:
    for cut in each_cut(written(stream=True), sized(7, 1)):
        outcome = outcome_of(tmp_path / "a.arrow", cut)

        if not isinstance(outcome, DatasetFileCorruptError):
            assert isinstance(outcome, list)
            assert len(outcome) == pa.ipc.open_stream(io.BytesIO(cut)).read_all().num_rows


def test_a_stream_without_its_end_is_read_with_a_warning(tmp_path: Path) -> None:
    whole = written(stream=True)
    (tmp_path / "a.arrow").write_bytes(whole[:-8])

    with pytest.warns(LeftOutWarning, match="rows after its last record batch may be missing"):
        assert len(ArrowDataset(tmp_path / "a.arrow")) == N


def test_bytes_behind_the_end_of_a_stream_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(2 * written(stream=True))

    with pytest.raises(DatasetFileCorruptError, match="follow the end of the stream"):
        ArrowDataset(tmp_path / "a.arrow")


@pytest.mark.filterwarnings("ignore:.*ends without the mark")
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_flipped_bit_is_another_value_or_an_error(
    tmp_path: Path, stream: bool, compression: str | None
) -> None:
    data = written(stream=stream, compression=compression)

    outcomes = [outcome_of(tmp_path / "a.arrow", flip) for flip in each_flip(data, sized(61, 7))]

    errors = [outcome for outcome in outcomes if isinstance(outcome, DataStackError)]
    assert errors
    assert all(str(error) for error in errors)


def replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    """Replace bytes that occur once."""
    assert data.count(old) == 1
    assert len(old) == len(new)
    return data.replace(old, new)


def test_offsets_that_point_outside_are_an_error(tmp_path: Path) -> None:
    table = pa.table({"text": ["abc", "defg"]})
    offsets = struct.pack("<3i", 0, 3, 7)
    for wrong in [(0, 1 << 30, 7), (0, -5, 7), (0, 3, 1 << 30)]:
        data = replaced(written(stream=False, table=table), offsets, struct.pack("<3i", *wrong))
        (tmp_path / "a.arrow").write_bytes(data)

        with pytest.raises(DatasetFileCorruptError, match="damaged"):
            ArrowDataset(tmp_path / "a.arrow").read_column("text")


def test_indices_outside_of_a_dictionary_are_an_error(tmp_path: Path) -> None:
    cells = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int32()), pa.array(["a", "b"]))
    data = written(stream=True, table=pa.table({"kind": cells}))
    wrong = replaced(data, struct.pack("<3i", 1, 0, 1), struct.pack("<3i", 1, 0, 77))
    (tmp_path / "a.arrow").write_bytes(wrong)

    with pytest.raises(DatasetFileCorruptError):
        ArrowDataset(tmp_path / "a.arrow")[0]


@pytest.mark.parametrize(
    "read",
    [lambda rows: rows[1], lambda rows: rows.read_batch([1]), list],
    ids=["sample", "batch", "all"],
)
def test_text_that_is_no_utf8_is_an_error(tmp_path: Path, read: Callable[[Any], Any]) -> None:
    data = replaced(
        written(stream=False, table=pa.table({"t": ["abc", "xyz"]})), b"xyz", b"x\xff\xff"
    )
    (tmp_path / "a.arrow").write_bytes(data)

    with pytest.raises((DatasetFileCorruptError, ConfigError), match=r"utf-?8|UTF-?8"):
        read(ArrowDataset(tmp_path / "a.arrow"))


@pytest.mark.parametrize("stated", [1 << 28, 1 << 40, -2, -(1 << 63)])
def test_a_compressed_buffer_of_impossible_size_is_refused(tmp_path: Path, stated: int) -> None:
    table = pa.table({"n": np.zeros(100_000)})
    data = written(stream=True, compression="zstd", table=table)
    size = struct.pack("<q", 8 * 8)  # the first record batch has 8 rows
    assert size in data
    (tmp_path / "a.arrow").write_bytes(data.replace(size, struct.pack("<q", stated)))

    with pytest.raises((RequestLimitError, DatasetFileCorruptError)):
        ArrowDataset(tmp_path / "a.arrow").read_column("n")


def test_equal_values_may_be_compressed_to_almost_nothing(tmp_path: Path) -> None:
    table = pa.table({"n": np.zeros(20 << 20, np.uint8)})
    file = io.BytesIO()
    with pa.ipc.new_file(
        file, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_table(table)
    assert len(file.getvalue()) < 4000

    assert not ArrowDataset(file).read_column("n").any()


def test_a_damaged_time_zone_is_an_error(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([1, 2], pa.timestamp("us", "Europe/Berlin"))})
    data = written(stream=True, table=table).replace(b"Europe", b"\xdd\xffrope")
    (tmp_path / "a.arrow").write_bytes(data)

    with pytest.raises(DatasetFileCorruptError, match="utf-8"):
        ArrowDataset(tmp_path / "a.arrow")


def test_rows_that_a_body_cannot_store_are_refused(tmp_path: Path) -> None:
    data = written(stream=True, table=pa.table({"nothing": pa.nulls(7)}))
    claimed = data.replace(struct.pack("<q", 7), struct.pack("<q", 1 << 50))
    assert claimed != data
    (tmp_path / "a.arrow").write_bytes(claimed)

    with pytest.raises(DatasetFileCorruptError, match="states 1125899906842624 rows"):
        ArrowDataset(tmp_path / "a.arrow")


@pytest.mark.parametrize("data", [b"", b"ARROW1", b"ARROW1\0\0" * 3, b"\0" * 64, b"{}" * 40])
def test_what_is_no_arrow_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.arrow").write_bytes(data)

    with pytest.raises(DatasetFileCorruptError, match="not an Arrow file"):
        ArrowDataset(tmp_path / "a.arrow")


def test_a_footer_that_lists_no_message_is_refused(tmp_path: Path) -> None:
    data = written(stream=False)
    start = data.index(b"\xff\xff\xff\xff", 300)  # the first dictionary or record batch
    assert data.count(struct.pack("<q", start)) >= 1
    moved = data.replace(struct.pack("<q", start), struct.pack("<q", start + 8))
    (tmp_path / "a.arrow").write_bytes(moved)

    with pytest.raises(DatasetFileCorruptError):
        read_all(tmp_path / "a.arrow")
