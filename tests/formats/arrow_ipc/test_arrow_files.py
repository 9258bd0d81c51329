"""Arrow files of both formats, read in any order: pyarrow reads the same values."""

from __future__ import annotations

import io
import os
import pickle
import struct
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest
from fuzz_readings import same

import data_stack
from data_stack.dataset.iterator import access_to
from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceChangedError
from data_stack.formats.arrow_ipc import ArrowDataset
from data_stack.formats.conversion import convert
from data_stack.io.storage_connectors import InMemoryStorageConnector

N = 23

#: A column of each type that is read: Arrow's cells.
COLUMNS: dict[str, pa.Array] = {
    "int8": pa.array([number - 5 for number in range(N)], pa.int8()),
    "uint64": pa.array([2**64 - 1 - number for number in range(N)], pa.uint64()),
    "float16": pa.array(np.arange(N, dtype=np.float16)),
    "float32": pa.array([number / 7 for number in range(N)], pa.float32()),
    "float64 with nulls": pa.array([None if number % 3 else number / 7 for number in range(N)]),
    "bool": pa.array([number % 2 == 0 for number in range(N)]),
    "string": pa.array(["ü" * number for number in range(N)]),
    "string with nulls": pa.array([None if number == 2 else str(number) for number in range(N)]),
    "large_string": pa.array([str(number) for number in range(N)], pa.large_string()),
    "string_view": pa.array([f"a text that is not short {n}" for n in range(N)], pa.string_view()),
    "binary": pa.array([bytes([number, 0]) for number in range(N)]),
    "binary_view": pa.array([bytes([number]) * 20 for number in range(N)], pa.binary_view()),
    "fixed_size_binary": pa.array([bytes([number]) * 3 for number in range(N)], pa.binary(3)),
    "date32": pa.array(list(range(N)), pa.date32()),
    "timestamp": pa.array([number * 10**9 for number in range(N)], pa.timestamp("ns")),
    "timestamp in a zone": pa.array(list(range(N)), pa.timestamp("us", "Europe/Berlin")),
    "time64": pa.array(list(range(N)), pa.time64("us")),
    "duration": pa.array(list(range(N)), pa.duration("ms")),
    "decimal128": pa.array([Decimal(number) / 4 for number in range(N)], pa.decimal128(9, 2)),
    "list": pa.array([[number] * (number % 4) for number in range(N)], pa.list_(pa.int16())),
    "list of text": pa.array([["a", str(number)] for number in range(N)]),
    "list of lists": pa.array([[[number], []] for number in range(N)]),
    "large_list": pa.array([[number] for number in range(N)], pa.large_list(pa.int32())),
    "fixed_size_list": pa.array([[number, 1] for number in range(N)], pa.list_(pa.float32(), 2)),
    "matrix": pa.array(
        [[[number, 1], [2, 3], [4, 5]] for number in range(N)],
        pa.list_(pa.list_(pa.uint8(), 2), 3),
    ),
    "struct": pa.array([{"a": number, "b": {"c": str(number)}} for number in range(N)]),
    "map": pa.array([[(str(number), number)] for number in range(N)], pa.map_("string", "int64")),
    "dictionary": pa.array([f"k{number % 3}" for number in range(N)]).dictionary_encode(),
    "list of dictionary": pa.ListArray.from_arrays(
        pa.array(range(N + 1), pa.int32()),
        pa.array([f"k{number % 3}" for number in range(N)]).dictionary_encode(),
    ),
    "null": pa.nulls(N),
}
TABLE = pa.table(COLUMNS)


def write(path: Path, table: pa.Table, *, stream: bool = False, **options: Any) -> Path:
    """Write a table in record batches of 5 rows."""
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=5)
    return path


