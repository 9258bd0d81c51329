"""Damage by faults, and by an attacker who knows the formats."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
from fuzz_datasets import FuzzDataset, bag_of, index_of, records_in

from data_stack.formats.records.layout import REFS
from data_stack.formats.records.manifest import MANIFEST
from data_stack.io.integrity import digests_of_blocks
from data_stack.util.untrusted_text import seal_json

INTEGERS = [
    *(
        0,
        1,
        2,
        7,
        8,
        9,
        127,
        128,
        255,
        256,
        65535,
        65536,
        65537,
        2**24,
        2**31 - 1,
        2**31,
        2**32 - 1,
        2**32,
        2**33,
    ),
    *(
        2**40,
        2**48,
        2**60,
        2**61 - 1,
        2**61,
        2**62,
        2**63 - 1,
        2**63 - 8,
        2**63,
        2**63 + 8,
        2**64 - 8,
        2**64 - 2,
        2**64 - 1,
    ),
]
"""Numbers at which something changes."""
_JSON_VALUES: list[Any] = [
    *(
        None,
        True,
        0,
        1,
        -1,
        3.5,
        "",
        "x",
        [],
        {},
        [1],
        {"a": 1},
        "[]",
        "[-1]",
        "[1e400]",
        "[4611686018427387904]",
    ),
    *(
        "[1099511627776, 1099511627776]",
        "[8, 6, 3]",
        "<f8",
        "|O",
        "|S0",
        "<U7",
        "(2,3)f4",
        "<M8[ns]",
        "(1,",
        10**30,
        "a" * 300,
    ),
    *(
        "i64",
        "utf8",
        "array[]",
        "jpg",
        "tree",
        "wav",
        "zstd(json)",
        "zstd(" * 20 + "i64" + ")" * 20,
        "no_such",
        "i64[][]",
    ),
    *("refs", "../x", "/etc/passwd", "\x00", "\ud800"),
]
_NAMES = [
    "a",
    "aa",
    "../a",
    "refs",
    "x/y",
    "",
    "_",
    "ü",
    "a\n",
    "A",
    "manifest.json",
    "spec.json",
    "spec",
    "a.bag",
]


@dataclass
class Mutant:
    """A damaged dataset.

    Attributes:
        dataset: what it was.
        files: content by path.
    """

    dataset: FuzzDataset
    files: dict[str, bytes]

    @property
    def promise(self) -> str:
        """What may be read.

        - ``"truth"``: the samples that were written, as the manifests are intact, and no others
          before them; behind them, with a warning, values of the columns' types, if records were
          appended, as Granular does;
        - ``"anything"``: any values of the columns' types, as there is no manifest;
        - ``"lies"``: likewise, and different values in different ways, as a manifest was forged.
        """
        before = {
            file: data for file, data in self.dataset.files.items() if file.endswith(MANIFEST)
        }
        after = {file: data for file, data in self.files.items() if file.endswith(MANIFEST)}
        if before and before.keys() <= after.keys():
            return "truth" if all(after[file] == data for file, data in before.items()) else "lies"
        return "anything" if after.items() <= before.items() else "lies"

    @property
    def is_damaged(self) -> bool:
        """Whether a file of the dataset differs; bytes after the records and other files do not
        matter.
        """
        if "shards" in self.dataset.name and any(file.startswith("000007/") for file in self.files):
            return True  # shards are missing before that one
        # Of JSON the end matters too.
        ends = {
            file: None if file.endswith(".json") else len(data)
            for file, data in self.dataset.files.items()
        }
        return any(
            file not in self.files or self.files[file][: ends[file]] != data
            for file, data in self.dataset.files.items()
        )


# ---------------------------------------------------------------------- bytes


def mutated_bytes(content: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """``content`` with one piece of damage."""
    data = bytearray(content)
    what = chance.choice(
        (
            "bit",
            "bit",
            "bit",
            "byte",
            "cut",
            "cut",
            "insert",
            "overwrite",
            "splice",
            *["integer"] * 3,
            "digits",
        )
    )
    place = chance.randrange(len(data) + 1)
    if what == "cut":
        return content[:place]
    if what == "insert":
        return (
            content[:place] + chance.randbytes(chance.choice((1, 2, 8, 16, 100))) + content[place:]
        )
    if what == "splice":
        other = chance.choice(others) if others else content
        return content[:place] + other[chance.randrange(len(other) + 1) :]
    if what == "overwrite":
        end = min(
            len(data), place + chance.choice((1, 4, 8, 8, 16, chance.randrange(len(data) + 1)))
        )
        data[place:end] = chance.choice(
            (bytes(end - place), b"\xff" * (end - place), chance.randbytes(end - place))
        )
    elif what == "integer":
        _put_integer(data, chance)
    elif what == "digits" and (
        digits := [i for i, byte in enumerate(data[:4096]) if 0x30 <= byte <= 0x39]
    ):
        place = chance.choice(digits)
        data[place : place + 1] = str(chance.choice(INTEGERS)).encode()
    elif what == "byte" and place < len(data):
        data[place] = chance.choice(
            (0, 1, 0x7F, 0x80, 0xFF, 0xC0, 0xDD, 0xDF, 0xC6, chance.randrange(256))
        )
    elif place < len(data):
        data[place] ^= 1 << chance.randrange(8)
    return bytes(data)


def _put_integer(data: bytearray, chance: random.Random) -> None:
    """A number of 2 to 8 bytes in either order; those of 8 mostly where those of an index are."""
    kind = chance.choice(("<Q", "<Q", "<Q", ">Q", "<I", ">I", "<H", ">H"))
    size = struct.calcsize(kind)
    if len(data) < size:
        return
    place = chance.randrange(len(data) - size + 1)
    if kind == "<Q" and chance.random() < 0.8:
        place = (
            (len(data) % 8 + 8 * chance.randrange(len(data) // 8))
            if chance.random() < 0.8
            else len(data) - 8
        )
    known = chance.choice(
        (chance.choice(INTEGERS), len(data), len(data) - 8, chance.randrange(2 * len(data) + 1))
    )
    struct.pack_into(kind, data, place, max(0, known) % 2 ** (8 * size))


# ---------------------------------------------------------------------- JSON, msgpack


def mutated_json(value: Any, chance: random.Random) -> Any:
    """A value of JSON with one part replaced, removed, doubled or renamed."""
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        part = waiting.pop()
        keys: Any = (
            part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        )
        for key in keys:
            places.append((part, key))
            waiting.append(part[key])
    if not places or chance.random() < 0.02:
        return chance.choice(_JSON_VALUES)
    part, key = chance.choice(places)
    what = chance.random()
    if what < 0.1:
        del part[key]
    elif what < 0.2 and isinstance(part, dict):
        part[chance.choice((*_NAMES, *part))] = part.pop(key)
    elif type(part[key]) is int and what < 0.8:
        known = part[key]
        part[key] = chance.choice(
            (known + 1, known - 1, 2 * known, -known, chance.choice(INTEGERS), 8 * known)
        )
    else:
        part[key] = chance.choice(_JSON_VALUES)
    return value


def _references(n_columns: int, chance: random.Random) -> bytes:
    """A forged record of ``refs.bag``."""
    entries: list[Any] = []
    for _ in range(n_columns + chance.choice((0, 0, 0, 1, -1))):
        numbers = [
            chance.choice((0, 1, 2, 3, chance.choice(INTEGERS)))
            for _ in range(chance.choice((0, 1, 2, 2, 3)))
        ]
        entries.append(numbers[0] if len(numbers) == 1 else numbers)
    return bytes(msgpack.packb(entries))


# ---------------------------------------------------------------------- datasets


def mutant_of(dataset: FuzzDataset, chance: random.Random) -> Mutant:
    """A dataset with some damage, mostly one piece."""
    mutant = Mutant(dataset, dict(dataset.files))
    manifests = [file for file in mutant.files if file.endswith(MANIFEST)]
    way = chance.random()
    if way < 0.35:
        for file in manifests:
            del mutant.files[file]
    for _ in range(chance.choice((1, 1, 1, 1, 2, 3))):
        what = chance.random()
        if what < 0.55:
            _damage(mutant, chance)
        elif what < 0.75:
            _rebuild(mutant, chance)
        elif what < 0.85:
            _change_spec(mutant, chance)
        else:
            _change_files(mutant, chance)
    if manifests and 0.35 <= way < 0.6:
        _reseal(mutant, chance, n_lies=0 if way < 0.39 else None)
    return mutant


def _damage(mutant: Mutant, chance: random.Random) -> None:
    if not mutant.files:
        return
    file = chance.choice(sorted(mutant.files))
    others = list(mutant.files.values())
    data = mutant.files[file]
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        data = mutated_bytes(data, chance, others)
    mutant.files[file] = data


def _rebuild(mutant: Mutant, chance: random.Random) -> None:
    """Other records in a bag, and the index that belongs to them: damage that reaches the
    codecs.
    """
    bags = [file for file in mutant.dataset.files if file.endswith(".bag") and file in mutant.files]
    if not bags:
        return
    bag = chance.choice(sorted(bags))
    found, index = records_in(mutant.dataset.files, bag)
    if index not in mutant.files:
        return
    rows = list(found)
    what = chance.random()
    place = chance.randrange(len(rows)) if rows else 0
    if bag.endswith(f"{REFS}.bag") and what < 0.7:
        rows[place : place + 1] = [_references(len(mutant.dataset.spec), chance)]
    elif what < 0.1 and rows:
        del rows[place]
    elif what < 0.2:
        rows.append(b"")
    elif rows:
        rows[place] = mutated_bytes(rows[place], chance, rows)
    if index == bag:
        mutant.files[bag] = bag_of(
            rows, leading=mutant.dataset.name == "leading zeros" or chance.random() < 0.1
        )
    else:
        mutant.files[bag], mutant.files[index] = b"".join(rows), index_of(rows)


def _change_spec(mutant: Mutant, chance: random.Random) -> None:
    specs = [file for file in mutant.files if file.endswith("spec.json")]
    if not specs:
        return
    file = chance.choice(sorted(specs))
    try:
        spec = json.loads(mutant.files[file])
    except (ValueError, RecursionError):
        return
    mutant.files[file] = json.dumps(mutated_json(spec, chance)).encode()


def _change_files(mutant: Mutant, chance: random.Random) -> None:
    if not mutant.files:
        return
    file = chance.choice(sorted(mutant.files))
    other = chance.choice(sorted(mutant.files))
    what = chance.randrange(4)
    if what == 0:
        del mutant.files[file]
    elif what == 1:
        mutant.files[file], mutant.files[other] = mutant.files[other], mutant.files[file]
    elif what == 2:
        mutant.files[file] = b""
    else:
        extra = chance.choice(
            (
                "refs.bag",
                "refs.bag.part",
                "refs.idx",
                "refs.idx.part",
                "000000/spec.json",
                "000007/x",
                "x.bag",
            )
        )
        mutant.files.setdefault(extra, mutant.files[other])


def resealed(manifest: bytes, files: Mapping[str, bytes]) -> bytes:
    """A manifest with the digests of files as they are now."""
    fields = json.loads(manifest)
    for each in fields["files"]:
        data = files.get(each["name"])
        if data is not None:
            each["size"], each["sha256"] = len(data), hashlib.sha256(data).hexdigest()
            each["blocks"] = base64.b64encode(digests_of_blocks(data)).decode("ascii")
    fields.pop("digest", None)
    return seal_json(fields)


def _reseal(mutant: Mutant, chance: random.Random, *, n_lies: int | None = None) -> None:
    """Forge a manifest: it is consistent, except for a lie or two."""
    for file in [file for file in mutant.files if file.endswith(MANIFEST)]:
        folder = file.removesuffix(MANIFEST)
        beside = {
            name.removeprefix(folder): data
            for name, data in mutant.files.items()
            if name.startswith(folder)
        }
        try:
            mutant.files[file] = resealed(mutant.files[file], beside)
            fields = json.loads(mutant.files[file])
            for _ in range(chance.choice((0, 0, 1, 1, 1, 2)) if n_lies is None else n_lies):
                fields = mutated_json(fields, chance)
            fields.pop("digest", None)
            mutant.files[file] = seal_json(fields)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return  # the manifest was damaged before
