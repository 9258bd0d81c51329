"""A format is one class: ``convert`` and ``load`` find it by its suffix."""

from __future__ import annotations

import base64
import contextlib
import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from process_harness import run_python

import data_stack
from data_stack.codecs import Mp4Codec
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.conversion import convert
from data_stack.formats.format import (
    ALL_COLUMNS,
    Batch,
    ColumnChoice,
    Format,
    FormatOptions,
    WritableFormat,
    WriteBatch,
)
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.registry import (
    all_formats,
    detect_format,
    format_named,
    format_of_file,
    register_format,
    stem_of_file,
    unregister_format,
    writable_formats,
)
from data_stack.io.location import Location, location_of


class LinesFormat(WritableFormat):
    """A number per line."""

    name = "lines"
    suffixes: ClassVar[dict[str, str]] = {".lines": "text/plain"}

    def writes_folder(self, location: Location) -> bool:
        return False

    def open(
        self, location: Location, columns: ColumnChoice = ALL_COLUMNS, options: Any = None
    ) -> DatasetIteratorIF:
        with location.open() as resource:
            numbers = np.array([int(line) for line in resource.read().splitlines()])
        return data_stack.from_numpy({"n": numbers})

    @contextlib.contextmanager
    def writer(
        self, location: Location, source: ColumnSource, *, name: str, shardlen: int | None
    ) -> Iterator[WriteBatch]:
        with location.folder.create(location.name) as file:

            def write_batch(batch: Batch) -> None:
                file.write(b"".join(b"%d\n" % number for number in batch["n"].tolist()))

            yield write_batch


@pytest.fixture
def lines() -> Iterator[None]:
    register_format(LinesFormat)
    yield
    unregister_format("lines")


@pytest.mark.usefixtures("lines")
def test_a_registered_format_is_written_read_and_loaded(tmp_path: Path) -> None:
    convert(data_stack.from_numpy({"n": np.arange(5)}), tmp_path / "n.lines")
    convert(tmp_path / "n.lines", tmp_path / "n.npz")

    assert (tmp_path / "n.lines").read_bytes() == b"0\n1\n2\n3\n4\n"
    for name in ("n.lines", "n.npz"):
        loaded: Any = data_stack.load(str(tmp_path / name))
        assert [sample["n"] for sample in loaded] == [0, 1, 2, 3, 4]
    with pytest.raises(ConfigError, match="lines has no shards"):
        convert(tmp_path / "n.npz", tmp_path / "shards", target_format="lines", shardlen=2)


@pytest.mark.usefixtures("lines")
def test_a_registered_format_has_splits_and_targets(tmp_path: Path) -> None:
    (tmp_path / "train.lines").write_text("1\n2\n")
    (tmp_path / "test.lines").write_text("3\n")

    splits = data_stack.load(str(tmp_path))
    with_target: Any = data_stack.load(str(tmp_path), split="train", target="n")

    assert {name: len(split) for name, split in splits.items()} == {"train": 2, "test": 1}
    assert with_target.dataset_meta.target_pos == "n"


def test_every_format_has_one_class_in_one_module() -> None:
    modules = [type(format_).__module__ for format_ in all_formats().values()]

    assert len(set(modules)) == len(modules)
    assert {name: format_.name for name, format_ in all_formats().items()} == {
        name: name for name in all_formats()
    }


def test_no_two_formats_have_one_suffix() -> None:
    suffixes = [suffix for format_ in all_formats().values() for suffix in format_.suffixes]

    assert len(set(suffixes)) == len(suffixes)


@pytest.mark.parametrize(
    ("name", "format_name", "stem"),
    [
        ("a.b.csv", "csv", "a.b"),
        ("a.b.csv.gz", "csv", "a.b"),
        ("train.CSV.GZ", "csv", "train"),
        ("A.H5", "hdf5", "A"),
        ("a.npz.gz", None, "a.npz.gz"),
        ("a.b", None, "a.b"),
        ("README.md", None, "README.md"),
        ("train", None, "train"),
    ],
)
def test_the_name_of_a_file_tells_its_format(name: str, format_name: str | None, stem: str) -> None:
    format_ = format_of_file(name)

    assert (None if format_ is None else format_.name) == format_name
    assert stem_of_file(name) == stem


def test_a_fallback_yields_to_a_format_that_recognizes_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "both"
    convert(data_stack.from_numpy({"x": np.arange(3)}), folder)
    (folder / "picture.png").touch()

    assert format_named("images").recognize(location_of(folder).as_folder(), ["picture.png"])
    assert detect_format(location_of(folder)).name == "records"