def check_same(rows: Any, expected: Any) -> None:
    """Check that two iterators have the same samples, batches and columns, in any order."""
    positions = [7, 3, 3, N - 1, 0, 12, 4]
    batch = rows.read_batch(positions)
    expected_batch = expected.read_batch(positions)
    for name in expected.column_names:
        assert same(batch[name], expected_batch[name]), name
        assert same(rows.read_column(name), expected.read_column(name)), name
    for position in (22, 0, 9):
        for name, value in expected[position].items():
            assert same(rows[position][name], value), name
    assert same(list(rows), list(expected))


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("stream", [False, True])
def test_all_types_are_read_as_from_arrow_reads_them(
    tmp_path: Path, stream: bool, compression: str | None
) -> None:
    path = write(tmp_path / "a.arrow", TABLE, stream=stream, compression=compression)

    check_same(ArrowDataset(path), data_stack.from_arrow(TABLE))


@pytest.mark.parametrize("stream", [False, True])
def test_a_store_is_read_by_range(tmp_path: Path, stream: bool) -> None:
    store = InMemoryStorageConnector()
    path = write(tmp_path / "a.arrow", TABLE, stream=stream)
    with path.open("rb") as file:
        store.set_resource("sets/a.arrow", file)

    check_same(ArrowDataset((store, "sets/a.arrow")), data_stack.from_arrow(TABLE))


def test_a_file_of_the_caller_is_read(tmp_path: Path) -> None:
    file = io.BytesIO(write(tmp_path / "a.arrow", TABLE).read_bytes())

    check_same(ArrowDataset(file), data_stack.from_arrow(TABLE))


def test_feather_files_are_loaded_by_their_suffix(tmp_path: Path) -> None:
    feather.write_feather(TABLE.drop_columns(["null"]), str(tmp_path / "a.feather"))

    loaded: Any = data_stack.load(str(tmp_path / "a.feather"), columns=["string", "int8"])

    assert loaded[3] == {"string": "üüü", "int8": -2}


def test_feather_version_1_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "a.feather").write_bytes(b"FEA1" + bytes(60) + b"FEA1")

    with pytest.raises(DatasetFileCorruptError, match=r"version 1.*write_feather"):
        ArrowDataset(tmp_path / "a.feather")


def test_growing_and_replaced_dictionaries_are_read_in_any_order(tmp_path: Path) -> None:
    names = [["a", "b"], ["a", "b", "c"], ["z", "y"], ["x"]]
    schema = pa.schema([("k", pa.dictionary(pa.int8(), pa.string()))])
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(str(tmp_path / "a.arrows"), schema, options=options) as writer:
        for dictionary in names:
            codes = pa.array(range(len(dictionary)), pa.int8())
            cells = pa.DictionaryArray.from_arrays(codes, pa.array(dictionary))
            writer.write_batch(pa.record_batch([cells], schema))
    rows: Any = ArrowDataset(tmp_path / "a.arrows")
    expected = [name for dictionary in names for name in dictionary]

    positions = [7, 0, 5, 4, 1, 6, 2, 3]

    assert [rows[position]["k"] for position in positions] == [expected[n] for n in positions]
    assert rows.read_column("k").tolist() == expected
    assert rows.read_batch(positions)["k"].tolist() == [expected[n] for n in positions]


def test_a_null_in_a_dictionary_is_none(tmp_path: Path) -> None:
    codes = pa.array([0, 1, 0], pa.int8())
    table = pa.table({"n": pa.DictionaryArray.from_arrays(codes, pa.array([7, None]))})
    rows: Any = ArrowDataset(write(tmp_path / "a.arrow", table))

    for iterator in (rows, data_stack.from_arrow(table)):
        assert list(iterator) == [{"n": 7}, {"n": None}, {"n": 7}]
        assert iterator.read_column("n").tolist() == [7, None, 7]
        assert not access_to(iterator).fixed_columns


def test_extension_types_are_read_as_they_are_stored(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([bytes(range(16))] * 3, pa.uuid())})
    rows: Any = ArrowDataset(write(tmp_path / "a.arrow", table))

    assert rows[1] == {"id": bytes(range(16))}
    assert rows.read_column("id").tolist() == [bytes(range(16))] * 3


def test_types_without_values_are_refused_by_name(tmp_path: Path) -> None:
    union = pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]
    )
    path = write(tmp_path / "a.arrow", pa.table({"good": [1, 2], "bad": union}))

    with pytest.raises(ConfigError, match=r"'bad'.*unsupported type"):
        ArrowDataset(path)
    assert ArrowDataset(path, ["good"])[1] == {"good": 2}


