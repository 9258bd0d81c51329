"""Damages Parquet datasets: their pages, their footers, and the schemas that lie beside them."""

from __future__ import annotations

import datetime
import io
import pickle
import random
import shutil
import tempfile
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_mutations import mutated_bytes
from fuzz_readings import Attempt, read_every_way

from data_stack.formats.parquet import Field, ParquetDataset, ParquetWriter, Schema
from data_stack.formats.parquet.codecs import CompressedNdarrayCodec, JpegCodec, NdarrayCodec, PngCodec
from data_stack.formats.parquet.dataset_names import PARQUET_MANIFEST
from data_stack.formats.parquet.selecting import col

Files = Mapping[str, bytes]
_N_ROWS = 6
#: Of a dataset that was damaged so that it states more rows, no more are read.
_MAX_ROWS = 40


def _table(start: int, stop: int) -> pa.Table:
    rows = range(start, stop)
    days = [datetime.date(2024, 1, 1 + i) for i in rows]
    return pa.table(
        {
            "id": pa.array(rows, pa.int64()),
            "x": pa.array([None if i % 3 == 1 else i / 2 for i in rows], pa.float32()),
            "text": pa.array(["class " + "abc"[i % 3] for i in rows]),
            "raw": pa.array([bytes([i]) * i for i in rows], pa.binary()),
            "price": pa.array([Decimal(i) / 100 for i in rows], pa.decimal128(10, 2)),
            "day": pa.array(days, pa.date32()),
            "at": pa.array([1_700_000_000_000_000 + i for i in rows], pa.timestamp("us", "UTC")),
            "vec": pa.array([[i, i + 1] for i in rows], pa.list_(pa.int16())),
            "ragged": pa.array([None if i == 2 else [float(i)] * i for i in rows], pa.list_(pa.float64())),
            "struct": pa.array([{"a": i, "b": "x" * i} for i in rows], pa.struct([("a", pa.int32()), ("b", pa.string())])),
        }
    )


def _plain(**options: Any) -> Files:
    files = {}
    for part in range(2):
        sink = io.BytesIO()
        pq.write_table(_table(part * 3, part * 3 + 3), sink, row_group_size=2, **options)
        files[f"part-{part}.parquet"] = sink.getvalue()
    return files


_SCHEMA = Schema(
    "fuzzed",
    [
        Field("id", "int64"),
        Field("png", "uint8", (4, 3, 3), PngCodec()),
        Field("jpeg", "uint8", (8, 8, 3), JpegCodec(quality=90), nullable=True),
        Field("frame", "float32", (2, 3), NdarrayCodec()),
        Field("any", "int16", (None, 2), NdarrayCodec(), nullable=True),
        Field("packed", "float64", (3,), CompressedNdarrayCodec()),
        Field("word", str),
    ],
)


def _sample(i: int) -> dict[str, Any]:
    return {
        "id": i,
        "png": np.full((4, 3, 3), i, np.uint8),
        "jpeg": None if i == 3 else np.full((8, 8, 3), i, np.uint8),
        "frame": np.full((2, 3), i, np.float32),
        "any": None if i == 1 else np.full((i, 2), i, np.int16),
        "packed": np.full(3, i, np.float64),
        "word": "w" * i,
    }


def _ours(**options: Any) -> Files:
    with tempfile.TemporaryDirectory() as folder:
        with ParquetWriter(folder, _SCHEMA, row_group_rows=2, rows_per_file=3, **options) as writer:
            for i in range(_N_ROWS):
                writer.append(_sample(i))
        return _content(Path(folder))


def _content(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _write(folder: Path, files: Files) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


class Parquets:
    """Datasets of several tools, damaged and read in every way.

    Args:
        folder: where they may be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "parquet"
        days = {f"day={'2024-01-01' if i else '__HIVE_DEFAULT_PARTITION__'}/{i}.parquet": data
                for i, data in enumerate(_plain().values())}  # fmt: skip
        versions: list[dict[str, Any]] = [
            {"write_page_checksum": True},
            {"compression": "gzip", "version": "1.0", "use_deprecated_int96_timestamps": True, "write_statistics": False},
            {"compression": "lz4", "use_dictionary": False,
             "column_encoding": {"x": "BYTE_STREAM_SPLIT", "text": "DELTA_BYTE_ARRAY", "raw": "DELTA_LENGTH_BYTE_ARRAY"}},
            {"compression": "brotli", "write_page_index": True, "store_schema": False},
        ]  # fmt: skip
        self._seeds = [*(_plain(**options) for options in versions), days, _ours(), _ours(petastorm=True)]

    def execute(self, chance: random.Random) -> list[Attempt]:
        """Damage one, and read it.

        Raises:
            Violation: it broke a promise; all other errors but ours are faults too.
        """
        seed = chance.choice(self._seeds)
        files = dict(seed)
        names = [name for name in files if name != PARQUET_MANIFEST or chance.random() < 0.3]
        done = []
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            name = chance.choice(names)
            damage = chance.choice((mutated_bytes, _in_footer, _in_footer, _in_footer))
            files[name] = damage(files[name], chance, [*seed.values()])
            done.append(f"{damage.__name__} of {name}")
        _write(self._folder, files)
        try:
            return _readings(self._folder, chance)
        except BaseException as error:
            if hasattr(error, "add_note"):  # Python 3.11
                error.add_note("; ".join(done))
            raise


def _readings(folder: Path, chance: random.Random) -> list[Attempt]:
    filters = chance.choice((None, None, col("id") > 2, col("x").is_null()))
    opened = Attempt(lambda: ParquetDataset(folder, filters=filters))
    length = opened if opened.error is not None else Attempt(lambda: len(opened.value))
    if length.error is not None:
        return [opened, length]
    dataset, n = opened.value, min(length.value, _MAX_ROWS)
    singles, others = read_every_way(dataset, n, dataset.schema.fields, ("read_batch",))
    copy = Attempt(lambda: pickle.loads(pickle.dumps(dataset)).read_batch(range(n)))
    return [opened, length, *singles, *others, copy]


# ---------------------------------------------------------------------- damage


def _footer_start(data: bytes) -> int:
    length = int.from_bytes(data[-8:-4], "little")
    return max(0, len(data) - 8 - length)


def _in_footer(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """Damage of a footer that is still as long as it says: most else is refused at once."""
    start = _footer_start(data)
    footer = mutated_bytes(data[start:-8], chance, [data[start:-8]])
    return data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