@pytest.mark.parametrize(
    ("path", "format_name"),
    [
        ("lr=1/x.png", "images"),
        ("lr=1/deep/x.png", "images"),
        ("lr=1.png", "images"),
        ("lr=1.tar", "webdataset"),
        ("year=2024/x.parquet", "parquet"),
        ("year=2024/month=1/000000_0", "parquet"),
        ("version=1.5/deep/X.PARQUET", "parquet"),
        ("X.PARQUET", "parquet"),
    ],
)
def test_names_like_partitions_may_belong_to_any_format(
    tmp_path: Path, path: str, format_name: str
) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()

    assert detect_format(location_of(tmp_path)).name == format_name


def test_an_unknown_name_lists_the_formats_that_fit() -> None:
    with pytest.raises(ConfigError, match=r"unknown format 'hdf' \(did you mean 'hdf5'\?\)"):
        format_named("hdf")
    assert isinstance(format_named("bin"), Format)
    assert "bin" not in writable_formats()


# ---------------------------------------------------------------------- lazy imports


def test_importing_the_package_imports_no_library() -> None:
    code = "import sys, data_stack.formats; print({'torch', 'h5py', 'numpy'} & set(sys.modules))"

    assert run_python("-c", code)[0] == "set()\n"


def test_without_torch_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try:\n    from data_stack.formats import load_tensors\n"
        "except ImportError as error:\n    print(type(error).__name__, error)"
    )

    said = run_python("-c", code)[0]

    assert said.startswith("MissingDependencyError ")
    assert said.endswith('needs torch: pip install "lazy-data-stack[torch]"\n')


# ---------------------------------------------------------------------- files that lie


def test_a_video_that_states_more_than_ffmpeg_allocates_is_damaged() -> None:
    record = Mp4Codec().encode(np.zeros((3, 32, 32, 3), np.uint8))
    at = record.index(b"stts") + 8  # how many entries follow
    assert struct.unpack_from(">I", record, at) == (1,)
    forged = record[:at] + struct.pack(">I", 0x1000_0000) + record[at + 4 :]

    with pytest.raises(ValueError, match="mp4 video") as error:
        Mp4Codec().decode(forged)

    assert error.value.__cause__ is None


@pytest.mark.parametrize(
    "nested", [False, True] if int(pa.__version__.partition(".")[0]) >= 23 else [False]
)
@pytest.mark.parametrize("is_beside", [False, True])
def test_a_time_zone_that_is_no_text_is_damage(
    tmp_path: Path, nested: bool, is_beside: bool
) -> None:
    type_ = pa.timestamp("us", "UTC")
    schema = pa.schema(
        [("at", pa.struct([("all", pa.list_(pa.map_(pa.string(), type_)))]) if nested else type_)]
    )
    stream = io.BytesIO()
    pq.write_table(pa.table({"at": pa.array([None, None], schema.field("at").type)}), stream)
    told = pq.read_metadata(io.BytesIO(stream.getvalue())).metadata[b"ARROW:schema"]
    forged = stream.getvalue().replace(
        told, base64.b64encode(base64.b64decode(told).replace(b"UTC", b"U\x83C"))
    )
    (tmp_path / ("_common_metadata" if is_beside else "0.parquet")).write_bytes(forged)

    with pytest.raises(DatasetFileCorruptError, match="damaged"):
        ParquetDataset(tmp_path)


@dataclass(frozen=True)
class ScaledOptions(FormatOptions):
    factor: int = 1


class ScaledLinesFormat(LinesFormat):
    """A number per line, times an option."""

    options_class = ScaledOptions

    def open(
        self,
        location: Location,
        columns: ColumnChoice = ALL_COLUMNS,
        options: ScaledOptions | None = None,
    ) -> DatasetIteratorIF:
        options = options or ScaledOptions()
        return super().open(location).map(lambda sample: {"n": sample["n"] * options.factor})


def test_a_format_gets_its_options_as_one_value(tmp_path: Path) -> None:
    (tmp_path / "a.lines").write_text("1\n2\n")
    register_format(ScaledLinesFormat)
    try:
        loaded = data_stack.load(tmp_path / "a.lines", factor=10)
        by_default = data_stack.load(tmp_path / "a.lines")
        with pytest.raises(ConfigError, match=r"no option 'faktor'.*its options: .*factor"):
            data_stack.load(tmp_path / "a.lines", faktor=10)
    finally:
        unregister_format("lines")

    assert [sample["n"] for sample in loaded] == [10, 20]
    assert [sample["n"] for sample in by_default] == [1, 2]


@pytest.mark.parametrize("name", sorted(all_formats()))
def test_options_of_a_format_have_defaults(name: str) -> None:
    format_ = format_named(name)

    assert isinstance(format_.options_class(), FormatOptions)
    assert format_.list_options() == sorted(vars(format_.options_class()))
