"""A file that lies about its size, or about a time zone, is damaged."""

from __future__ import annotations

import base64
import io
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_stack.codecs import Mp4Codec
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import ParquetDataset


def test_a_video_that_states_more_than_ffmpeg_allocates_is_damaged() -> None:
    record = Mp4Codec().encode(np.zeros((3, 32, 32, 3), np.uint8))
    at = record.index(b"stts") + 8  # how many entries follow
    assert struct.unpack_from(">I", record, at) == (1,)
    forged = record[:at] + struct.pack(">I", 0x1000_0000) + record[at + 4 :]

    with pytest.raises(ValueError, match="mp4 video") as error:
        Mp4Codec().decode(forged)

    assert error.value.__cause__ is None


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("is_beside", [False, True])
def test_a_time_zone_that_is_no_text_is_damage(tmp_path: Path, nested: bool, is_beside: bool) -> None:
    type_ = pa.timestamp("us", "UTC")
    schema = pa.schema([("at", pa.struct([("all", pa.list_(pa.map_(pa.string(), type_)))]) if nested else type_)])
    stream = io.BytesIO()
    pq.write_table(pa.table({"at": pa.array([None, None], schema.field("at").type)}), stream)
    told = pq.read_metadata(io.BytesIO(stream.getvalue())).metadata[b"ARROW:schema"]
    forged = stream.getvalue().replace(told, base64.b64encode(base64.b64decode(told).replace(b"UTC", b"U\x83C")))
    (tmp_path / ("_common_metadata" if is_beside else "0.parquet")).write_bytes(forged)

    with pytest.raises(DatasetFileCorruptError, match="damaged"):
        ParquetDataset(tmp_path)