def test_an_unknown_column_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", pa.table({"label": [1]}))

    with pytest.raises(ConfigError, match="label"):
        ArrowDataset(path, ["lable"])


def test_files_with_the_same_columns_are_one_dataset(tmp_path: Path) -> None:
    parts = [TABLE.slice(0, 8), TABLE.slice(8, 0), TABLE.slice(8)]
    paths = [write(tmp_path / f"a-{n}.arrow", part) for n, part in enumerate(parts)]

    check_same(ArrowDataset(paths), data_stack.from_arrow(TABLE))


def test_files_with_other_columns_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path / "a.arrow", pa.table({"a": [1]}))
    second = write(tmp_path / "b.arrow", pa.table({"a": [1.5]}))

    with pytest.raises(DatasetFileCorruptError, match=r"b.arrow.*has other columns.*a: double"):
        ArrowDataset([first, second])


def test_splits_are_found_by_the_names_of_files(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"train-0000{number}-of-00002.arrow", pa.table({"a": [number]}))
    write(tmp_path / "test.arrow", pa.table({"a": [5]}))

    splits = data_stack.load(str(tmp_path))

    assert {name: list(split) for name, split in splits.items()} == {
        "train": [{"a": 0}, {"a": 1}],
        "test": [{"a": 5}],
    }


@pytest.mark.parametrize("stream", [False, True])
def test_a_file_without_rows_has_its_columns(tmp_path: Path, stream: bool) -> None:
    path = write(tmp_path / "a.arrow", TABLE.slice(0, 0), stream=stream)

    rows: Any = ArrowDataset(path)

    assert len(rows) == 0
    assert list(rows) == []
    assert rows.column_names == TABLE.column_names
    assert rows.read_column("float32").dtype == np.float32


def test_columns_of_one_dtype_and_shape_are_fixed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", TABLE)

    fixed = access_to(ArrowDataset(path, ["int8", "matrix", "float32"]))
    varying = access_to(ArrowDataset(path, ["int8", "list"]))

    assert fixed.fixed_columns
    assert not varying.fixed_columns
    assert access_to(ArrowDataset(path)).locate(12) == f"row 2 of record batch 2 of {path}"


def test_values_are_copies_that_a_caller_may_change(tmp_path: Path) -> None:
    rows: Any = ArrowDataset(write(tmp_path / "a.arrow", TABLE), ["matrix", "list", "int8"])

    rows[4]["matrix"][:] = 9
    rows.read_batch([4])["matrix"][:] = 9
    rows.read_column("int8")[:] = 9

    assert rows[4]["matrix"].tolist() == [[4, 1], [2, 3], [4, 5]]
    assert rows[4]["int8"] == -1


# ------------------------------------------------------------------ processes, threads, changes


def _sum_of(rows: Any) -> int:
    return int(rows.read_column("int8").sum())


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_another_process_opens_the_files_itself(tmp_path: Path, method: str) -> None:
    rows: Any = ArrowDataset(write(tmp_path / "a.arrow", TABLE, compression="zstd"), ["int8"])
    expected = _sum_of(rows)

    with get_context(method).Pool(1) as pool:
        assert pool.apply(_sum_of, (rows,)) == expected


def test_threads_share_a_dataset(tmp_path: Path) -> None:
    rows: Any = ArrowDataset(
        write(tmp_path / "a.arrow", TABLE, compression="lz4"), ["string", "list"]
    )
    expected = rows.read_batch(range(N))

    def read(seed: int) -> bool:
        positions = np.random.default_rng(seed).permutation(N)
        batch = rows.read_batch(positions)
        return same(batch["string"], expected["string"][positions])

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(64)))


def test_a_file_that_was_written_to_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", TABLE)
    rows: Any = ArrowDataset(path, ["int8", "string"])
    rows[0]

    with path.open("r+b") as file:
        file.write(b"ARROW1\0\0")
    os.utime(path, ns=(1, 1))

    with pytest.raises(ResourceChangedError, match=r"a\.arrow"):
        rows[1]
    with pytest.raises(ResourceChangedError):
        rows.read_batch([1, 2])


