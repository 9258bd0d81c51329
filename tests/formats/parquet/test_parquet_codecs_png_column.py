"""Columns of PNG files of any writer: batches give what each file gives by itself, and refuse what it refuses."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import Field, ParquetDataset, PngCodec, Schema
from data_stack.formats.parquet.columns import CellError, GroupColumn
from data_stack.formats.parquet.writer import ParquetWriter
from data_stack.loader import BlockShuffled, Loader

Image = npt.NDArray[Any]
SHAPES: list[tuple[tuple[int, ...], str]] = [
    *(((28, 28), "uint8"), ((1, 1), "uint8"), ((5, 7, 3), "uint8"), ((32, 32, 3), "uint8"), ((6, 5, 4), "uint8")),
    *(((9, 8), "uint16"), ((4, 5, 3), "uint16"), ((4, 5, 4), "uint16")),
]


def images_of(n: int, shape: tuple[int, ...] = (28, 28), dtype: str = "uint8") -> Image:
    return np.random.default_rng(n).integers(np.iinfo(dtype).max, size=(n, *shape), dtype=dtype, endpoint=True)


def png(image: Image, left: bool = True, stream: Callable[[bytes], bytes] = zlib.compress, height: int | None = None) -> bytes:
    """A PNG file whose rows are the differences from the pixel to the left, as OpenCV writes it, or else the pixels themselves.

    Args:
        image: uint8 or uint16.
        left: which of both.
        stream: compresses the rows.
        height: what the file claims; None for the truth.
    """
    rows = image.astype(image.dtype.newbyteorder(">")).reshape(len(image), -1).view(np.uint8)
    n_apart = rows.shape[1] // image.shape[1]
    stored = rows.copy()
    if left:
        stored[:, n_apart:] -= rows[:, :-n_apart]
    filtered = np.hstack([np.full((len(rows), 1), int(left), np.uint8), stored])
    colours = {1: 0, 3: 2, 4: 6}[image.shape[2] if image.ndim == 3 else 1]
    head = struct.pack(">IIBBBBB", image.shape[1], height or len(image), 8 * image.itemsize, colours, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", stream(filtered.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def field_of(shape: tuple[int | None, ...] = (28, 28), dtype: str = "uint8") -> Field:
    return Field("image", dtype, shape, PngCodec())


def column_of(files: Sequence[bytes], field: Field | None = None) -> GroupColumn:
    field = field or field_of()
    return field.cells.column(field, pa.array(files, pa.binary()), has_nulls=False)


def every(column: GroupColumn) -> npt.NDArray[np.int64]:
    return np.arange(len(column), dtype=np.int64)


@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
@pytest.mark.parametrize("left", [True, False])
def test_files_of_other_writers_give_their_images(shape: tuple[int, ...], dtype: str, left: bool) -> None:
    images = images_of(40, shape, dtype)

    column = column_of([png(image, left) for image in images], field_of(shape, dtype))

    np.testing.assert_array_equal(column.take(every(column)[::-1]), images[::-1])


@pytest.mark.parametrize(("shape", "dtype"), [*SHAPES, ((5, 7, 1), "uint8")])
def test_images_that_are_written_here_come_back(shape: tuple[int, ...], dtype: str) -> None:
    images, field = images_of(20, shape, dtype), field_of(shape, dtype)

    column = field.cells.column(field, field.cells.encode_column(field, images), has_nulls=False)

    np.testing.assert_array_equal(column.take(every(column)), images)
    np.testing.assert_array_equal(column.value(3), images[3])


def with_another_checksum(file: bytes) -> bytes:
    return file[:-13] + bytes([file[-13] ^ 1]) + file[-12:]


def with_another_head(file: bytes) -> bytes:
    return file[:32] + bytes([file[32] ^ 1]) + file[33:]


def with_other_pixels(file: bytes) -> bytes:
    """One byte of the compressed pixels is another one, and the checksum of the chunk is right."""
    return resealed(file, lambda stream: stream[:30] + bytes([stream[30] ^ 16]) + stream[31:])


def cut_short(file: bytes) -> bytes:
    return resealed(file, lambda stream: stream[:-9])


def of_another_sum(file: bytes) -> bytes:
    return resealed(file, lambda stream: stream[:-4] + bytes([stream[-4] ^ 1]) + stream[-3:])


def resealed(file: bytes, change: Callable[[bytes], bytes]) -> bytes:
    stream = change(file[41:-16])
    chunk = b"IDAT" + stream
    return file[:33] + struct.pack(">I", len(stream)) + chunk + struct.pack(">I", zlib.crc32(chunk)) + file[-12:]


def of_gzip(file: bytes) -> bytes:
    return resealed(file, lambda stream: gzip.compress(zlib.decompress(stream)))


@pytest.mark.parametrize(
    "damaged", [with_another_checksum, with_another_head, with_other_pixels, cut_short, of_another_sum, of_gzip]
)
def test_a_damaged_file_among_others_is_told_with_its_row(damaged: Callable[[bytes], bytes]) -> None:
    images = images_of(40)
    files = [png(image) for image in images]
    files[23] = damaged(files[23])
    column = column_of(files)

    with pytest.raises(CellError) as caught:
        column.take(every(column))

    assert caught.value.row == 23
    others = np.delete(every(column), 23)
    np.testing.assert_array_equal(column.take(others), images[others])


def test_a_row_that_one_file_has_too_many_is_not_given_to_the_next_that_lacks_one() -> None:
    images = images_of(40)
    files = [png(image) for image in images]
    files[10] = png(np.vstack([images[10], images[10][:1]]), height=28)
    files[11] = png(images[11][:-1], height=28)
    column = column_of(files)

    with pytest.raises(CellError) as caught:
        column.take(every(column))

    assert caught.value.row == 11  # a decoder leaves what is too much; what is missing is an error


def test_what_is_damaged_at_random_is_decoded_or_refused_as_it_is_by_itself() -> None:
    rng = np.random.default_rng(0)
    files = [png(image) for image in images_of(20, (9, 7))]

    def damaged(stream: bytes) -> bytes:
        place, n_new = int(rng.integers(len(stream))), int(rng.integers(4))
        return stream[:place] + rng.bytes(n_new) + stream[place + int(rng.integers(4)) :]

    for _ in range(300):
        some = list(files)
        for place in rng.integers(20, size=2).tolist():
            some[place] = resealed(some[place], damaged)
        column = column_of(some, field_of((9, 7)))
        alone = [outcome(column, [row]) for row in range(20)]
        wrong = next((row for row, found in enumerate(alone) if found is None), None)

        together = outcome(column, list(range(20)))

        if wrong is None:
            np.testing.assert_array_equal(together, np.concatenate([found for found in alone if found is not None]))
        else:
            assert together is None
            with pytest.raises(CellError) as caught:
                column.take(every(column))
            assert caught.value.row == wrong


def outcome(column: GroupColumn, rows: list[int]) -> Image | None:
    """The images of rows; None if one is refused."""
    try:
        return column.take(np.array(rows))
    except CellError:
        return None


# ---------------------------------------------------------------------- in datasets and loaders


def written(folder: Path, files: Sequence[bytes], rows_per_group: int = 30) -> ParquetDataset:
    """Files as they are, in several row groups."""
    import pyarrow.parquet as pq

    schema = Schema("images", [Field("id", "int64", (), None), field_of()])
    with ParquetWriter(folder, schema) as writer:
        writer.append({"id": 0, "image": np.zeros((28, 28), np.uint8)})
    (file,) = folder.glob("*.parquet")
    stored = pq.read_table(file).schema
    table = pa.table([pa.array(range(len(files)), pa.int64()), pa.array(files, stored.field("image").type)], schema=stored)
    pq.write_table(table, file, row_group_size=rows_per_group)
    return ParquetDataset([file])


def test_batches_out_of_several_row_groups_are_those_of_single_rows(tmp_path: Path) -> None:
    images = images_of(100)
    dataset = written(tmp_path, [png(image) for image in images])
    rows = np.random.default_rng(0).permutation(100)

    batch = dataset.read_batch(rows)

    np.testing.assert_array_equal(batch["id"], rows)
    np.testing.assert_array_equal(batch["image"], images[rows])
    np.testing.assert_array_equal(dataset[17]["image"], images[17])


def test_a_damaged_file_in_one_of_several_row_groups_is_told_with_its_place(tmp_path: Path) -> None:
    files = [png(image) for image in images_of(100)]
    files[64] = with_other_pixels(files[64])
    dataset = written(tmp_path, files)

    with pytest.raises(DatasetFileCorruptError, match=r"row group 2 .*row 4, field 'image'"):
        dataset.read_batch(np.arange(100))


@pytest.mark.parametrize("kind", ["inline", "threads", "auto"])
@pytest.mark.parametrize("batch_size", [7, 64])
def test_a_loader_gives_the_same_images_whoever_decodes_them(tmp_path: Path, kind: Any, batch_size: int) -> None:
    images = images_of(300)
    dataset = written(tmp_path, [png(image, left=number < 150) for number, image in enumerate(images)])

    with Loader(dataset, batch_size, shuffle=BlockShuffled(window=3), seed=1, epochs=2, worker_kind=kind) as loader:
        batches = list(loader)

    ids = np.concatenate([batch["id"] for batch in batches])
    np.testing.assert_array_equal(np.sort(ids), np.repeat(np.arange(300), 2))
    np.testing.assert_array_equal(np.concatenate([batch["image"] for batch in batches]), images[ids])


@pytest.mark.parametrize("n_alike", [0, 60])
def test_batches_of_images_of_different_shapes_are_those_that_are_read_by_themselves(tmp_path: Path, n_alike: int) -> None:
    schema = Schema("images", [Field("image", "uint8", (None, None), PngCodec())])
    with ParquetWriter(tmp_path, schema) as writer:
        for number in range(120):
            height = 5 if number < n_alike else 3 + number % 11 // 6  # several in a row are equally high
            writer.append({"image": np.full((height, 4), number, np.uint8)})
    dataset = ParquetDataset(tmp_path)

    batches = list(Loader(dataset, 3, worker_kind="inline"))

    assert len({batch["image"].dtype for batch in batches}) == 2
    for number, batch in enumerate(batches):
        expected = dataset.read_batch(np.arange(3 * number, 3 * number + 3))["image"]
        assert (batch["image"].dtype, batch["image"].shape) == (expected.dtype, expected.shape)
        for image, other in zip(batch["image"], expected, strict=True):
            np.testing.assert_array_equal(image, other)
