"""Windows and batches of rows of numbers: slices of one array, wherever it is stored."""

from __future__ import annotations

import io
import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from far_store import FarStorageConnector
from torch_or_stand_in import torch

import data_stack
from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
    access_to,
)
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.exception import DatasetFileCorruptError, RequestLimitError, StorageError
from data_stack.formats import (
    HDF5DatasetIterator,
    NumpyDatasetIterator,
    RawDatasetIterator,
    write_npy,
)
from data_stack.formats.records import ColumnType, RecordReader, RecordWriter
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.loader import BlockShuffled, Loader
from data_stack.util.request_limit import MAX_REQUEST_BYTES

N_ROWS, LENGTH = 203, 10
NUMBERS = np.random.default_rng(0).integers(0, 60_000, N_ROWS).astype("<u2")
ROWS = np.random.default_rng(1).normal(size=(N_ROWS, 2, 3)).astype("float32")

_Array = npt.NDArray[Any]
_Open = Callable[[Path, _Array], DatasetIteratorIF]


# ---------------------------------------------------------------------- sources of one column


def saved(folder: Path, rows: _Array) -> Path:
    np.save(folder / "rows.npy", rows)
    return folder / "rows.npy"


def npy_far_away(folder: Path, rows: _Array) -> DatasetIteratorIF:
    store = FarStorageConnector(folder, 256)
    with store.create("rows.npy") as file:
        write_npy(file, rows)
    return NumpyDatasetIterator([store.get_resource("rows.npy")])


def raw(folder: Path, rows: _Array) -> DatasetIteratorIF:
    (folder / "rows.bin").write_bytes(b"odd" + rows.tobytes())  # not aligned
    return RawDatasetIterator([folder / "rows.bin"], (rows.dtype, rows.shape[1:]), header_bytes=3)


def hdf5(folder: Path, rows: _Array, **options: Any) -> DatasetIteratorIF:
    with h5py.File(folder / "rows.h5", "w") as file:
        file.create_dataset("rows", data=rows, **options)
    return HDF5DatasetIterator(folder / "rows.h5", ["rows"])


def hdf5_in_chunks(folder: Path, rows: _Array) -> DatasetIteratorIF:
    return hdf5(folder, rows, chunks=(min(16, len(rows)), *rows.shape[1:]), compression="gzip")


def records(
    folder: Path, rows: _Array, type_name: str = "array", **options: Any
) -> DatasetIteratorIF:
    with RecordWriter(folder, {"x": ColumnType(type_name, rows.dtype, rows.shape[1:])}) as writer:
        writer.extend({"x": rows})
    return RecordReader(folder, **options).as_tuple()


SOURCES: dict[str, _Open] = {
    "arrays": lambda _, rows: SequenceDatasetIterator([rows]),
    "strided": lambda _, rows: SequenceDatasetIterator([np.stack([rows, rows])[1]]),
    "memory map": lambda folder, rows: SequenceDatasetIterator(
        [np.load(saved(folder, rows), mmap_mode="r")]
    ),
    "tensor": lambda _, rows: SequenceDatasetIterator([torch.from_numpy(rows.copy())]),
    "npy": lambda folder, rows: NumpyDatasetIterator([saved(folder, rows)]),
    "npy in Fortran's order": lambda folder, rows: NumpyDatasetIterator(
        [saved(folder, np.asfortranarray(rows))]
    ),
    "npy of an open file": lambda folder, rows: NumpyDatasetIterator(
        [io.BytesIO(saved(folder, rows).read_bytes())]
    ),
    "npy far away": npy_far_away,
    "raw": raw,
    "hdf5": hdf5,
    "hdf5 in chunks": hdf5_in_chunks,
    "records": records,
    "records with headers": lambda folder, rows: records(folder, rows, "npy"),
    "records by range": lambda folder, rows: records(folder, rows, mapped=False),
    "kept": lambda _, rows: SequenceDatasetIterator([rows]).in_memory(),
}


def slices(rows: _Array, starts: Any, length: int = LENGTH) -> _Array:
    return np.stack([rows[start : start + length] for start in starts])


