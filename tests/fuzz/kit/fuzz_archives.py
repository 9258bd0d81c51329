"""Damages what other formats read: WebDataset's shards, and folders of images."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_mutations import INTEGERS, mutated_bytes, mutated_json
from fuzz_readings import Attempt, Violation, read_every_way

from data_stack.codecs import codec_of
from data_stack.formats.image_folder import ImageFolderIterator
from data_stack.formats.webdataset import SHARD_INDEX, WebDatasetIterator, shard_names
from data_stack.formats.webdataset_writer import WebDatasetWriter
from data_stack.io.folder import folder_of
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.io.storage_connectors.connector import ResourceInfo

_BLOCK = 512
_MAX_SAMPLES = 40
#: Fields of a header of a tar: where they begin, and how many bytes they have.
_FIELDS = {"name": (0, 100), "size": (124, 12), "kind": (156, 1)}
_HEADER_VALUES: Mapping[str, list[bytes]] = {
    "name": [b"../x.jpg", b"/x.jpg", b"a/../../x.cls", b"", b"a.jpg/", b"x.pkl", b"\xff\xfe.txt", b"a" * 100, b"1.jpg"],
    "size": [b"%011o\0" % number for number in (0, 1, 511, 512, 513, 2**33 - 1)]
    + [b"\x80" + number.to_bytes(11, "big") for number in INTEGERS]
    + [b"\xff" * 12, b"-1\0", b"9\0", b" " * 12, bytes(12)],
    "kind": [bytes((byte,)) for byte in b"\x000123456789xgLKSNVMDAX"],
}
Files = Mapping[str, bytes]


def _pixels(i: int) -> Any:
    return ((np.arange(8 * 6 * 3).reshape(8, 6, 3) * (i + 3)) % 251).astype(np.uint8)


def _shards() -> Files:
    store = InMemoryStorageConnector()
    with WebDatasetWriter(store, name="train", shardlen=3) as writer:
        for i in range(5):
            sample: dict[str, Any] = {"__key__": f"a/{i:03}", "cls": i, "json": {"i": [i]}, "npy": np.arange(i), "txt": "ä" * i}
            writer.append(sample | ({"seg.png": _pixels(i)} if i % 2 else {"jpg": _pixels(i)}))
    return {name: data for name, (data, _) in store._stored.items()}


def _folders() -> list[Files]:
    jpg, png = codec_of("jpg"), codec_of("png")
    classes = {
        f"{kind}/{i}.{'jpg' if i % 2 else 'png'}": (jpg if i % 2 else png).encode(_pixels(i)) for i in range(3) for kind in "ab"
    }
    flat = {f"{i}.png": png.encode(_pixels(i)) for i in range(3)}
    rows = [{"file_name": name, "text": f"t{i}", "n": i} for i, name in enumerate(flat)]
    lines = {"metadata.jsonl": "\n".join(json.dumps(row) for row in rows).encode()}
    table = {"metadata.csv": b"file_name,text,n\n" + b"".join(f"{row['file_name']},t,{row['n']}\n".encode() for row in rows)}
    return [classes, flat | lines, flat | table, flat]


class Archives:
    """Datasets of both formats, damaged and read, out of memory and out of a folder.

    Args:
        folder: where they may be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "archive"
        self._seeds = [(True, _shards()), *((False, files) for files in _folders())]

    def execute(self, chance: random.Random) -> list[Attempt]:
        """Damage one, and read it.

        Raises:
            Violation: it broke a promise; all other errors but ours are faults too.
        """
        is_tar, seed = self._seeds[chance.choice((0, 0, 0, 0, 1, 2, 3, 4))]
        files = dict(seed)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            _damage(files, chance)
        source: Any
        if chance.random() < 0.5:
            source = InMemoryStorageConnector()
            for name, data in files.items():
                source._stored[name] = data, ResourceInfo(name, len(data))
        else:
            source = self._folder
            shutil.rmtree(source, ignore_errors=True)
            for name, data in files.items():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                (source / name).write_bytes(data)
        return _read(source, is_tar)


def _read(source: Any, is_tar: bool) -> list[Attempt]:
    place = folder_of(source)
    opened = Attempt(
        lambda: WebDatasetIterator([(place, name) for name in shard_names(place)]) if is_tar else ImageFolderIterator(source)
    )
    length = opened if opened.error is not None else Attempt(lambda: len(opened.value))
    if length.error is not None:
        return [opened, length]
    reader = opened.value
    if length.value > _MAX_SAMPLES:
        raise Violation(f"{length.value} samples of a few")
    singles, others = read_every_way(reader, length.value, reader.fields, ("__getitems__", "iteration"))
    return [opened, length, *singles, *others, Attempt(lambda: len(pickle.loads(pickle.dumps(reader))))]


# ---------------------------------------------------------------------- damage


def _damage(files: dict[str, bytes], chance: random.Random) -> None:
    name = chance.choice(sorted(files))
    what = chance.random()
    if name.endswith(".tar") and what < 0.6:
        files[name] = _with_other_header(files[name], chance)
    elif name.endswith((".json", ".jsonl")) and what < 0.6:
        lines = files[name].splitlines() if name.endswith(".jsonl") else [files[name]]
        place = chance.randrange(len(lines)) if lines else 0
        try:
            lines[place : place + 1] = [
                json.dumps(mutated_json(json.loads(line), chance)).encode() for line in lines[place : place + 1]
            ]
        except (ValueError, RecursionError):
            return
        files[name] = b"\n".join(lines)
    elif what < 0.9:
        files[name] = mutated_bytes(files[name], chance, list(files.values()))
    elif what < 0.93:
        del files[name]
        files.setdefault(SHARD_INDEX, b"{}")
    elif what < 0.97:
        files[chance.choice(("x.tar", "a/9.png", "b.jpg", "c/d/e.webp", ".metadata.jsonl.part", "x.gif", "metadata.csv"))] = (
            files[name]
        )
    else:
        other = chance.choice(sorted(files))
        files[name], files[other] = files[other], files[name]


def _with_other_header(data: bytes, chance: random.Random) -> bytes:
    """Another header in a tar, with the checksum that it needs."""
    headers = [place for place in range(0, len(data) - _BLOCK + 1, _BLOCK) if data[place + 257 : place + 262] == b"ustar"]
    if not headers:
        return data
    place = chance.choice(headers)
    header = bytearray(data[place : place + _BLOCK])
    for _ in range(chance.choice((1, 1, 2))):
        field = chance.choice(sorted(_FIELDS))
        start, size = _FIELDS[field]
        header[start : start + size] = chance.choice(_HEADER_VALUES[field])[:size].ljust(size, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return data[:place] + bytes(header) + data[place + _BLOCK :]
