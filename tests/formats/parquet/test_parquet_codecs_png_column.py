"""Columns of PNG files: many decoded at once give what each gives by itself, and refuse what it refuses."""

from __future__ import annotations

import gzip
import io
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from PIL import Image as PillowImage

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import Field, ParquetDataset, PngCodec, Schema
from data_stack.formats.parquet.codecs.cell_codec import CellValueError
from data_stack.formats.parquet.codecs.png_column import PngColumn
from data_stack.formats.parquet.columns import CellError
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


def column_of(files: Sequence[bytes], field: Field | None = None) -> PngColumn:
    field = field or field_of()
    column = field.codec.column(field, pa.array(files, pa.binary()), has_nulls=False)
    assert isinstance(column, PngColumn)
    return column


def every(column: PngColumn) -> npt.NDArray[np.int64]:
    return np.arange(len(column), dtype=np.int64)


def is_decoded_at_once(column: PngColumn) -> bool:
    return column.take_together([column], [every(column)]) is not None


# ---------------------------------------------------------------------- what they give


@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
def test_files_that_are_decoded_at_once_give_their_images(shape: tuple[int, ...], dtype: str) -> None:
    images = images_of(40, shape, dtype)
    column = column_of([png(image) for image in images], field_of(shape, dtype))
    rows = np.random.default_rng(0).integers(40, size=70)

    taken = column.take(rows)

    assert is_decoded_at_once(column)
    assert taken.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(taken, images[rows])
    assert taken.flags.writeable
    np.testing.assert_array_equal(column.value(3), images[3])


@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
def test_small_images_that_were_written_here_are_decoded_at_once(shape: tuple[int, ...], dtype: str) -> None:
    images, field = images_of(40, shape, dtype), field_of(shape, dtype)
    if shape == (28, 28):
        images = images[:, ::-1, ::-1]  # not in C order
    files = field.codec.encode_column(field, images).to_pylist()
    column = column_of(files, field)

    assert is_decoded_at_once(column)
    np.testing.assert_array_equal(column.take(every(column)), images)
    if dtype == "uint8" or len(shape) == 2:
        np.testing.assert_array_equal(np.array(PillowImage.open(io.BytesIO(files[7]))), images[7])


def test_an_image_of_too_many_channels_is_told() -> None:
    field = field_of((None, None, None))

    with pytest.raises(CellValueError, match="5"):
        field.codec.encode_column(field, [np.zeros((4, 5, 5), np.uint8)])


def test_files_of_opencv_are_decoded_at_once() -> None:
    cv2 = pytest.importorskip("cv2")
    for shape in ((28, 28), (30, 20, 3)):
        images = images_of(40, shape)
        as_opencv_has_them = images[..., ::-1] if len(shape) == 3 else images
        column = column_of([cv2.imencode(".png", image)[1].tobytes() for image in as_opencv_has_them], field_of(shape))

        assert is_decoded_at_once(column)
        np.testing.assert_array_equal(column.take(every(column)), images)


def test_more_files_than_are_decoded_in_one_go_come_in_their_order() -> None:
    images = images_of(300, (80, 100))
    column = column_of([png(image) for image in images], field_of((80, 100)))

    assert is_decoded_at_once(column)
    np.testing.assert_array_equal(column.take(every(column)[::-1]), images[::-1])


def test_a_few_files_and_large_ones_are_decoded_one_by_one() -> None:
    images, large = images_of(8), images_of(20, (300, 300))
    few, of_large = column_of([png(image) for image in images]), column_of([png(image) for image in large], field_of((300, 300)))

    assert not is_decoded_at_once(few)
    assert not is_decoded_at_once(of_large)
    np.testing.assert_array_equal(few.take(every(few)), images)
    np.testing.assert_array_equal(of_large.take(every(of_large)), large)


@pytest.mark.parametrize("is_left", [lambda number: number >= 20, lambda number: number < 20], ids=["the first", "the last"])
def test_files_that_are_stored_in_another_way_give_their_images_too(is_left: Callable[[int], bool]) -> None:
    images = images_of(40)
    column = column_of([png(image, left=is_left(number)) for number, image in enumerate(images)])

    assert not is_decoded_at_once(column)
    np.testing.assert_array_equal(column.take(every(column)), images)