def test_a_replaced_file_is_read_on_but_not_reopened(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", TABLE)
    rows: Any = ArrowDataset(path, ["int8"])
    pickled = pickle.dumps(rows)

    os.replace(write(tmp_path / "b.arrow", TABLE.slice(5)), path)

    assert rows[0]["int8"] == -5
    with pytest.raises(ResourceChangedError):
        pickle.loads(pickled)[0]


# ------------------------------------------------------------------ recipes and conversion


def test_a_recipe_opens_the_file_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", TABLE)
    rows: Any = data_stack.load(str(path), columns=["int8", "string"])

    again: Any = data_stack.from_recipe(rows.recipe())

    assert list(again) == list(rows)
    assert again.fingerprint() == rows.fingerprint()


@pytest.mark.parametrize("name", ["out.arrow", "out.feather", "out.arrows"])
def test_a_converted_table_is_one_for_pyarrow(tmp_path: Path, name: str) -> None:
    names = ["int8", "float64 with nulls", "string", "binary", "timestamp", "list", "matrix"]
    table = TABLE.select([*names, "struct", "decimal128"])

    report = convert(data_stack.from_arrow(table), tmp_path / name)

    assert report.target_format == "arrow"
    read = pa.ipc.open_stream if name.endswith(".arrows") else pa.ipc.open_file
    with pa.memory_map(str(tmp_path / name)) as file:
        written = read(file).read_all()
    assert written.to_pylist() == table.to_pylist()
    check_same(data_stack.load(str(tmp_path / name)), data_stack.from_arrow(table))


def test_a_conversion_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def fail(sample: Any) -> Any:
        if sample["int8"] == 10:
            raise ValueError("no")
        return sample

    source = data_stack.from_arrow(TABLE.select(["int8"])).map(fail)

    with pytest.raises(ValueError, match="no"):
        convert(source, tmp_path / "out.arrow")

    assert list(tmp_path.iterdir()) == []


def as_big_endian(data: bytes) -> bytes:
    """Return a file in the file format as a machine of that order of bytes writes it.

    Args:
        data: a file with one record batch of an int32 column without nulls.
    """
    (footer_bytes,) = struct.unpack("<i", data[-10:-6])
    schema_start = 16
    (schema_bytes,) = struct.unpack("<i", data[12:16])
    places = [(schema_start, schema_bytes, 2), (len(data) - 10 - footer_bytes, footer_bytes, None)]
    changed = bytearray(data)
    for start, n_bytes, content in places:
        (root,) = struct.unpack_from("<I", changed, start)
        table = start + root
        # The schema is the content of the message, and the first field of the footer that is stored.
        table = follow(changed, table, 1 if content is None else content)
        entries = table - struct.unpack_from("<i", changed, table)[0]
        # Little is 0, which is not stored: the field is pointed at two bytes that read as 1.
        one = bytes(changed).index(b"\x01\x00", table + 4, start + n_bytes)
        while (one - table) % 2:
            one = bytes(changed).index(b"\x01\x00", one + 1, start + n_bytes)
        struct.pack_into("<H", changed, entries + 4, one - table)
    numbers = np.arange(N, dtype="<i4").tobytes()
    swapped = np.arange(N, dtype=">i4").tobytes()
    assert bytes(changed).count(numbers) == 1
    return bytes(changed).replace(numbers, swapped)


def follow(data: bytes | bytearray, table: int, field: int) -> int:
    """Return where a table in a table of a FlatBuffer begins."""
    entries = table - struct.unpack_from("<i", data, table)[0]
    (offset,) = struct.unpack_from("<H", data, entries + 4 + 2 * field)
    position: int = table + offset + struct.unpack_from("<I", data, table + offset)[0]
    return position


def test_a_file_of_a_big_endian_machine_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    table = pa.table({"n": pa.array(range(N), pa.int32())})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    path.write_bytes(as_big_endian(path.read_bytes()))

    rows: Any = ArrowDataset(path)

    assert rows.read_column("n").tolist() == list(range(N))
    assert rows[7] == {"n": 7}
