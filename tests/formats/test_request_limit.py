"""One limit for what a request may decode, in every format; it is looked at before the memory is
taken.
"""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from idx_files import write_idx
from writing import append_all, bytes_of

import data_stack
from data_stack import formats
from data_stack.codecs import codec_of
from data_stack.exception import DatasetFileCorruptError, RequestLimitError
from data_stack.formats.parquet import Field, ParquetDataset, ParquetWriter, PngCodec, Schema
from data_stack.formats.records import ColumnType, RecordReader, RecordWriter
from data_stack.io.archives import open_decompressed
from data_stack.io.resources import StreamedResource

NAMED = "DATA_STACK_MAX_REQUEST_BYTES"


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAMED, "1000000")


def picture(size: int) -> np.ndarray[Any, Any]:
    return np.zeros((size, size, 3), np.uint8)


class TestRecords:
    def test_a_batch_of_images_that_are_small_by_themselves(self, tmp_path: Path) -> None:
        kinds = {"image": ColumnType("png", "uint8", (None, None, 3))}
        append_all(RecordWriter(tmp_path / "r", kinds), [{"image": picture(400)}] * 5)

        with RecordReader(tmp_path / "r") as reader:
            with pytest.raises(RequestLimitError, match=rf"image.*{NAMED}"):
                reader.read_batch([0, 1, 2, 3])
            with pytest.raises(RequestLimitError):
                reader.__getitems__([0, 1, 2, 3])
            assert reader.read_batch([0, 1])["image"].shape == (2, 400, 400, 3)
            assert sum(1 for _ in reader) == 5

    def test_compressed_records_one_in_another_and_in_a_batch(self, tmp_path: Path) -> None:
        kinds = {"x": "zstd(bytes)", "y": "zstd(zstd(bytes))", "n": "zstd(array)"}
        row = {"x": bytes(400_001), "y": bytes(600_000), "n": np.zeros(37_500)}
        append_all(RecordWriter(tmp_path / "r", kinds), [row] * 4)

        with RecordReader(tmp_path / "r") as reader:
            assert len(reader.read_column("x", [0, 1])) == 2
            with pytest.raises(RequestLimitError, match="'x'"):
                reader.read_column("x", [0, 1, 2])
            assert len(reader.read_column("y", [0])) == 1
            with pytest.raises(RequestLimitError, match="'y'"):
                reader.read_column("y", [0, 1])
            assert reader.read_column("n", [0, 1]).shape == (2, 37_500)
            with pytest.raises(RequestLimitError, match="'n'"):
                reader.read_column("n", [0, 1, 2, 3])
        with RecordReader(tmp_path / "r", columns=["x", "y"]) as reader:
            for way in (
                lambda: reader.read_batch([0]),
                lambda: reader[0],
                lambda: reader.read(0, ["x", "y"]),
                lambda: list(reader),
            ):
                with pytest.raises(RequestLimitError):  # each column would fit alone
                    way()

    @pytest.mark.parametrize("kind", ["png", "jpg", "webp"])
    def test_the_size_of_an_image_is_known_without_decoding_it(self, kind: str) -> None:
        codec = codec_of(kind)
        record = codec.encode(picture(1100))

        with pytest.raises(RequestLimitError, match="an image of 1100 x 1100 pixels"):
            codec.decode(record)