def test_files_of_several_columns_are_decoded_at_once() -> None:
    images = images_of(40)
    first, second = column_of([png(image) for image in images[:30]]), column_of([png(image) for image in images[30:]])

    taken = first.take_together([first, second], [np.array([3, 3, *range(14)]), np.array([9, 0])])

    assert taken is not None
    np.testing.assert_array_equal(taken, images[[3, 3, *range(14), 39, 30]])


def test_a_column_of_another_kind_keeps_none_from_being_read() -> None:
    images = images_of(40)
    first = column_of([png(image) for image in images[:20]])
    second = column_of([png(image, left=False) for image in images[20:]])

    assert first.take_together([first, second], [every(first), every(second)]) is None
    np.testing.assert_array_equal(second.take(every(second)), images[20:])


def test_threads_that_share_a_column_get_its_images_though_some_are_of_another_kind() -> None:
    images = images_of(400)
    column = column_of([png(image, left=number % 50 > 0 or number == 0) for number, image in enumerate(images)])
    wrong = []

    def take(seed: int) -> None:
        for _ in range(20):
            rows = np.random.default_rng(seed).integers(400, size=30)
            if not np.array_equal(column.take(rows), images[rows]):
                wrong.append(seed)

    threads = [threading.Thread(target=take, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_opencv_is_not_imported_for_files_that_are_decoded_at_once(tmp_path: Path) -> None:
    images = images_of(40)
    np.save(tmp_path / "images.npy", images)
    (tmp_path / "files").write_bytes(b"".join(struct.pack(">I", len(each)) + each for each in map(png, images)))
    program = (
        "import sys, struct, numpy as np, pyarrow as pa\n"
        "from pathlib import Path\n"
        "from data_stack.formats.parquet import Field, PngCodec\n"
        "data, cells = Path('files').read_bytes(), []\n"
        "while data:\n"
        "    size = struct.unpack('>I', data[:4])[0]\n"
        "    cells, data = [*cells, data[4 : 4 + size]], data[4 + size :]\n"
        "field = Field('image', 'uint8', (28, 28), PngCodec())\n"
        "column = field.codec.column(field, pa.array(cells, pa.binary()), has_nulls=False)\n"
        "assert (column.take(np.arange(40)) == np.load('images.npy')).all()\n"
        "assert 'cv2' not in sys.modules\n"
    )

    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)


# ---------------------------------------------------------------------- what they refuse


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

    assert not is_decoded_at_once(column)
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


def test_a_file_of_gzip_is_refused_whatever_its_bytes_add_up_to() -> None:
    images = images_of(40)
    differences = np.full((28, 28), 83, np.uint8)
    differences.reshape(-1)[: 65520 - 28 - 83 * 784] += (
        1  # with the filters' bytes, they have the sum that a small gzip ends with
    )
    images[23] = np.cumsum(differences, axis=1, dtype=np.uint8)
    files = [png(image) for image in images]
    files[23] = of_gzip(files[23])

    assert not is_decoded_at_once(column_of(files))


def test_pixels_behind_the_end_of_the_last_file_are_no_image() -> None:
    images = images_of(40)
    files = [png(image) for image in images]
    files[39] = resealed(files[39], lambda stream: stream + stream)
    column = column_of(files)

    assert not is_decoded_at_once(column)


@pytest.mark.parametrize("place", [0, 5])
def test_a_file_that_unpacks_to_far_more_than_it_claims_is_not_decoded_with_others(place: int) -> None:
    images = images_of(40)
    files = [png(image) for image in images]
    files[place] = resealed(files[place], lambda stream: zlib.compress(bytes(1 << 26)))
    column = column_of(files)

    assert not is_decoded_at_once(column)
    np.testing.assert_array_equal(column.take(every(column)[10:]), images[10:])


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


def outcome(column: PngColumn, rows: list[int]) -> Image | None:
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
