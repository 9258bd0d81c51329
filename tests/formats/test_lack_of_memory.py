"""A lack of memory is a MemoryError, and never called damage of a file; a file that lies about its size is damaged."""

from __future__ import annotations

import base64
import io
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import short_memory

from data_stack.codecs import Mp4Codec
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import ParquetDataset


def test_a_lack_of_memory_is_not_called_damage(tmp_path: Path) -> None:
    command = [sys.executable, short_memory.__file__, str(tmp_path)]

    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr[-2000:]
    outcomes = json.loads(ran.stdout.splitlines()[-1])
    harmless = {"MemoryError", "read", short_memory.DIED}
    assert {name: found for name, found in outcomes.items() if set(found) - harmless} == {}
    assert [name for name, found in outcomes.items() if "MemoryError" not in found] == []


def test_a_video_that_states_more_than_ffmpeg_allocates_is_damaged() -> None:
    record = Mp4Codec().encode(np.zeros((3, 32, 32, 3), np.uint8))
    at = record.index(b"stts") + 8  # how many entries follow
    assert struct.unpack_from(">I", record, at) == (1,)
    forged = record[:at] + struct.pack(">I", 0x1000_0000) + record[at + 4 :]

    with pytest.raises(ValueError, match="states more than") as error:
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
