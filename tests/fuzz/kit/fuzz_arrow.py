"""Damages Arrow files and folders of ``save_to_disk``, and reads them in every way."""

from __future__ import annotations

import functools
import io
import json
import pickle
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fuzz_datasets import Files, pixels, write_files
from fuzz_mutations import mutated_bytes, mutated_json
from fuzz_readings import Attempt, Violation, read_every_way

import data_stack
from data_stack.codecs import codec_of
from data_stack.formats.arrow_ipc import ArrowDataset
from data_stack.io.storage_connectors import InMemoryStorageConnector

#: Of a dataset that was damaged so that it states more samples, no more are read.
_MAX_SAMPLES = 40

#: Comes before each header.
_CONTINUATION = b"\xff\xff\xff\xff"

#: A file with damage mostly has it in a header: most bytes are values, any of which are right.
_SHARE_OF_DAMAGED_HEADERS = 0.7

_N_ROWS = 6

Opener = Callable[[Path], Any]


@dataclass(frozen=True)
class ArrowSeed:
    """An undamaged dataset.

    Attributes:
        open: opens it in a folder.
        files: content by path.
    """

    open: Opener
    files: Files


def _numbers() -> pa.Table:
    """Return columns of one size, with nulls and without."""
    rows = range(_N_ROWS)
    flat = pa.array(range(6 * _N_ROWS), pa.int16())
    return pa.table(
        {
            "id": pa.array(rows, pa.int64()),
            "x": pa.array([None if row % 3 == 1 else row / 2 for row in rows], pa.float32()),
            "yes": pa.array([row % 2 == 0 for row in rows]),
            "matrix": pa.FixedSizeListArray.from_arrays(
                pa.FixedSizeListArray.from_arrays(flat, 3), 2
            ),
            "at": pa.array(list(rows), pa.timestamp("us", "UTC")),
            "id of 16 bytes": pa.array([bytes([row] * 16) for row in rows], pa.uuid()),
        }
    )


def _texts() -> pa.Table:
    """Return columns with offsets, views, dictionaries and structs."""
    rows = range(_N_ROWS)
    return pa.table(
        {
            "text": [None if row == 4 else "ä" * row for row in rows],
            "view": pa.array(
                [f"a text of no short length {row}" for row in rows], pa.string_view()
            ),
            "bytes": pa.array([bytes(row) for row in rows], pa.large_binary()),
            "kind": pa.array([f"k{row % 3}" for row in rows]).dictionary_encode(),
            "ragged": pa.array([[float(row)] * row for row in rows]),
            "texts": pa.array([["a", None]] * _N_ROWS),
            "struct": pa.array([{"a": row, "b": ["x" * row]} for row in rows]),
            "map": pa.array([[("a", row)] for row in rows], pa.map_("string", "int8")),
            "none": pa.nulls(_N_ROWS),
        }
    )


def _written(table: pa.Table, *, stream: bool, compression: str | None = None) -> bytes:
    """Return the bytes of a file with record batches of two rows."""
    file = io.BytesIO()
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(file, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=2)
    return file.getvalue()


def _features() -> dict[str, Any]:
    return {
        "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
        "image": {"_type": "Image"},
        "words": {"_type": "Sequence", "feature": {"_type": "Value", "dtype": "string"}},
        "pairs": {"a": [{"b": {"_type": "Value", "dtype": "int16"}}]},
        "grid": {"_type": "Array2D", "shape": [2, 2], "dtype": "float32"},
    }


def _with_features() -> pa.Table:
    """Return a table as ``datasets`` stores it."""
    png = codec_of("png")
    image_type = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pairs_type = pa.struct([("a", pa.list_(pa.struct([("b", pa.int16())])))])
    rows = range(_N_ROWS)
    table = pa.table(
        {
            "label": pa.array([row % 2 for row in rows], pa.int64()),
            "image": pa.array(
                [{"bytes": png.encode(pixels(row)), "path": None} for row in rows], image_type
            ),
            "words": pa.array([["a"] * row for row in rows], pa.list_(pa.string())),
            "pairs": pa.array([{"a": [{"b": row}]} for row in rows], pairs_type),
            "grid": pa.array(
                [[[row, 1], [2, 3]] for row in rows], pa.list_(pa.list_(pa.float32()))
            ),
        }
    )
    metadata = {"huggingface": json.dumps({"info": {"features": _features()}})}
    return table.replace_schema_metadata(metadata)