def check(
    iterator: DatasetIteratorIF, rows: _Array, starts: list[int], length: int = LENGTH
) -> None:
    """All ways to read samples that are runs of ``rows`` from ``starts`` on; and what is read
    belongs to the reader.
    """
    expected, n = slices(rows, starts, length), len(starts)
    assert len(iterator) == n

    def same(found: Any, wanted: _Array) -> None:
        assert type(found) is np.ndarray
        assert found.dtype == rows.dtype
        assert np.array_equal(found, wanted)
        found[...] = found[:1]  # to write into it changes nothing else
        assert found.flags.writeable

    for position in {0, n // 2, n - 1, -1}:
        same(iterator[position][0], expected[position])
    for chosen in (
        np.arange(n),
        np.arange(n)[::-1],
        np.array([0]),
        np.array([n - 1, 0, 0, n // 2, -n]),
    ):
        same(iterator.read_batch(chosen)[0], expected[chosen])  # type: ignore[index]  # of tuples
        same(iterator.read_column(0, chosen), expected[chosen])
        for (found,), wanted in zip(iterator.__getitems__(chosen), expected[chosen], strict=True):
            same(found, wanted)
    empty = iterator.read_batch([])[0]  # type: ignore[index]  # of tuples
    assert (empty.shape, empty.dtype) == ((0, *expected.shape[1:]), rows.dtype)
    assert np.array_equal(iterator.read_column(0), expected)
    assert np.array_equal([found for (found,) in iterator], expected)


@pytest.mark.parametrize("rows", [NUMBERS, ROWS], ids=["numbers", "rows"])
@pytest.mark.parametrize("source_kind", SOURCES)
def test_windows_are_slices_of_the_rows(source_kind: str, rows: _Array, tmp_path: Path) -> None:
    source = SOURCES[source_kind](tmp_path, rows)

    for stride in (1, 4, 10, 37, 300):
        windows = source.windows(LENGTH, stride=stride)
        assert access_to(windows).fixed_columns
        check(windows, rows, list(range(0, N_ROWS - LENGTH + 1, stride)))
    check(source.windows(N_ROWS), rows, [0], N_ROWS)
    assert len(source.windows(N_ROWS + 1)) == 0
    assert np.array_equal(np.stack([row for (row,) in source]), rows)


def test_windows_of_a_table_are_slices_of_its_columns() -> None:
    import pandas as pd

    windows = (
        data_stack.from_pandas(pd.DataFrame({"x": NUMBERS})).as_tuple().windows(LENGTH, stride=4)
    )

    assert access_to(windows).fixed_columns
    check(windows, NUMBERS, list(range(0, N_ROWS - LENGTH + 1, 4)))


@pytest.mark.parametrize("source_kind", SOURCES)
def test_batches_are_slices_with_a_shorter_one_at_the_end(source_kind: str, tmp_path: Path) -> None:
    source = SOURCES[source_kind](tmp_path, ROWS)

    full, batches = source.batch(LENGTH, drop_last=True), source.batch(LENGTH)

    assert access_to(full).fixed_columns
    assert not access_to(batches).fixed_columns
    check(full, ROWS, list(range(0, 200, LENGTH)))
    assert np.array_equal(batches[-1][0], ROWS[200:])
    assert [len(batch) for (batch,) in batches.__getitems__([20, 3, 20])] == [3, 10, 3]
    assert [each.shape for each in batches.read_batch([20, 3])[0]] == [(3, 2, 3), (10, 2, 3)]  # type: ignore[index]
    assert np.array_equal(batches.read_column(0, [20, 20])[1], ROWS[200:])


@pytest.mark.parametrize(
    "source_kind", ["arrays", "npy", "npy far away", "records", "hdf5 in chunks", "kept"]
)
def test_slices_are_read_at_once_other_views_sample_by_sample(
    source_kind: str, tmp_path: Path
) -> None:
    source = SOURCES[source_kind](tmp_path, NUMBERS)

    for part, of in (
        (source.skip(7), slice(7, None)),
        (source.take(60), slice(60)),
        (source[20:90][5:], slice(25, 90)),
    ):
        windows = part.windows(LENGTH, stride=LENGTH)
        assert access_to(windows).fixed_columns
        check(windows, NUMBERS[of], list(range(0, len(NUMBERS[of]) - LENGTH + 1, LENGTH)))
    for view, order in (
        (source[::-2], np.arange(N_ROWS)[::-2]),
        (source[[5, 3] * 20], np.array([5, 3] * 20)),
    ):
        windows = view.windows(LENGTH, stride=LENGTH)
        assert not access_to(windows).fixed_columns
        check(windows, NUMBERS[order], list(range(0, len(order) - LENGTH + 1, LENGTH)))
    shuffled = source.windows(LENGTH, stride=LENGTH).shuffle(3)
    starts = [
        int(position) * LENGTH
        for (position,) in SequenceDatasetIterator([np.arange(20)]).shuffle(3)
    ]
    check(shuffled, NUMBERS, starts)


@pytest.mark.parametrize("rows", [NUMBERS, ROWS], ids=["numbers", "rows"])
@pytest.mark.parametrize(
    "source_kind", ["arrays", "npy", "npy far away", "raw", "hdf5 in chunks", "records"]
)
def test_windows_of_several_parts_cross_their_borders(
    source_kind: str, rows: _Array, tmp_path: Path
) -> None:
    parts = []
    for number, (start, stop) in enumerate(itertools.pairwise([0, 15, 15, 90, 96, N_ROWS])):
        folder = tmp_path / str(number)
        folder.mkdir()
        parts.append(
            SOURCES[source_kind](folder, rows[start:stop])
            if start < stop
            else SequenceDatasetIterator([rows[:0]])
        )
    combined = parts[0].combine(*parts[1:])

    for stride in (1, 5, 10, 300):
        windows = combined.windows(LENGTH, stride=stride)
        check(windows, rows, list(range(0, N_ROWS - LENGTH + 1, stride)))
    check(combined.skip(7).windows(20, stride=20), rows[7:], list(range(0, N_ROWS - 26, 20)), 20)
    within = access_to(combined.windows(LENGTH)).batch(np.array([3, 100, 0, 16]))
    assert np.array_equal(within[0], slices(rows, [3, 100, 0, 16]))  # type: ignore[index]  # of tuples


def test_windows_across_dtypes_are_stacked_as_samples_are() -> None:
    combined = SequenceDatasetIterator([np.arange(10, dtype="u1")]).combine(
        SequenceDatasetIterator([np.arange(10, dtype="i4")]),
        SequenceDatasetIterator([list(range(10))]),
    )

    windows = combined.windows(4, stride=1)

    for position in range(len(windows)):
        expected: Any = combined.read_batch(range(position, position + 4))
        assert windows[position][0].tolist() == expected[0].tolist()
        assert windows[position][0].dtype == expected[0].dtype
    several: Any = windows.read_batch([2, 12, 8])
    assert several[0].tolist() == [[2, 3, 4, 5], [2, 3, 4, 5], [8, 9, 0, 1]]
    assert several[0].dtype == "i4"


@pytest.mark.parametrize(
    "rows",
    [
        NUMBERS[::-1],
        NUMBERS[::2],
        ROWS.transpose(0, 2, 1),
        NUMBERS.astype(">u2"),
        NUMBERS.astype("M8[s]"),
        NUMBERS.astype("S5"),
        NUMBERS.astype("U5"),
        NUMBERS % 2 == 0,
        NUMBERS.astype("c8"),
        np.array([(number, 0.5) for number in NUMBERS], [("a", "u2"), ("b", "f4")]),
        np.empty((N_ROWS, 0), "i4"),
    ],
    ids=lambda rows: f"{rows.dtype.str}{rows.strides}",
)
def test_windows_of_arrays_of_any_dtype_and_layout(rows: _Array) -> None:
    windows = SequenceDatasetIterator([rows]).windows(LENGTH, stride=7)

    assert access_to(windows).fixed_columns
    check(windows, rows, list(range(0, len(rows) - LENGTH + 1, 7)))


def test_objects_and_lists_are_stacked_window_by_window() -> None:
    masked = np.ma.MaskedArray(NUMBERS, NUMBERS < 10_000)

    for column in (
        NUMBERS.astype(object),
        NUMBERS.tolist(),
        [str(number) for number in NUMBERS],
        masked,
    ):
        windows = SequenceDatasetIterator([column, NUMBERS]).windows(LENGTH, stride=LENGTH)
        assert not access_to(windows).fixed_columns
        found: Any = windows.read_batch([3, 0])
        assert found[0].shape == (2, LENGTH)
        assert [str(value) for value in windows[3][0]] == [str(value) for value in column[30:40]]
        assert np.array_equal(found[1], slices(NUMBERS, [30, 0]))
    mapped = (
        SequenceDatasetIterator([NUMBERS]).map(lambda sample: (int(sample[0]) + 1,)).windows(LENGTH)
    )
    assert np.array_equal(mapped[2][0], NUMBERS[2:12] + 1)


def test_windows_keep_the_form_of_the_samples(tmp_path: Path) -> None:
    source = SequenceDatasetIterator([NUMBERS, ROWS])
    meta = DatasetMeta(
        IteratorMeta("token", "row", "tag"), "set", "set", column_names=("token", "row")
    )

    dicts = source.as_dict("token", "row").windows(LENGTH, stride=5)
    chosen = (
        source.as_dict("token", "row").select("row").rename({"row": "x"}).windows(LENGTH, stride=5)
    )
    informed = InformedDatasetIterator(source, meta).windows(LENGTH, stride=5)
    bare = data_stack.from_numpy(NUMBERS).map(lambda sample: sample[0]).in_memory().windows(LENGTH)

    batch = dicts.read_batch([1, 2])
    assert isinstance(batch, dict)
    assert {key: column.shape for key, column in batch.items()} == {
        "token": (2, 10),
        "row": (2, 10, 2, 3),
    }
    assert list(chosen[3]) == ["x"]
    assert np.array_equal(chosen[3]["x"], ROWS[15:25])
    assert np.array_equal(chosen.read_column("x", [3]), slices(ROWS, [15]))
    assert np.array_equal(informed.read_column("row", [2, 0]), slices(ROWS, [10, 0]))
    assert np.array_equal(informed[2][1], ROWS[10:20])
    assert np.array_equal(bare[4], NUMBERS[4:14])
    assert bare.read_batch([4, 5]).shape == (2, LENGTH)  # type: ignore[union-attr]
    with pytest.raises(data_stack.exception.ConfigError, match="no column 'rows'"):
        dicts.read_column("rows")


# ---------------------------------------------------------------- loaders, processes, remote stores


@pytest.mark.parametrize("source_kind", ["npy", "raw", "hdf5"])
def test_windows_are_pickled_as_their_files_for_spawned_workers(
    source_kind: str, tmp_path: Path
) -> None:
    windows = SOURCES[source_kind](tmp_path, np.arange(100_000, dtype="<u4")).windows(
        1024, stride=1024
    )
    assert windows[0][0][5] == 5

    with Loader(windows, 8, worker_kind="processes", workers=2) as loader:
        found = np.concatenate([batch[0] for batch in loader])

    assert found.reshape(-1).tolist() == list(range(97 * 1024))
    pickled = pickle.dumps(windows)
    assert len(pickled) < 4000
    assert pickle.loads(pickled)[3][0].tolist() == list(range(3072, 4096))
    assert pickle.loads(pickled).fingerprint() == windows.fingerprint()


def far_windows(folder: Path, kind: str) -> tuple[FarStorageConnector, DatasetIteratorIF]:
    """24 MiB of windows of 4 KiB, in blocks of 64 KiB: more than is cached of a remote file."""
    store, numbers = FarStorageConnector(folder, 1 << 16), np.arange(6 << 20, dtype="<u4")
    if kind == "records":
        with RecordWriter(
            store, {"x": ColumnType("array", "uint32", (8,))}, prefix="records"
        ) as writer:
            writer.extend({"x": numbers.reshape(-1, 8)})
        return store, RecordReader(store, prefix="records").as_tuple().windows(128, stride=128)
    with store.create("numbers") as file:
        file.write(numbers.tobytes()) if kind == "raw" else write_npy(file, numbers)
    resource = store.get_resource("numbers")
    source = (
        RawDatasetIterator([resource], "uint32")
        if kind == "raw"
        else NumpyDatasetIterator([resource])
    )
    return store, source.windows(1024, stride=1024)


@pytest.mark.parametrize("kind", ["npy", "raw", "records"])
def test_remote_windows_move_each_byte_once_an_epoch(kind: str, tmp_path: Path) -> None:
    store, windows = far_windows(tmp_path, kind)
    assert len(windows) == 6 << 10
    access = access_to(windows)
    blocks: Any = access.blocks()
    assert access.prefers_blocks
    assert access.releases_gil
    assert blocks.sum() == len(windows)
    assert len(blocks) > 8

    store.requests.clear()
    first = windows.read_batch([4000, 17, 2000])[0]  # type: ignore[index]  # of tuples

    assert len(store.requests) == 1
    assert [int(window.reshape(-1)[0]) for window in first] == [4000 * 1024, 17 * 1024, 2000 * 1024]
    with pytest.warns(UserWarning, match="BlockShuffled"):
        Loader(windows, 16, shuffle=True, worker_kind="inline").__iter__().__next__()
    store.requests.clear()
    with Loader(
        windows, 16, shuffle=BlockShuffled(window=8), seed=1, worker_kind="inline"
    ) as loader:
        firsts = [int(window.reshape(-1)[0]) for batch in loader for window in batch[0]]
    assert sorted(firsts) == list(range(0, 6 << 20, 1024))
    assert store.fetched_bytes <= 1.2 * sum(
        file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()
    )


def test_ordered_windows_have_no_blocks_and_grouped_windows_do(tmp_path: Path) -> None:
    store = FarStorageConnector(tmp_path, 1 << 16)
    groups = np.repeat(np.arange(60), 7_000)
    for name, array in {
        "x": np.arange(420_000),
        "group": groups,
        "time": -np.arange(420_000),
    }.items():
        with store.create(name) as file:
            write_npy(file, array)
    source = NumpyDatasetIterator(
        {name: store.get_resource(name) for name in ("x", "group", "time")}
    )

    grouped, ordered = (
        source.windows(4_000, group_by="group"),
        source.windows(4_000, stride=4_000, order_by="time"),
    )

    blocks: Any = access_to(grouped).blocks()
    assert blocks.sum() == len(grouped) == 60 * 3_001
    assert access_to(ordered).blocks() is None
    assert grouped[3_001]["x"][0] == 7_000
    assert ordered[0]["x"].tolist() == list(range(419_999, 415_999, -1))


# ---------------------------------------------------------------------- errors


def test_a_window_of_damaged_records_is_an_error_naming_blocks(tmp_path: Path) -> None:
    rows = np.arange(100_000, dtype="u4")
    records(tmp_path, rows)
    with open(tmp_path / "x.bag", "r+b") as file:
        file.seek((tmp_path / "x.bag").stat().st_size // 2)  # in window 500
        file.write(b"\xff\xff\xff\xff")

    windows = RecordReader(tmp_path).windows(100, stride=100)

    assert windows[0]["x"].tolist() == list(range(100))
    for position in (500, [0, 500]):
        with pytest.raises(
            DatasetFileCorruptError, match=r"x\.bag is damaged: the block of 65,536 bytes from byte"
        ):
            windows.read_batch(np.atleast_1d(position))


def test_a_closed_file_is_an_error_though_it_is_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", NUMBERS)
    resource = FileStorageConnector(tmp_path).get_resource("rows.npy")
    windows = NumpyDatasetIterator([resource]).windows(LENGTH)
    assert np.array_equal(windows[3][0], NUMBERS[3:13])

    resource.close()

    for read in (
        lambda: windows[3],
        lambda: windows.read_batch([5, 3]),
        lambda: windows.read_column(0, [1]),
    ):
        with pytest.raises(StorageError, match="closed too early"):
            read()


def test_truncating_an_open_file_does_not_end_the_process(
    tmp_path: Path,
) -> None:
    np.save(tmp_path / "rows.npy", np.zeros(1 << 20))
    with open(tmp_path / "rows.npy", "r+b") as file:
        windows = NumpyDatasetIterator([StreamedResource("rows.npy", file)]).windows(
            1024, stride=1024
        )
        assert windows[3][0].sum() == 0

        file.truncate(1 << 20)

        with pytest.raises(DatasetFileCorruptError, match="ends within the bytes"):
            windows.read_batch([3, 1000])


def test_windows_of_compressed_rows_keep_to_the_request_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = hdf5_in_chunks(tmp_path, np.zeros(20_000)).windows(1000, stride=1000)
    assert windows.read_batch(range(18))[0].shape == (18, 1000)  # type: ignore[index]  # of tuples

    monkeypatch.setenv(MAX_REQUEST_BYTES, "100000")

    assert windows[5][0].shape == (1000,)
    with pytest.raises(RequestLimitError, match="rows of dataset"):
        windows.read_batch(range(18))


def test_many_files_are_not_all_mapped(tmp_path: Path) -> None:
    """Each map keeps a descriptor beside that of the file."""
    np.save(tmp_path / "rows.npy", NUMBERS)
    n_files = 700  # of 1024 descriptors, which is usual
    for number in range(n_files):
        (tmp_path / f"{number}.npy").hardlink_to(tmp_path / "rows.npy")

    parts = [
        NumpyDatasetIterator([tmp_path / f"{number}.npy"]).windows(LENGTH, stride=LENGTH)
        for number in range(n_files)
    ]

    assert all(np.array_equal(part[1][0], NUMBERS[10:20]) for part in parts)
    assert all(
        np.array_equal(part.read_batch([2, 1])[0][1], NUMBERS[10:20])  # type: ignore[index]
        for part in itertools.islice(parts, 680, None)
    )
