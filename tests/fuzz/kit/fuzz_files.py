"""Damages WebDataset shards, folders of images and Parquet, and reads them in every way."""

from __future__ import annotations

import io
import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_datasets import Files, content_of, pixels, write_files
from fuzz_mutations import mutated_bytes, mutated_json
from fuzz_readings import Attempt, Violation, read_every_way

from data_stack.codecs import codec_of
from data_stack.formats import ImageFolderIterator, WebDatasetIterator
from data_stack.formats.parquet import Field, ParquetDataset, ParquetWriter, Schema
from data_stack.formats.parquet.codecs import JpegCodec, NdarrayCodec, PngCodec
from data_stack.formats.webdataset_shards import shard_names
from data_stack.formats.webdataset_writer import WebDatasetWriter
from data_stack.io.folder import folder_of

#: Of a dataset that was damaged so that it states more samples, no more are read.
_MAX_SAMPLES = 40


def _shards(folder: Path) -> None:
    with WebDatasetWriter(folder, name="train", shardlen=3) as writer:
        for i in range(5):
            sample: dict[str, Any] = {
                "__key__": f"a/{i:03}",
                "cls": i,
                "json": {"i": [i]},
                "npy": np.arange(i),
                "txt": "ä" * i,
            }
            writer.append(sample | ({"seg.png": pixels(i)} if i % 2 else {"jpg": pixels(i)}))


def _images(has_metadata: bool) -> Files:
    png = codec_of("png")
    files = {
        f"{i}.png" if has_metadata else f"{'ab'[i % 2]}/{i}.png": png.encode(pixels(i))
        for i in range(4)
    }
    lines = [json.dumps({"file_name": name, "text": f"t{name}", "n": 1}) for name in files]
    return files | ({"metadata.jsonl": "\n".join(lines).encode()} if has_metadata else {})


def _plain(**options: Any) -> Files:
    rows = range(6)
    table = pa.table(
        {
            "id": pa.array(rows, pa.int64()),
            "x": pa.array([None if i % 3 == 1 else i / 2 for i in rows], pa.float32()),
            "text": pa.array(["class " + "abc"[i % 3] for i in rows]),
            "at": pa.array([1_700_000_000_000_000 + i for i in rows], pa.timestamp("us", "UTC")),
            "ragged": pa.array(
                [None if i == 2 else [float(i)] * i for i in rows], pa.list_(pa.float64())
            ),
            "struct": pa.array(
                [{"a": i, "b": "x" * i} for i in rows],
                pa.struct([("a", pa.int32()), ("b", pa.string())]),
            ),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=2, **options)
    return {"0.parquet": sink.getvalue()}


def _ours(folder: Path) -> None:
    fields = [
        Field("id", "int64"),
        Field("png", "uint8", (4, 3, 3), PngCodec()),
        Field("jpeg", "uint8", (8, 8, 3), JpegCodec(quality=90), nullable=True),
        Field("any", "int16", (None, 2), NdarrayCodec(), nullable=True),
    ]
    with ParquetWriter(
        folder, Schema("fuzzed", fields), row_group_rows=2, rows_per_file=3, petastorm=True
    ) as writer:
        for i in range(6):
            picture = None if i == 3 else np.full((8, 8, 3), i, np.uint8)
            matrix = None if i == 1 else np.full((i, 2), i, np.int16)
            writer.append(
                {"id": i, "png": np.full((4, 3, 3), i, np.uint8), "jpeg": picture, "any": matrix}
            )


def _open_shards(folder: Path) -> Any:
    place = folder_of(folder)
    return WebDatasetIterator([(place, name) for name in shard_names(place)])


class DamagedFiles:
    """Datasets of several formats, damaged and read in every way.

    Args:
        folder: where they may be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "files"
        dictionary = {
            "compression": "gzip",
            "version": "1.0",
            "use_deprecated_int96_timestamps": True,
        }
        self._seeds: list[tuple[Callable[[Path], Any], Files]] = [
            (_open_shards, content_of(_shards)),
            *((ImageFolderIterator, _images(has_metadata)) for has_metadata in (False, True)),
            *(
                (ParquetDataset, files)
                for files in (
                    _plain(write_page_checksum=True),
                    _plain(**dictionary),
                    content_of(_ours),
                )
            ),
        ]

    def execute(self, chance: random.Random) -> list[Attempt]:
        """Damage one, and read it.

        Raises:
            Violation: it broke a promise; all other errors but ours are faults too.
        """
        opener, seed = chance.choice(self._seeds)
        files = dict(seed)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            name = chance.choice(sorted(files))
            files[name] = _damaged(name, files, chance)
        write_files(self._folder, files)
        opened = Attempt(lambda: opener(self._folder))
        length = opened if opened.error is not None else Attempt(lambda: len(opened.value))
        if length.error is not None:
            return [opened, length]
        reader, n = opened.value, min(length.value, _MAX_SAMPLES)
        is_table = opener is ParquetDataset
        if length.value > n and not is_table:
            raise Violation(f"{length.value} samples of a few")
        exact = ("read_batch",) if is_table else ("__getitems__", "iteration")
        singles, others = read_every_way(
            reader, n, reader.schema.fields if is_table else reader.fields, exact
        )
        copy = Attempt(lambda: pickle.loads(pickle.dumps(reader)).__getitems__(range(n)))
        return [opened, length, *singles, *others, copy]


def _damaged(name: str, files: Files, chance: random.Random) -> bytes:
    """A file with damage: of Parquet mostly in a footer that is still as long as it says, for most
    else is refused at once.
    """
    data = files[name]
    if name.endswith(".parquet") and chance.random() < 0.75:
        start = max(0, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
        footer = mutated_bytes(data[start:-8], chance, [data[start:-8]])
        return data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    if name.endswith(".json") and chance.random() < 0.6:
        try:
            return json.dumps(mutated_json(json.loads(data), chance)).encode()
        except (ValueError, RecursionError):
            return data
    return mutated_bytes(data, chance, list(files.values()))
