"""What a map behind a decoder has in memory: a few decoded values, whatever the size of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from far_store import FarStorageConnector

from data_stack.codecs.codec import Codec
from data_stack.dataset.iterator import CombinedDatasetIterator, DatasetIteratorIF
from data_stack.exception import LoadingError
from data_stack.formats.image_folder import ImageFolderIterator
from data_stack.formats.records import ColumnType, RecordReader, RecordWriter
from data_stack.io.folder import folder_of
from data_stack.loader import Loader
from data_stack.testing.comparing import assert_same
from data_stack.util.executor import n_threads_here, set_thread_share
from data_stack.values.stacking import stack_samples

N = 50
ORDER = np.random.default_rng(0).permutation(N)
PICTURE_BYTES = 1 << 20


class Counting(Codec):
    """Pictures of 1 MiB and one value, each stored as one byte; counts those that :meth:`use` has
    not taken.
    """

    name, extensions = "counting", ("png",)
    releases_gil = is_compressed = True

    def __init__(self) -> None:
        self.n_waiting = self.most_waiting = 0

    def encode(self, value: Any) -> bytes:
        return bytes([int(value[0, 0])])

    def decode(self, record: bytes) -> Any:
        self.n_waiting += 1
        self.most_waiting = max(self.most_waiting, self.n_waiting)
        return np.full((1024, 1024), record[0], np.uint8)

    def use(self, picture: Any) -> Any:
        self.n_waiting -= 1
        return picture[:2, :3].copy()

    def use_all(self, sample: Any) -> Any:
        return {**sample, "image": self.use(sample["image"])}

    def use_drawing(self, picture: Any, rng: np.random.Generator) -> Any:
        return self.use(picture) + rng.integers(0, 50, (2, 3), np.uint8)


def write_records(target: Any) -> None:
    columns = {
        "image": ColumnType("counting", "uint8", (1024, 1024)),
        "label": ColumnType("array", "int16", ()),
    }
    with RecordWriter(target, columns, codecs={"counting": Counting()}) as writer:
        writer.extend(
            {
                "image": [np.full((1024, 1024), n, np.uint8) for n in range(N)],
                "label": np.arange(N, dtype=np.int16),
            }
        )


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records") / "pictures"
    write_records(folder)
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    for number in range(N):
        folder = root / f"{number % 2}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number:03}.png").write_bytes(bytes([number]))
    return root


MAPS: list[Callable[[Any, Counting], DatasetIteratorIF]] = [
    lambda source, codec: source.map(codec.use, column="image"),
    lambda source, codec: source.map(codec.use_drawing, column="image", seed=3),
    lambda source, codec: source.map(codec.use_all),
    lambda source, codec: CombinedDatasetIterator([source[:20], source[20:]]).map(
        codec.use, column="image"
    ),
    lambda source, codec: source.map(codec.use, column="image").map(np.transpose, column="image"),
    lambda source, codec: source.zip(source.select("label").rename({"label": "again"})).map(
        codec.use, column="image"
    ),
]


@pytest.fixture(params=[1, 1024])
def share(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many threads share the processors with this one: with many, it decodes alone, as a
    loader's workers do.
    """
    set_thread_share(request.param)
    yield request.param
    set_thread_share(1)


def one_by_one(iterator: DatasetIteratorIF) -> Any:
    return [iterator[int(position)] for position in ORDER]


@pytest.mark.parametrize("make", MAPS)
@pytest.mark.parametrize("source", ["records", "images"])
def test_a_map_has_few_decoded_pictures_in_memory(
    source: str, make: Any, share: int, request: Any
) -> None:
    folder, codec = request.getfixturevalue(source), Counting()
    if source == "records":
        mapped = make(
            RecordReader(folder, columns=["label", "image"], codecs={"counting": codec}), codec
        )
    else:
        mapped = make(ImageFolderIterator(folder, codecs={"png": codec}), codec)
    samples = one_by_one(mapped)
    codec.n_waiting = codec.most_waiting = 0

    assert_same(mapped.read_batch(ORDER), stack_samples(samples))

    several = 8 if source == "images" else (4 << 20) // PICTURE_BYTES * n_threads_here()
    is_one = (
        make not in (MAPS[2], MAPS[5]) and share > 1 and source == "records"
    )  # whole samples are read a few at a time
    assert (codec.n_waiting, codec.most_waiting) <= (0, 1 if is_one else several)


