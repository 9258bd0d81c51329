"""Manifests, journals, where they are stored, stores that other programs touched."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from written_dataset import Written

from data_stack import DatasetCard, DatasetFactory
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.factories.journal import Journal, Step
from data_stack.factories.manifest import Manifest, SourceRecord
from data_stack.factories.resource_record import ResourceRecord
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.util.untrusted_text import seal_json

MANIFEST = Manifest(
    name="digits",
    version="1.0.0",
    factory="datastack_digits:DigitsFactory",
    distribution="lazy-data-stack-digits 0.2.0",
    sources=(
        SourceRecord(
            "raw/digits.csv.gz",
            57_523,
            "ab" * 32,
            "cd" * 16,
            verified=True,
            origin="https://example.org/digits.csv.gz",
        ),
        SourceRecord("raw/names.txt", None, None, None, verified=False, origin=None),
    ),
    prepared=(
        ResourceRecord("preprocessed/train.npy", 1_000, "01" * 32),
        ResourceRecord("preprocessed/test.npy", 0, "ef" * 32),
    ),
    adopted=False,
    created="2026-11-21T10:30:00+00:00",
)


def fields() -> dict[str, Any]:
    """The fields of a right manifest, to be made wrong."""
    parsed: dict[str, Any] = json.loads(MANIFEST.to_json())
    del parsed["digest"]
    return parsed


def test_a_damaged_manifest_is_refused_or_means_the_same() -> None:
    data = MANIFEST.to_json().rstrip()
    assert Manifest.from_json(data) == MANIFEST
    assert (MANIFEST.size, list(MANIFEST.digests() or ())) == (
        1_000,
        ["preprocessed/test.npy", "preprocessed/train.npy"],
    )
    unknown = replace(MANIFEST, prepared=(*MANIFEST.prepared, ResourceRecord("more", 1, None)))
    assert unknown.digests() is replace(MANIFEST, prepared=()).digests() is None

    for position in range(len(data)):
        with pytest.raises(DatasetFileCorruptError):
            Manifest.from_json(data[:position])
        for flipped_bits in (0x01, 0x20):
            changed = bytearray(data)
            changed[position] ^= flipped_bits
            try:
                assert Manifest.from_json(bytes(changed)) == MANIFEST
            except DatasetFileCorruptError:
                continue


IDENTIFIERS = [
    "../../etc/passwd",
    "/etc/passwd",
    "a\0b",
    "con",
    "",
    "a/" * 300 + "a",
    "\ud800",
    {},
    "preprocessed/test.npy",
]
RESOURCE: dict[str, list[Any]] = {
    "identifier": IDENTIFIERS,
    "size": [-1, 2**63, 10**4_000, True, None],
    "sha256": [None, "AB" * 32, "ab" * 31],
    "x": [1],
}
SOURCE: dict[str, list[Any]] = {
    "identifier": IDENTIFIERS[:-1],
    "size": [-1, True],
    "sha256": ["ab" * 31],
    "md5_sum": ["cd" * 15, "CD" * 16],
    "verified": [None, 1],
    "origin": [1],
    "x": [1],
}
WRONG: dict[str, list[Any]] = {
    "format": [1, 3, True],
    "name": [None, "../other"],
    "version": [1],
    "distribution": [3],
    "sources": [None, [[]]],
    "prepared": ["preprocessed/train.npy", [{}]],
    "adopted": [1],
    "created": ["yesterday"],
    "framework": [1],
    "seconds": [-1, "1", True],
    "unknown": [1],
}


def test_missing_or_mistyped_fields_are_refused_despite_a_right_digest() -> None:
    right: dict[str, Any] = fields()
    first, *rest = right["prepared"]
    wrong = [{**right, field: value} for field, values in WRONG.items() for value in values]
    wrong += [
        {**right, "prepared": [{**first, field: value}, *rest]}
        for field, values in RESOURCE.items()
        for value in values
    ]
    source = right["sources"][0]
    wrong += [
        {**right, "sources": [{**source, field: value}]}
        for field, values in SOURCE.items()
        for value in values
    ]
    wrong += [
        {name: value for name, value in right.items() if name != missing} for missing in right
    ]

    for each in wrong:
        with pytest.raises(DatasetFileCorruptError):
            Manifest.from_json(seal_json(each))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"[" * 1_000_000,
        b'{"digest": NaN}',
        b'{"digest": "a", "digest": "b"}',
        b"\0" * 9,
    ],
    ids=lambda data: data[:12].decode("latin-1"),
)
def test_other_bytes_are_neither_manifest_nor_journal(data: bytes) -> None:
    with pytest.raises(DatasetFileCorruptError):
        Manifest.from_json(data)
    with pytest.raises(DatasetFileCorruptError):
        Journal.from_json(data, "digits")


def test_a_journal_survives_being_stored() -> None:
    steps = (
        Step("train", MANIFEST.prepared[:1], ("preparing@1",)),
        Step("test", MANIFEST.prepared[1:2], (None,)),
    )
    journal = Journal("ab" * 32, steps, codes=("cd" * 32,))

    assert Journal.from_json(journal.to_json(), "digits") == journal
    assert (
        journal.attempt
        == replace(journal, steps=(), codes=("cd" * 32, "ef" * 32)).attempt
        != Journal("ab" * 32).attempt
    )


def test_unknown_fields_of_a_journal_are_refused_despite_its_digest() -> None:
    right = json.loads(
        Journal("ab" * 32, (Step("train", MANIFEST.prepared[:1], (None,)),), ("cd" * 32,)).to_json()
    )
    del right["digest"]
    (step,), (code,) = right["steps"], right["codes"]
    wrong = {
        "fingerprint": "ab" * 31,
        "x": 1,
        "steps": [{**step, "x": 1}],
        "codes": [{**code, "x": 1}],
    }
    assert Journal.from_json(seal_json(right), "digits").steps
    resources = [{**step["resources"][0], "x": 1}]

    for each in [
        *({**right, field: value} for field, value in wrong.items()),
        {**right, "steps": [{**step, "resources": resources}]},
    ]:
        with pytest.raises(DatasetFileCorruptError):
            Journal.from_json(seal_json(each), "digits")


@pytest.mark.parametrize(
    ("name", "staged"),
    [("../other/manifest.json", None), ("a", "../other/a"), ("a", "manifest.json")],
)
def test_a_journal_naming_a_resource_outside_its_dataset_is_refused(
    name: str, staged: str | None
) -> None:
    journal = Journal("ab" * 32, (Step("train", (ResourceRecord(name, 1, "ab" * 32),), (staged,)),))

    with pytest.raises(DatasetFileCorruptError):
        Journal.from_json(journal.to_json(), "digits")


class Older(Written):
    card = DatasetCard(name="letters", version="1.0")


class Newer(Older):
    card = DatasetCard(name="letters", version="2.0")


def test_a_source_that_another_version_has_is_not_retrieved_again(
    store: FileStorageConnector, tmp_path: Path
) -> None:
    source = tmp_path / "letters.txt"
    source.write_bytes(b"abc")
    kept = (
        ResourceDefinition(
            "raw/letters.txt", str(source), sha256=hashlib.sha256(b"abc").hexdigest()
        ),
    )
    old, new = (type(f"With{kind.__name__}", (kind,), {"sources": kept}) for kind in (Older, Newer))
    old(store).prepare()
    source.unlink()

    new(store).prepare()

    assert store.get_resource("letters/2.0/raw/letters.txt").read() == b"abc"
    assert new(store).verify() == []


@pytest.mark.parametrize(
    "version", ["1/0", "../1", "manifest.json", "Journal.json", "preparing@1", "ä"]
)
def test_a_version_that_cannot_be_a_folder_is_refused(
    store: FileStorageConnector, version: str
) -> None:
    kind: type[DatasetFactory] = type(
        "Wrong", (Older,), {"card": DatasetCard(name="letters", version=version)}
    )

    with pytest.raises(ConfigError):
        kind(store).prepare()


RIGHT = b"0123456789" * 100


class Factory(Written):
    """A thousand bytes, each a sample."""

    card = DatasetCard(name="bytes", version="1")
    files = {"all": RIGHT}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Factory(FileStorageConnector(tmp_path / "store")).prepare()
    Written.n_steps = 0
    return tmp_path / "store"


def samples(root: Path) -> bytes:
    iterator, _ = Factory(FileStorageConnector(root)).get_dataset_iterator()
    return bytes(value for (value,) in iterator)


@pytest.mark.parametrize("name", ["bytes/1/manifest.json", "bytes/1/all"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:99] + bytes([data[99] ^ 1]) + data[100:],
        lambda data: data[:10],
        lambda data: data + b"\0",
    ],
)
def test_a_damaged_resource_is_never_served_but_made_anew(
    root: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    (root / name).write_bytes(damage((root / name).read_bytes()))

    assert not Factory(FileStorageConnector(root)).is_ready()
    assert samples(root) == RIGHT
    assert Written.n_steps == 1
    assert Factory(FileStorageConnector(root)).verify() == []


def test_a_copied_store_is_verified_by_reading_each_byte_once(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    assert samples(copy) == RIGHT
    notes = {
        path: path.stat().st_mtime_ns
        for path in (copy / ".data_stack/digests").rglob("*")
        if path.is_file()
    }

    assert samples(copy) == RIGHT

    # nothing had to be noted a second time, so nothing was read in full again
    assert notes == {
        path: path.stat().st_mtime_ns
        for path in (copy / ".data_stack/digests").rglob("*")
        if path.is_file()
    }
    assert Written.n_steps == 0