def _saved() -> Files:
    """Return a folder of ``save_to_disk``, two splits of two files each."""
    table = _with_features()
    parts = [table.slice(0, 4), table.slice(4)]
    files: dict[str, bytes] = {
        "dataset_dict.json": json.dumps({"splits": ["train", "test"]}).encode()
    }
    for split in ("train", "test"):
        names = [f"data-0000{number}-of-00002.arrow" for number in range(2)]
        for name, part in zip(names, parts, strict=True):
            files[f"{split}/{name}"] = _written(part, stream=True)
        state = {"_data_files": [{"filename": name} for name in names], "_split": split}
        files[f"{split}/state.json"] = json.dumps(state).encode()
        info = {"features": _features(), "splits": {"train": {"num_examples": _N_ROWS}}}
        files[f"{split}/dataset_info.json"] = json.dumps(info).encode()
    positions = pa.table({"indices": pa.array([3, 0, 1], pa.uint64())})
    files["test/indices.arrow"] = _written(positions, stream=True)
    state = json.loads(files["test/state.json"])
    state["_indices_data_files"] = [{"filename": "indices.arrow"}]
    files["test/state.json"] = json.dumps(state).encode()
    return files


def _open_mapped(folder: Path) -> Any:
    return ArrowDataset(folder / "a.arrow")


def _open_in_store(folder: Path) -> Any:
    store = InMemoryStorageConnector()
    with (folder / "a.arrow").open("rb") as file:
        store.set_resource("a.arrow", file)
    return ArrowDataset((store, "a.arrow"))


def _open_saved(folder: Path) -> Any:
    loaded: Any = data_stack.load(str(folder))
    return loaded["test"] if isinstance(loaded, Mapping) else loaded


def _open_split(folder: Path) -> Any:
    return data_stack.load(str(folder / "train"))


def arrow_seeds() -> list[ArrowSeed]:
    """Return all undamaged datasets."""
    seeds = []
    for table in (_numbers(), _texts()):
        for stream in (False, True):
            for compression in (None, "lz4", "zstd"):
                data = _written(table, stream=stream, compression=compression)
                files = {"a.arrow": data}
                seeds.append(ArrowSeed(_open_mapped, files))
            seeds.append(ArrowSeed(_open_in_store, {"a.arrow": _written(table, stream=stream)}))
    saved = _saved()
    seeds.extend([ArrowSeed(_open_saved, saved), ArrowSeed(_open_split, saved)] * 3)
    return seeds


class DamagedArrowFiles:
    """Arrow files and folders of ``save_to_disk``, damaged and read in every way.

    Args:
        folder: where they may be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "arrow"
        self._seeds = arrow_seeds()

    def execute(self, chance: random.Random) -> list[Attempt]:
        """Damage one, and read it.

        Raises:
            Violation: it broke a promise; all other errors but ours are faults too.
        """
        seed = chance.choice(self._seeds)
        files = dict(seed.files)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            name = chance.choice(sorted(files))
            files[name] = _damaged(name, files, chance)
        write_files(self._folder, files)
        opened = Attempt(lambda: seed.open(self._folder))
        if opened.error is not None:
            return [opened]
        rows = opened.value
        n = min(len(rows), _MAX_SAMPLES)
        exact = ("__getitems__", "iteration", "read_batch")
        singles, others = read_every_way(rows, n, rows.column_names, exact)
        whole = []
        if len(rows) == n:
            for name in rows.column_names:
                whole.append(Attempt(functools.partial(rows.read_column, name)))
            _check_lengths(whole, n)
        copy = Attempt(lambda: pickle.loads(pickle.dumps(rows)).read_batch(np.arange(n)))
        return [opened, *singles, *others, *whole, copy]


def _check_lengths(columns: list[Attempt], n: int) -> None:
    """Check that whole columns have a value for each sample.

    Raises:
        Violation: one has not.
    """
    for column in columns:
        if column.error is None and len(column.value) != n:
            raise Violation(f"{len(column.value)} values of a column for {n} samples")


def _damaged(name: str, files: Files, chance: random.Random) -> bytes:
    """Return a file with damage; in an Arrow file, mostly in a header that keeps its size."""
    data = files[name]
    if name.endswith(".json") and chance.random() < 0.8:
        try:
            return json.dumps(mutated_json(json.loads(data), chance)).encode()
        except (ValueError, RecursionError):
            return data
    is_arrow = name.endswith(".arrow") and _CONTINUATION in data
    if is_arrow and chance.random() < _SHARE_OF_DAMAGED_HEADERS:
        return _with_damaged_header(data, chance)
    return mutated_bytes(data, chance, list(files.values()))


def _with_damaged_header(data: bytes, chance: random.Random) -> bytes:
    """Return a file of the same size, of which one header or the footer is damaged."""
    starts = [0]
    while data.find(_CONTINUATION, starts[-1] + 4) >= 0:
        starts.append(data.find(_CONTINUATION, starts[-1] + 4))
    start = chance.choice([*starts, max(0, len(data) - 600)])
    end = min(len(data), start + chance.choice((100, 300, 600)))
    header = data[start:end]
    mutated = mutated_bytes(header, chance, [header])[: len(header)]
    return data[:start] + mutated.ljust(len(header), b"\0") + data[end:]