def test_tuples_and_columns_are_mapped_a_few_at_a_time(records: Path, share: int) -> None:
    codec = Counting()
    with RecordReader(records, columns=["label", "image"], codecs={"counting": codec}) as reader:
        mapped = reader.as_tuple("label", "image").map(codec.use, column=-1).as_tuple(0, 1)
        samples = one_by_one(mapped)
        codec.n_waiting = codec.most_waiting = 0

        assert_same(mapped.read_batch(ORDER), stack_samples(samples))
        column = mapped.read_column(-1)
        assert mapped.read_column(1, ORDER[:0]).shape == (0, 2, 3)

        np.testing.assert_array_equal(column[:, 0, 0], np.arange(N))
        assert codec.most_waiting <= (4 << 20) // PICTURE_BYTES * n_threads_here() + 2


def test_mapped_values_of_different_shapes_stay_apart(records: Path, share: int) -> None:
    codec = Counting()
    with RecordReader(records, codecs={"counting": codec}) as reader:
        batch: Any = reader.map(
            lambda picture: picture[0, : picture[0, 0] // 40], column="image"
        ).read_batch(ORDER)
        mixed: Any = reader.map(
            lambda picture: picture[0, :2] * (1.5 if picture[0, 0] == ORDER[-9] else 2),
            column="image",
        )
        numbers: Any = reader.map(
            lambda picture: None if picture[0, 0] == ORDER[-9] else picture[0, :2], column="image"
        )
        named: Any = reader.map(
            lambda picture: f"picture {picture[0, 0]}", column="image"
        ).read_batch(ORDER)
        assert_same(mixed.read_batch(ORDER), stack_samples(one_by_one(mixed)))
        assert mixed.read_batch(ORDER)["image"].dtype == np.float64
        assert [value is None for value in numbers.read_batch(ORDER)["image"]] == (
            ORDER[-9] == ORDER
        ).tolist()

    assert batch["label"].dtype == np.int16
    assert [len(value) for value in batch["image"]] == [number // 40 for number in ORDER]
    assert named["image"].tolist() == [f"picture {number}" for number in ORDER]
    np.testing.assert_array_equal(named["label"], ORDER)


def test_iterating_decodes_a_few_sequences_at_once(tmp_path: Path) -> None:
    codec, column = Counting(), ColumnType("counting[]", "uint8", (1024, 1024))
    with RecordWriter(tmp_path / "x", {"images": column}, codecs={"counting": codec}) as writer:
        writer.extend({"images": [[np.zeros((1024, 1024), np.uint8)] * 2] * 6})

    with RecordReader(tmp_path / "x", codecs={"counting": codec}) as reader:
        next(iter(reader))

    assert codec.most_waiting == (4 << 20) // PICTURE_BYTES


def test_a_loader_names_the_sample_that_a_map_refuses(images: Path) -> None:
    def refuse(picture: Any) -> Any:
        if picture[0, 0] == 13:
            raise KeyError("no thirteen")
        return picture[:2, :2].copy()

    mapped = ImageFolderIterator(images, codecs={"png": Counting()}).map(refuse, column="image")

    with (
        pytest.raises(LoadingError, match=r"013\.png") as caught,
        Loader(mapped, N, worker_kind="threads", workers=2) as loader,
    ):
        list(loader)

    assert isinstance(caught.value.__cause__, KeyError)


def test_mapping_remote_records_needs_no_more_requests_than_reading(
    tmp_path: Path, share: int
) -> None:
    store, codec = FarStorageConnector(tmp_path, block_bytes=4096), Counting()
    write_records(folder_of(store, "pictures"))
    requests = []

    with RecordReader(store, prefix="pictures", codecs={"counting": codec}) as reader:
        for read in (reader.read_batch, reader.map(codec.use, column="image").read_batch):
            read(ORDER)
            store.requests.clear()
            codec.n_waiting = codec.most_waiting = 0
            batch: Any = read(ORDER)
            requests.append(len(store.requests))

    np.testing.assert_array_equal(batch["image"][:, 0, 0], ORDER)
    assert (requests[0], codec.most_waiting) == (requests[1], N if share == 1 else 1)