class TestParquet:
    @pytest.mark.parametrize("size", [400, None])
    def test_images_of_a_batch(self, size: int | None, tmp_path: Path) -> None:
        schema = Schema("of images", [Field("image", np.uint8, (size, size, 3), PngCodec())])
        append_all(ParquetWriter(tmp_path / "p", schema), [{"image": picture(400)}] * 4)

        dataset = ParquetDataset(tmp_path / "p")

        with pytest.raises(RequestLimitError, match=rf"row group 0 of .* field 'image'.*{NAMED}"):
            dataset.read_batch([0, 1, 2])
        assert dataset.read_batch([0, 1])["image"].shape == (2, 400, 400, 3)
        assert sum(1 for _ in dataset) == 4

    def test_a_long_text_shared_by_many_rows_counts_for_each(self, tmp_path: Path) -> None:
        file = tmp_path / "a.parquet"
        pq.write_table(
            pa.table({"x": ["a" * 100_000] * 20, "y": ["b" * 10_000, *["c"] * 19]}), file
        )
        dataset = ParquetDataset(file)

        with pytest.raises(
            RequestLimitError, match=r"row group 0 of .*, column 'x': 2,000,000 bytes"
        ):
            dataset.read_batch([0])
        assert dataset.read_column("y", [1, 0]).tolist() == ["c", "b" * 10_000]

    @pytest.mark.parametrize(
        ("type_", "path"),
        [
            (pa.list_(pa.string()), "x.list.element"),
            (pa.list_(pa.list_(pa.string())), "x.list.element.list.element"),
            (pa.struct({"a": pa.int64(), "b": pa.string()}), "x.b"),
            (pa.list_(pa.struct({"b": pa.binary()})), "x.list.element.b"),
            (pa.map_(pa.string(), pa.string()), "x.key_value.value"),
        ],
        ids=str,
    )
    def test_a_long_text_in_nested_values_of_many_rows(
        self, tmp_path: Path, type_: pa.DataType, path: str
    ) -> None:
        text = "a" * 100_000
        values = {
            "x.list.element": [text, None],
            "x.list.element.list.element": [[text], []],
            "x.b": {"a": 1, "b": text},
            "x.list.element.b": [{"b": text.encode()}],
            "x.key_value.value": [("key", text)],
        }
        file = tmp_path / "a.parquet"
        column = pa.array([*[values[path]] * 20, None], type_)
        pq.write_table(pa.table({"x": column, "n": range(21)}), file)
        dataset = ParquetDataset(file)

        with pytest.raises(RequestLimitError, match=f"column '{path}': 2,000,000 bytes"):
            dataset.read_batch([0])
        assert dataset.read_column("n", [1, 0]).tolist() == [1, 0]

    def test_a_page_that_claims_more_than_the_footer_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(NAMED)
        file = tmp_path / "a.parquet"
        pq.write_table(
            pa.table({"x": np.arange(1000)}), file, compression="zstd", use_dictionary=False
        )
        data = file.read_bytes()
        assert (
            data[:7] == b"PAR1\x15\x00\x15"
        )  # the type of a page and its size, each before it is compressed a varint
        end = next(at for at in range(7, 12) if data[at] < 0x80) + 1
        two_gib = b"\xfe\xff\xff\xff\x0f"  # less a byte, in zigzag
        file.write_bytes(data[:7] + two_gib + data[end:])

        with pytest.raises(
            DatasetFileCorruptError, match=r"claims 2,147,483,647 .*, the footer 8,\d\d\d"
        ):
            ParquetDataset(file).read_batch([0])


class TestOthers:
    def test_hdf5(self) -> None:
        file = io.BytesIO()
        with h5py.File(file, "w") as root:
            root.create_dataset(
                "x", data=np.zeros((200, 1000)), chunks=(1, 1000), compression="gzip"
            )
            for name in "abc":
                root.create_dataset(
                    name, data=np.zeros((2, 50_000)), chunks=(1, 50_000), compression="gzip"
                )
        iterator = formats.HDF5DatasetIterator(StreamedResource("x.h5", file), ["x"])

        assert iterator.read_column(0, range(100)).shape == (100, 1000)
        with pytest.raises(RequestLimitError, match=r"x\.h5"):
            iterator.read_batch(range(200))
        assert len(formats.HDF5DatasetIterator(StreamedResource("x.h5", file), ["a", "b"])[0]) == 2
        with pytest.raises(RequestLimitError, match="a sample with dataset '/c'"):
            formats.HDF5DatasetIterator(StreamedResource("x.h5", file), ["a", "b", "c"])[0]

    def test_numpy_and_idx_out_of_compressed_streams(self) -> None:
        npy, idx = (bytes_of(write, np.zeros(200_000)) for write in (formats.write_npy, write_idx))
        npz = bytes_of(np.savez_compressed, x=np.zeros(200_000))

        with pytest.raises(RequestLimitError):
            formats.read_npy(open_decompressed(io.BytesIO(gzip.compress(npy))))
        with pytest.raises(RequestLimitError):
            formats.read_idx(open_decompressed(io.BytesIO(gzip.compress(idx))))
        with pytest.raises(RequestLimitError, match=r"x\.npy"):
            formats.read_npz(io.BytesIO(npz))
        assert formats.read_npy(io.BytesIO(npy)).shape == (200_000,)
        assert (
            len(
                formats.NumpyDatasetIterator(
                    [StreamedResource("x.npy", io.BytesIO(npy))]
                ).read_column(0)
            )
            == 200_000
        )

    @pytest.mark.parametrize("kind", ["images", "shards"])
    def test_files_of_images(self, tmp_path: Path, kind: str) -> None:
        if kind == "images":
            formats.write_image_folder(tmp_path / "w", [{"image": picture(400), "label": 0}] * 4)
        else:
            append_all(formats.WebDatasetWriter(tmp_path / "w"), [{"png": picture(400)}] * 4)
        iterator: Any = data_stack.load(str(tmp_path / "w"))

        assert len(iterator.__getitems__([0, 1])) == 2
        with pytest.raises(RequestLimitError, match="png"):
            iterator.__getitems__(range(4))
        assert sum(1 for _ in iterator) == 4
