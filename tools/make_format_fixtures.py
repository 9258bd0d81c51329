"""Writes and reads ``tests/stored``: something small in each format that data_stack stores, named
by the number of the format.

``python tools/make_format_fixtures.py`` adds what is missing and never changes what is there: every
later version must read it. Give a new format a new number and a line in ``WRITERS``; leave the old
reader and its fixture. ``docs/stability.md`` says more.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bson.json_util
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bson import ObjectId

import data_stack
from data_stack.dataset.encoders import CategoricalEncoder, load_encoder, save_encoder
from data_stack.factories.journal import Journal, Step
from data_stack.factories.manifest import Manifest
from data_stack.factories.resource_record import ResourceRecord
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.formats.parquet.metadata_files import MANIFEST_KEY
from data_stack.formats.records import RecordReader, RecordWriter
from data_stack.io.integrity import block_digest
from data_stack.io.storage_connectors.mongodb.resource_version import ResourceVersion
from data_stack.io.storage_connectors.object_store.pointer import Pointer as ObjectPointer
from data_stack.reproduce.lock_file import LockFile
from data_stack.util.untrusted_text import seal_json

STORED = Path(__file__).parent.parent / "tests" / "stored"
_RESOURCE = ResourceRecord("train.npy", 3, "ab" * 32)


class Stripes(data_stack.DatasetFactory):
    """Six pictures of 2 × 2 pixels in two classes."""

    card = data_stack.DatasetCard("stripes", "1.0.0", license="CC0-1.0")
    splits = ("train",)
    columns = ("image", "label")
    iterator_meta = data_stack.IteratorMeta(sample_pos=0, target_pos=1, tag_pos=1)

    def preprocess(self, raw: Any, prepared: Any) -> None:
        """Store the pictures."""
        with prepared.create("images.npy") as file:
            np.save(file, np.arange(24, dtype=np.uint8).reshape(6, 2, 2))

    def open(self, split: str, prepared: Any) -> Any:
        """The pictures with their classes."""
        with prepared["images.npy"] as file:
            images = np.load(io.BytesIO(file.read()), allow_pickle=False)
        return data_stack.from_numpy(images, np.arange(6) % 2)


def repository() -> data_stack.DatasetRepository:
    """One with the dataset."""
    found = data_stack.default_repository()
    found.register("stripes", Stripes, replace=True)
    return found


def numbers() -> Any:
    """The iterator that states, splits, caches and encoders are of."""
    return data_stack.from_numpy(
        np.arange(12).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2]), target=1
    )


def loader() -> Any:
    """A loader of these."""
    return data_stack.Loader(numbers(), batch_size=2, shuffle=True, seed=3)


def _plain(samples: Any) -> Any:
    if isinstance(samples, dict):
        return {key: _plain(value) for key, value in samples.items()}
    if isinstance(samples, (tuple, list)):
        return [_plain(each) for each in samples]
    return samples.tolist() if isinstance(samples, (np.ndarray, np.generic)) else samples


# ---------------------------------------------------------------------- writing, once


def _write_records(path: Path) -> None:
    with RecordWriter(path, {"id": "i64", "name": "utf8", "pixels": "array"}) as writer:
        for number in range(3):
            writer.append(
                {"id": number, "name": f"n{number}", "pixels": np.full((2, 2), number, np.uint8)}
            )


def _write_parquet(path: Path) -> None:
    with ParquetWriter(path) as writer:
        writer.write(
            [{"id": number, "pixels": np.full((2, 2), number, np.uint8)} for number in range(3)]
        )


def _write_store(path: Path) -> None:
    repository().load("stripes", "train", storage=path, progress=False)


def _write_published(path: Path) -> None:
    repository()
    data_stack.publish("stripes", path, STORED / "manifest-2", progress=False)


def _write_lock(path: Path) -> None:
    data_stack.lock("stripes", path=path, storage=STORED / "manifest-2", numbers=numbers())
    repository()


def _write_recipe(path: Path) -> None:
    iterator = numbers().shuffle(seed=1).take(4)
    path.write_text(
        json.dumps({"recipe": iterator.recipe(), "fingerprint": iterator.fingerprint()}, indent=1)
        + "\n"
    )


def _write_state(path: Path) -> None:
    stopped = loader()
    next(iter(stopped))
    path.write_text(json.dumps(stopped.state_dict(), indent=1) + "\n")


def _write_splits(path: Path) -> None:
    data_stack.save_splits(
        path.parent, path.name, numbers().split({"train": 0.5, "test": 0.5}, seed=1)
    )


def _write_encoder(path: Path) -> None:
    save_encoder(
        CategoricalEncoder("ordinal").fit(np.array(["a", "b", "c"])), path.parent, path.name
    )


def _write_pointer(path: Path) -> None:
    data = b"of a store"
    pointer = ObjectPointer(
        "a/b", len(data), "ab" * 32, 1024, None, blocks=block_digest(data), inline=data
    )
    path.write_bytes(pointer.to_bytes())


def _write_mongodb(path: Path) -> None:
    data = b"of a store"
    version = ResourceVersion(
        "a/b", len(data), "ab" * 32, ObjectId("6" * 24), data, block_digest(data)
    )
    document = {
        "_id": "a/b",
        "rev": 1,
        "modified": bson.json_util.loads('{"$date": 0}'),
        **version.update()["$set"],
    }
    path.write_text(bson.json_util.dumps(document, indent=1) + "\n")


def _write_journal(path: Path) -> None:
    path.write_bytes(
        Journal("cd" * 32, (Step("a step", (_RESOURCE,), (None,)),), ("ef" * 32,)).to_json()
    )


def _write_old_manifest(path: Path) -> None:
    fields = json.loads(
        Manifest(
            "stripes", "1.0.0", "m:C", None, (), (_RESOURCE,), False, "2026-11-21T10:30:00+00:00"
        ).to_json()
    )
    known = {
        name: value
        for name, value in fields.items()
        if name not in ("framework", "seconds", "digest")
    }
    path.write_bytes(seal_json({**known, "format": 1}))


WRITERS: dict[str, Callable[[Path], None]] = {
    "manifest-1.json": _write_old_manifest,
    "manifest-2": _write_store,
    "journal-3.json": _write_journal,
    "published-1": _write_published,
    "lock-1.toml": _write_lock,
    "recipe-2.json": _write_recipe,
    "splits-3.json": _write_splits,
    "encoder-2.json": _write_encoder,
    "loader-2.json": _write_state,
    "records-2": _write_records,
    "parquet-6": _write_parquet,
    "object-3.bin": _write_pointer,
    "mongodb-2.json": _write_mongodb,
}


# ---------------------------------------------------------------------- reading, for ever


def _read_lock(path: Path) -> Any:
    lock = LockFile.read(path)
    return [
        sorted(lock.datasets),
        {name: stack["fingerprint"] for name, stack in lock.stacks.items()},
    ]


def _read_recipe(path: Path) -> Any:
    stored = json.loads(path.read_text())
    iterator = data_stack.from_recipe(stored["recipe"])
    return [_plain(list(iterator)), iterator.fingerprint() == stored["fingerprint"]]


def _read_state(path: Path) -> Any:
    resumed = loader()
    resumed.load_state_dict(json.loads(path.read_text()))
    return _plain(list(resumed))


#: By the name of the format, what reads it; the result is compared with ``expected.json``.
READERS: dict[str, Callable[[Path], Any]] = {
    "manifest": lambda path: (
        _plain(list(repository().load("stripes", "train", storage=path, progress=False)))
        if path.is_dir()
        else Manifest.from_json(path.read_bytes()).digests()
    ),
    "journal": lambda path: [
        step.name for step in Journal.from_json(path.read_bytes(), "stripes").steps
    ],
    "published": lambda path: _plain(list(data_stack.load(path, "train"))),
    "lock": _read_lock,
    "recipe": _read_recipe,
    "splits": lambda path: {
        name: _plain(list(part))
        for name, part in data_stack.load_splits(path.parent, path.name, numbers()).items()
    },
    "encoder": lambda path: _plain(
        load_encoder(path.parent, path.name).transform(np.array(["c", "a"]))
    ),
    "loader": _read_state,
    "records": lambda path: _plain(list(RecordReader(path))),
    "parquet": lambda path: _plain(list(ParquetDataset(path))),
    "object": lambda path: ObjectPointer.from_bytes(
        path.read_bytes(), "a/b", "a store"
    ).inline.decode(),
    "mongodb": lambda path: (
        ResourceVersion.of(bson.json_util.loads(path.read_text()), "a store").data or b""
    ).decode(),
}

#: The file of a folder that states the format, and the key of the number where it is not
#: ``format``.
FILES = {
    "published-1": "data_stack.json",
    "records-2": "manifest.json",
    "parquet-6": "_data_stack_manifest.parquet",
}
FILES |= {"manifest-2": "stripes/1.0.0/manifest.json"}
KEYS = {"recipe": "data_stack_recipe", "loader": "data_stack_loader"}


def read(path: Path) -> Any:
    """What a fixture holds, as plain data."""
    return READERS[path.name.partition("-")[0]](path)


def make_newer(path: Path) -> None:
    """Give a fixture the next number of its format, as a later data_stack may write it."""
    kind, _, rest = path.name.partition("-")
    number = 2 if kind == "manifest" else int(rest.partition(".")[0])
    file = path / FILES[path.name] if path.name in FILES else path
    data = file.read_bytes()
    if kind == "parquet":
        metadata = pq.read_metadata(file).metadata
        newer = {**metadata, MANIFEST_KEY: _seal_newer(metadata[MANIFEST_KEY], number)}
        pq.write_metadata(pa.schema([], metadata=newer), file)
    elif kind in ("lock", "object"):
        old = b"format = %d" if kind == "lock" else b"resource %d"
        file.write_bytes(data.replace(old % number, old % (number + 1), 1))
    elif kind in ("recipe", "loader", "mongodb"):
        fields = json.loads(data)
        (fields["recipe"] if kind == "recipe" else fields)[KEYS.get(kind, "format")] = number + 1
        file.write_text(json.dumps(fields))
    else:
        file.write_bytes(_seal_newer(data, number))


def _seal_newer(data: bytes, number: int) -> bytes:
    fields = json.loads(data)
    del fields["digest"]
    stated = fields["format"]
    return seal_json(
        {
            **fields,
            "format": number + 1
            if type(stated) is int
            else stated.replace(str(number), str(number + 1)),
        }
    )


def main() -> int:
    """Write what is missing."""
    STORED.mkdir(exist_ok=True)
    file = STORED / "expected.json"
    expected = json.loads(file.read_text()) if file.exists() else {}
    for name, write in WRITERS.items():
        if name not in expected:
            write(STORED / name)
            for notes in list(STORED.rglob(".data_stack")):  # on inodes of this machine
                shutil.rmtree(notes)
            expected[name] = read(STORED / name)
    file.write_text(json.dumps(expected, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    import make_format_fixtures  # manifests name the class by its module

    sys.exit(make_format_fixtures.main())
