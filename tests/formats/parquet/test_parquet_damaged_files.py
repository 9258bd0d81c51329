"""Parquet files that are damaged, lie about themselves, or change while they are read: the truth, or an error of ours."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from process_harness import flipped
from sizes import FULL, sized
from writing import bytes_of

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DataStackError,
    ResourceChangedError,
    ResourceNotFoundError,
)
from data_stack.formats.parquet import Field, ParquetDataset, Schema
from data_stack.formats.parquet.codecs import NdarrayCodec
from data_stack.formats.parquet.description import describe_dataset
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.metadata_generation import generate_metadata
from data_stack.formats.parquet.page_headers import read_claimed_bytes
from data_stack.formats.parquet.schema import SCHEMA_KEY
from data_stack.formats.parquet.selecting import col
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.io.storage_connectors.connector import ResourceInfo


def rows(start: int, stop: int) -> pa.Table:
    return pa.table(
        {
            "id": np.arange(start, stop) + 1000,
            "x": pa.array(
                [None if number % 3 == 0 else number / 2 for number in range(start, stop)],
                pa.float32(),
            ),
            "text": [f"row {number}" for number in range(start, stop)],
            "vec": pa.array(
                [[number] * (number % 3) for number in range(start, stop)], pa.list_(pa.int16())
            ),
        }
    )


def write(path: Path, start: int = 0, stop: int = 6, **options: Any) -> bytes:
    pq.write_table(rows(start, stop), path, row_group_size=3, **options)
    return path.read_bytes()


def footer_of(content: bytes) -> bytes:
    return content[-8 - int.from_bytes(content[-8:-4], "little") : -8]


def with_footer(content: bytes, footer: bytes) -> bytes:
    return (
        content[: -8 - len(footer_of(content))]
        + footer
        + len(footer).to_bytes(4, "little")
        + b"PAR1"
    )


def test_a_file_cut_anywhere_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    content = write(file)

    for length in [
        *range(0, len(content), sized(197, 11)),
        *range(len(content) - 20, len(content)),
    ]:
        file.write_bytes(content[:length])
        with pytest.raises(DatasetFileCorruptError, match=r"a\.parquet"):
            ParquetDataset(tmp_path)


def with_flips(footer: bytes) -> Iterator[bytes]:
    for position in range(0, len(footer), sized(11, 1)):
        yield flipped(footer, 8 * position + position % 8)


def with_other_widths(footer: bytes) -> Iterator[bytes]:
    widths = (3, 4, 5, 6)  # 8, 16, 32 and 64 bits, as the first byte of a field says
    for position in [position for position, byte in enumerate(footer) if byte & 0x0F in widths][
        :: sized(13, 1)
    ]:
        for width in widths:
            yield (
                footer[:position]
                + bytes([footer[position] & 0xF0 | width])
                + footer[position + 1 :]
            )


@pytest.mark.parametrize("mutants", [with_flips, with_other_widths])
def test_a_changed_footer_is_read_or_raises_our_error(tmp_path: Path, mutants: Any) -> None:
    file = tmp_path / "a.parquet"
    content = write(file)
    n_refused = n_read = 0

    for number, footer in enumerate(mutants(footer_of(content))):
        file.write_bytes(with_footer(content, footer))
        try:
            dataset = ParquetDataset(tmp_path, filters=col("id") >= 0 if number % 2 else None)
            describe_dataset(tmp_path)
            list(dataset)
            n_read += 1
        except DataStackError:
            n_refused += 1

    assert min(n_refused, n_read) > (20 if FULL else 5)


def test_truncated_statistics_are_an_error_naming_the_column(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    content = write(file)
    greatest = (1005).to_bytes(8, "little")
    footer = footer_of(content).replace(b"\x08" + greatest, b"\x04" + greatest[:4])
    assert footer != footer_of(content)
    file.write_bytes(with_footer(content, footer))

    with pytest.raises(DatasetFileCorruptError, match=r"a\.parquet.*'id' of row group 1.*minimum"):
        ParquetDataset(tmp_path)


@pytest.mark.parametrize(
    "options", [{}, {"compression": "none", "use_dictionary": False}, {"data_page_version": "2.0"}]
)
def test_no_flipped_bit_changes_the_values_of_checksummed_pages(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    file = tmp_path / "a.parquet"
    content = write(file, write_page_checksum=True, **options)
    expected = ParquetDataset(tmp_path).read_batch(range(6))
    wrong, errors = [], set()

    for position in range(4, len(content) - 8 - len(footer_of(content)), sized(13, 1)):
        file.write_bytes(flipped(content, 8 * position + position % 8))
        try:
            found = ParquetDataset(tmp_path).read_batch(range(6))
        except DatasetFileCorruptError as error:
            errors.add(str(error)[: str(error).index(str(file)) + len(str(file))])
        else:
            if any(repr(found[name]) != repr(expected[name]) for name in expected):
                wrong.append(position)

    assert wrong == []
    assert errors == {f"row group {number} of {file}" for number in range(2)}


def test_a_footer_stating_more_rows_than_exist_is_an_error(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"vec": pa.array([[1]] * 60, pa.list_(pa.int16()))}), tmp_path / "a.parquet"
    )
    content = (tmp_path / "a.parquet").read_bytes()
    n_rows = bytes(
        [0x16, 60 << 1]
    )  # a list has as many elements as it says; rows are counted by themselves
    footer = footer_of(content)
    places = [place for place in range(len(footer)) if footer[place : place + 2] == n_rows]
    n_refused = 0

    for place in places:
        lying = footer[:place] + bytes([0x16, 61 << 1]) + footer[place + 2 :]
        (tmp_path / "a.parquet").write_bytes(with_footer(content, lying))
        try:
            assert len(list(ParquetDataset(tmp_path))) == 60
        except DatasetFileCorruptError:
            n_refused += 1

    assert n_refused >= 2


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [10**9, 10**9], "codec": "npy"},
        {"shape": [10**30], "codec": "npy"},
        {"shape": [-1]},
        {"codec": "pickle"},
        {"dtype": "O8,O8"},
        {"dtype": "<U2000000000"},
        {"name": ["id"]},
        {"name": "nobody"},
        {"nullable": "yes"},
    ],
    ids=str,
)
def test_a_hostile_schema_is_an_error_that_names_the_field(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    field = Field("frame", "float32", (2,), NdarrayCodec())
    cell = bytes_of(np.save, np.zeros(2, np.float32))
    content = Schema("hostile", [field]).to_json()
    content["fields"][0].update(change)
    table = pa.table({"frame": [cell] * 4}).replace_schema_metadata(
        {SCHEMA_KEY: json.dumps(content)}
    )
    pq.write_table(table, tmp_path / "a.parquet")

    with pytest.raises((DatasetFileCorruptError, ConfigError), match=r"frame|nobody|field"):
        ParquetDataset(tmp_path).read_batch([0, 1])


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", bytes(100), b"PAR1" + bytes(20) + b"\xff\xff\xff\x7fPAR1"]
)
def test_a_damaged_common_metadata_is_named(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / "a.parquet")
    (tmp_path / "_common_metadata").write_bytes(content)

    with pytest.raises(DatasetFileCorruptError, match="_common_metadata"):
        ParquetDataset(tmp_path)


# ------------------------------------------------------------------ files that change


def test_a_touched_or_rewritten_file_is_an_error(tmp_path: Path) -> None:
    content = write(tmp_path / "a.parquet")
    changes: list[Callable[[], Any]] = [
        lambda: os.utime(tmp_path / "a.parquet", (1, 1)),
        lambda: Path(shutil.copy(tmp_path / "a.parquet", tmp_path / "b")).replace(
            tmp_path / "a.parquet"
        ),
    ]
    for change in changes:
        dataset = ParquetDataset(tmp_path)
        sent = pickle.dumps(dataset)
        assert dataset[0]["id"] == 1000

        change()

        for later in (dataset, pickle.loads(sent)):
            with pytest.raises(ResourceChangedError, match=r"a\.parquet.* Load the dataset again"):
                later[0]
        with pytest.raises(ResourceChangedError, match=r"a\.parquet"):
            dataset.fingerprint()
    assert (tmp_path / "a.parquet").read_bytes() == content


def test_rows_in_memory_outlive_their_file(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    dataset = ParquetDataset(tmp_path)
    first = dataset[0]["id"]

    (tmp_path / "a.parquet").unlink()

    assert dataset[0]["id"] == first


@pytest.mark.parametrize("has_manifest", [False, True], ids=["other tool", "manifest"])
def test_rows_of_two_files_with_one_footer_are_never_mixed(
    tmp_path: Path, has_manifest: bool
) -> None:
    numbers = np.arange(40)
    labels = numbers % 4
    # the minimum, the maximum and the sizes of the labels stay as they are
    corrected = labels.copy()
    corrected[[5, 25]] = labels[[6, 26]]
    for name, column in (("old", labels), ("new", corrected)):
        (tmp_path / name).mkdir()
        table = pa.table({"x": numbers, "y": column})
        pq.write_table(table, tmp_path / name / "a.parquet", row_group_size=20)
    if has_manifest:
        generate_metadata(tmp_path / "old")
    dataset = ParquetDataset(tmp_path / "old")
    if not has_manifest:
        assert dataset.read_batch(range(20))["y"].tolist() == (numbers[:20] % 4).tolist()

    os.replace(tmp_path / "new/a.parquet", tmp_path / "old/a.parquet")

    for rows_read in (range(20, 40), range(20)):
        with pytest.raises(ResourceChangedError, match=r"a\.parquet"):
            dataset.read_batch(rows_read)


def test_files_that_grow_or_vanish_are_errors(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    dataset = ParquetDataset(tmp_path)

    with (tmp_path / "a.parquet").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ResourceChangedError, match=r"a\.parquet"):
        dataset[0]
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(ResourceNotFoundError, match=r"a\.parquet"):
        dataset[0]


def test_another_process_refuses_files_replaced_since_it_was_sent(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0)
    write(tmp_path / "b.parquet", 6, 12)
    sent = pickle.dumps(ParquetDataset(tmp_path))
    write(tmp_path / "a.parquet", 50, 56)

    received = pickle.loads(sent)

    assert len(received) == 12
    assert received[7]["id"] == 1007
    with pytest.raises(ResourceChangedError, match=r"a\.parquet"):
        received[0]


@pytest.mark.parametrize("knows", ["path", "digests", "nothing", "file system"])
def test_a_replaced_file_of_the_same_size_is_an_error(tmp_path: Path, knows: str) -> None:
    file, store = tmp_path / "a.parquet", InMemoryStorageConnector()
    content = write(file, compression="none", use_dictionary=False)
    table = rows(0, 6).set_column(0, "id", pa.array(range(2000, 2006)))
    pq.write_table(
        table, tmp_path / "b", row_group_size=3, compression="none", use_dictionary=False
    )
    other = (tmp_path / "b").read_bytes()
    assert len(other) == len(content)

    def replace(data: bytes) -> None:
        if knows == "digests":
            store.set_resource("a.parquet", data)
        elif knows == "nothing":
            store.set_resource("a.parquet", data)
            stored = store._stored["a.parquet"]
            info = ResourceInfo("a.parquet", len(data))
            store._stored["a.parquet"] = dataclasses.replace(stored, info=info)
        elif knows == "path":
            (tmp_path / "new").write_bytes(data)
            os.replace(tmp_path / "new", file)
        else:
            file.write_bytes(data)

    replace(content)
    in_files = {"filesystem": pafs.LocalFileSystem()} if knows == "file system" else {}
    dataset = ParquetDataset(store if knows in ("digests", "nothing") else str(file), **in_files)
    assert dataset[0]["id"] == 1000

    replace(other)

    with pytest.raises(ResourceChangedError, match=r"a\.parquet"):
        dataset[5]
    if knows == "path":
        with pytest.raises(ResourceChangedError, match=r"a\.parquet"):
            dataset[0]
    else:  # a check would be a request to the store; the row was read before
        assert dataset[0]["id"] == 1000


# ------------------------------------------------------------------ headers of pages

# Thrift's compact protocol: field 1 is the kind of page, 2 and 3 are its sizes, unpacked and stored.
_KIND, _SIZE = b"\x15\x00", b"\x15\x08"


def test_what_pages_claim_is_added_up() -> None:
    page = _KIND + _SIZE + _SIZE + b"\x00" + b"data"

    assert read_claimed_bytes(pa.BufferReader(page * 3), 0, 3 * len(page)) == (12, 0)


@pytest.mark.parametrize(
    "other",
    [b"\x1c\x00", b"\x18\x01a", b"\x11", b"\x19\x15\x02"],
    ids=["struct", "bytes", "truth", "list"],
)
@pytest.mark.parametrize("position", [1, 2])
def test_a_size_of_another_type_is_damage(position: int, other: bytes) -> None:
    fields = [_KIND, _SIZE, _SIZE]
    fields[position] = other
    header = b"".join(fields) + b"\x00"

    with pytest.raises(ValueError, match="page at byte 0"):
        read_claimed_bytes(pa.BufferReader(header + b"data"), 0, len(header) + 4)


def test_a_file_changed_while_its_schema_is_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    options: dict[str, Any] = {"use_deprecated_int96_timestamps": True, "store_schema": False}
    pq.write_table(pa.table({"t": pa.array([1], pa.timestamp("ns"))}), file, **options)
    footers = Footers(find_files(file))
    footers.of(0)
    pq.write_table(pa.table({"t": pa.array([1, 2], pa.timestamp("ns"))}), file, **options)

    with pytest.raises(ResourceChangedError, match=r"a\.parquet.*was replaced"):
        read_schema(footers)


def test_a_row_group_of_negative_size_is_an_error(tmp_path: Path) -> None:
    n_rows = b"\x16\x09"  # field 3 as i64: -5
    root = b"\x48\x01r\x15\x00\x00"  # a name, and no children
    group = b"\x19\x0c\x16\x00" + b"\x16\x09" + b"\x00"  # no columns, 0 bytes, -5 rows
    footer = b"\x15\x02\x19\x1c" + root + n_rows + b"\x19\x1c" + group + b"\x00"
    file = tmp_path / "a.parquet"
    file.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")

    with pytest.raises(DatasetFileCorruptError, match="row group 0 has -5 rows"):
        ParquetDataset(file)


def test_the_high_bits_of_a_size_hide_no_page() -> None:
    # pyarrow's Thrift reads 32 bits of a size: it reads on at the next page.
    size_with_high_bits = b"\x15\x88\x80\x80\x80\x80\x01"
    page = _KIND + _SIZE + size_with_high_bits + b"\x00" + b"data"

    assert read_claimed_bytes(pa.BufferReader(page * 3), 0, 3 * len(page)) == (12, 0)


def test_pyarrow_ignores_the_high_bits_of_a_size_as_well(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"x": range(1000)})
    pq.write_table(
        table,
        path,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
        data_page_size=400,
        write_batch_size=100,
    )
    chunk = pq.read_metadata(path).row_group(0).column(0)
    start = chunk.data_page_offset
    end = start + chunk.total_compressed_size
    data = path.read_bytes()
    expected = read_claimed_bytes(pa.BufferReader(data), start, end)
    kind_and_sizes = re.compile(rb"\x15\x00\x15[\x80-\xff]+.\x15([\x80-\xff])(.)", re.DOTALL)
    header = kind_and_sizes.match(data, start)
    assert header is not None
    checksum = re.compile(rb"\x15[\x80-\xff]*[\0-\x7f]\x1c", re.DOTALL).match(data, header.end())
    assert checksum is not None
    # The longer size takes the bytes of the checksum, a field that may be missing.
    first, second = header.group(1, 2)
    n_more = len(checksum[0]) - 2
    long_size = first + bytes([second[0] | 0x80]) + b"\x80" * n_more + b"\x01"
    crafted = data[: header.start(1)] + long_size + b"\x2c" + data[checksum.end() :]

    assert len(crafted) == len(data)
    assert pq.read_table(pa.BufferReader(crafted)) == table
    assert read_claimed_bytes(pa.BufferReader(crafted), start, end) == expected


def test_lists_without_elements_are_called_by_their_type(tmp_path: Path) -> None:
    lists = pa.array([[], []], pa.list_(pa.int32(), 0))
    pq.write_table(pa.table({"n": [1, 2], "empty": lists}), tmp_path / "a.parquet")

    with pytest.raises(DatasetFileCorruptError, match=r"'empty'.*fixed_size_list\[0\].*columns="):
        ParquetDataset(tmp_path)[0]
    assert ParquetDataset(tmp_path, columns=["n"])[1] == {"n": 2}


def test_list_views_are_refused_with_advice(tmp_path: Path) -> None:
    views = pa.array([[1], [2]], pa.list_view(pa.int32()))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1, 2], "views": views}), path)

    with pytest.raises(
        ConfigError, match=r"a\.parquet: column 'views'.*list_view.*cast it"
    ) as info:
        ParquetDataset(path)

    assert str(path) in str(info.value)
    assert ParquetDataset(path, schema=Schema("s", [Field("n", "int64")]))[1] == {"n": 2}
