"""A format is one class: ``convert`` and ``load`` find it by its suffix."""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from process_harness import run_python

import data_stack
from data_stack.codecs import Mp4Codec
from data_stack.codecs.codec import Column
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.conversion import convert
from data_stack.formats.conversion.format import (
    FORMATS,
    Batches,
    ConvertibleFormat,
    Source,
    register_format,
)
from data_stack.formats.parquet import ParquetDataset
from data_stack.io.location import Location


class LinesFormat(ConvertibleFormat):
    """A number per line."""

    name = "lines"
    suffixes: ClassVar[dict[str, str]] = {".lines": "text/plain"}

    def is_folder(self, location: Location) -> bool:
        return False

    def open(self, location: Location) -> Source:
        with location.open() as resource:
            numbers = np.array([int(line) for line in resource.read().splitlines()])
        values = data_stack.from_numpy({"n": numbers})
        return Source(location.full_name, values, {"n": Column("i64", np.int64, ())}, {"n": "n"})

    def write(
        self, source: Source, place: Location, name: str, shardlen: int | None, batches: Batches
    ) -> None:
        with place.folder.create(place.name) as file:
            for columns in batches:
                file.write(b"".join(b"%d\n" % number for number in columns["n"].tolist()))


@pytest.fixture(autouse=True)
def lines() -> Iterator[None]:
    register_format(LinesFormat)
    yield
    del FORMATS["lines"]


def test_a_registered_format_is_written_read_and_loaded(tmp_path: Path) -> None:
    convert(data_stack.from_numpy({"n": np.arange(5)}), tmp_path / "n.lines")
    convert(tmp_path / "n.lines", tmp_path / "n.npz")

    assert (tmp_path / "n.lines").read_bytes() == b"0\n1\n2\n3\n4\n"
    for name in ("n.lines", "n.npz"):
        loaded: Any = data_stack.load(str(tmp_path / name))
        assert [sample["n"] for sample in loaded] == [0, 1, 2, 3, 4]
    with pytest.raises(ConfigError, match="lines has no shards"):
        convert(tmp_path / "n.npz", tmp_path / "shards", target_format="lines", shardlen=2)


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
