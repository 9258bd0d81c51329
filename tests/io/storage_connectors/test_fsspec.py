"""What FsspecStorageConnector promises beyond the contract: damage, garbage, other tools, lost answers, silence, secrets."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from s3_server import S3Server

from data_stack.exception import (
    ChecksumMismatchError,
    ConfigError,
    DamagedBlockError,
    DatasetFileCorruptError,
    ReadOnlyStorageError,
    ResourceChangedError,
    StorageUnavailableError,
)
from data_stack.io.integrity import BLOCK_BYTES, block_digest
from data_stack.io.storage_connectors import heartbeat
from data_stack.io.storage_connectors.fsspec import FsspecStorageConnector
from data_stack.io.storage_connectors.fsspec.objects import FORMAT, PART_BYTES
from data_stack.testing.storage import content

PART = random.Random(1).randbytes(PART_BYTES)
BIG = PART + random.Random(2).randbytes(300_000)
BLOCK = BLOCK_BYTES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def connector(root: Path) -> FsspecStorageConnector:
    return FsspecStorageConnector(f"file://{root}")


@pytest.fixture
def s3(s3_server: S3Server) -> FsspecStorageConnector:
    return FsspecStorageConnector(f"s3://{s3_server.new_bucket()}/folder", **s3_server.options())


def pointer_file(root: Path, identifier: str) -> Path:
    return root / ".data_stack/resources" / f"{identifier}~"


def part_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / ".data_stack/objects").rglob("*") if path.is_file())


# ---------------------------------------------------------------------- sizes


def test_a_resource_of_several_parts_comes_back_whole_and_in_ranges(connector: FsspecStorageConnector) -> None:
    size = 2 * PART_BYTES + 5
    data = random.Random(size).randbytes(size)

    connector.set_resource("a", data)

    edges = [offset for edge in (0, BLOCK, PART_BYTES, size) for offset in (edge - 2, edge) if 0 <= offset <= size]
    assert hashlib.sha256(content(connector, "a")).digest() == hashlib.sha256(data).digest()
    assert connector.read_ranges("a", [(offset, 5) for offset in edges]) == [data[offset : offset + 5] for offset in edges]


# ---------------------------------------------------------------------- damage


def test_a_flipped_bit_in_a_part_names_resource_and_block(connector: FsspecStorageConnector, root: Path) -> None:
    connector.set_resource("a", BIG)
    damaged = next(path for path in part_files(root) if path.read_bytes() == PART)
    damaged.write_bytes(PART[:BLOCK] + bytes([PART[BLOCK] ^ 4]) + PART[BLOCK + 1 :])

    with pytest.raises(DamagedBlockError, match="'a'") as damage:
        content(connector, "a")

    assert damage.value.block == 1
    with pytest.raises(DamagedBlockError):
        connector.read_ranges("a", [(BLOCK, 1)])
    assert connector.read_ranges("a", [(PART_BYTES, 10)]) == [BIG[PART_BYTES : PART_BYTES + 10]]
    with pytest.raises(ChecksumMismatchError):
        connector.verify_resource("a")
    connector.set_resource("a", BIG)
    assert content(connector, "a") == BIG


def hostile(line: bytes | None = None, rest: bytes = block_digest(b"small") + b"small", **changes: Any) -> bytes:
    """A pointer with a right digest of itself and wrong fields."""
    fields = {
        "identifier": "a", "size": 5, "sha256": hashlib.sha256(b"small").hexdigest(), "block_bytes": BLOCK, "version": None,
        **changes,
    }  # fmt: skip
    document = FORMAT + (json.dumps(fields).encode() if line is None else line) + b"\n" + rest
    return document + block_digest(document)


HOSTILE_POINTERS = [
    *(hostile(line) for line in (b"{", b"[]", b"[" * 100_000)),
    *(hostile(size=size) for size in (int("9" * 4000), -1, 1 << 60)),
    *(hostile(block_bytes=n_bytes) for n_bytes in (0, 1 << 40)),
    *(hostile(version=version) for version in ("../../../../etc/passwd".ljust(32, "0"), "0" * 32)),
    hostile(identifier="b"),
    hostile(sha256="../../etc/passwd"),
    hostile(rest=b""),
    b" " * ((4 << 20) + 2),
]


def test_a_hostile_pointer_is_an_error_of_ours(connector: FsspecStorageConnector, root: Path) -> None:
    for document in HOSTILE_POINTERS:
        connector.set_resource("a", b"small")
        assert content(connector, "a") == b"small"
        pointer_file(root, "a").write_bytes(document)

        with pytest.raises(DatasetFileCorruptError, match="'a'"):
            content(connector, "a")
    connector.set_resource("b", BIG)
    with pytest.raises(DatasetFileCorruptError):  # as it cannot be known which parts are needed
        connector.collect_garbage(0)


# ---------------------------------------------------------------------- replaced, deleted, put there by others


def test_a_reader_whose_bytes_were_collected_is_told(connector: FsspecStorageConnector) -> None:
    connector.set_resource("a", BIG)
    with connector.get_resource("a") as resource:
        connector.set_resource("a", b"new")
        connector.collect_garbage(0)

        with pytest.raises(ResourceChangedError):
            resource.read()


def test_what_another_tool_put_there_is_read_listed_and_deleted(s3: FsspecStorageConnector) -> None:
    for name, data in {"plain/a.bin": BIG, "plain/empty": b"", "b": b"b", ".hidden": b"", "not/a/na~me": b""}.items():
        s3._files.put(name, data)

    assert s3.list_resources() == ["b", "plain/a.bin", "plain/empty"]
    assert s3.list_resources("plain/a") == ["plain/a.bin"]
    assert s3.has_resource("plain/empty")
    assert content(s3, "plain/a.bin") == BIG
    assert content(s3, "plain/empty") == b""
    assert (s3.stat("b").size, s3.stat("b").sha256) == (1, None)
    s3.set_resource("b", b"ours")
    assert content(s3, "b") == b"ours"
    for identifier in ("b", "plain/a.bin", "plain/empty"):
        s3.delete_resource(identifier)
    assert s3.list_resources() == []


def test_the_digest_of_what_another_tool_put_there_is_known_once_it_was_verified(connector: FsspecStorageConnector) -> None:
    connector._files.put("plain", BIG)
    sha256 = hashlib.sha256(BIG).hexdigest()

    assert connector.verify_resource("plain").sha256 == sha256

    assert connector.stat("plain").sha256 == sha256
    with connector.get_resource("plain") as resource:
        assert resource.sha256 == sha256
    connector._files.put("plain", b"another")
    assert connector.stat("plain").sha256 is None
    connector.delete_resource("plain")
    assert connector._files.files("") == []


def test_what_another_tool_replaces_is_not_mixed(s3: FsspecStorageConnector) -> None:
    s3._files.put("plain", BIG)
    with s3.get_resource("plain") as resource:
        assert resource.read(10) == BIG[:10]
        s3._files.put("plain", bytes(reversed(BIG)))

        with pytest.raises(ResourceChangedError):
            resource.read()


# ---------------------------------------------------------------------- garbage


def test_garbage_is_collected_after_its_grace(connector: FsspecStorageConnector, root: Path) -> None:
    connector.set_resource("a", BIG)
    connector.set_resource("b", PART)
    connector.delete_resource("a")

    assert connector.collect_garbage(3600) == []
    assert [garbage.size for garbage in connector.collect_garbage(0, dry_run=True)] == [PART_BYTES, 300_000]
    assert len(part_files(root)) == 3
    assert [garbage.size for garbage in connector.collect_garbage(0)] == [PART_BYTES, 300_000]
    assert connector.collect_garbage(0) == []
    assert content(connector, "b") == PART


def test_an_upload_whose_last_part_is_young_is_left_alone(connector: FsspecStorageConnector, root: Path) -> None:
    connector.set_resource("a", BIG)
    pointer_file(root, "a").unlink()  # as before its publication
    first, last = part_files(root)
    os.utime(first, (0, 0))

    assert connector.collect_garbage(60) == []
    os.utime(last, (0, 0))
    assert len(connector.collect_garbage(60)) == 2


# ---------------------------------------------------------------------- leases


def test_a_lease_whose_holder_died_lapses_by_observation(
    connector: FsspecStorageConnector, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "LIFE_SECONDS", 0.1)
    with connector.lease("a") as dead:
        assert dead.acquire()
        (lease_file,) = (root / ".data_stack/leases").iterdir()
        nonce = lease_file.read_bytes().split()[0]
    lease_file.write_bytes(nonce + b" 7 elsewhere-1-1")  # as if it had been killed
    os.utime(lease_file, (0, 4e9))  # whatever its clock said

    with connector.lease("a") as waiting:
        assert not waiting.acquire()
        lease_file.write_bytes(nonce + b" 8 elsewhere-1-1")  # a sign of life
        time.sleep(0.15)
        assert not waiting.acquire()
        time.sleep(0.15)
        assert waiting.acquire()

    assert not lease_file.exists()


def test_a_held_lease_beats_and_ends_with_its_block(
    connector: FsspecStorageConnector, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.02)
    with connector.lease("a") as lease:
        assert lease.acquire()
        (lease_file,) = (root / ".data_stack/leases").iterdir()
        first = lease_file.read_bytes()
        deadline = time.monotonic() + 10
        while lease_file.read_bytes() in (first, b"") and time.monotonic() < deadline:
            time.sleep(0.01)

        assert lease_file.read_bytes() != first
    assert not lease_file.exists()
    assert not [thread for thread in threading.enumerate() if thread.name == "data_stack-lease"]


# ---------------------------------------------------------------------- reading only


def test_a_read_only_store_is_not_written(s3: FsspecStorageConnector, s3_server: S3Server) -> None:
    s3.set_resource("a", BIG)
    s3._files.put("plain", b"plain")
    url, bucket = s3._configuration[0], s3._configuration[0].split("/")[2]
    reader = FsspecStorageConnector(url, read_only=True, **s3_server.options())
    before = s3_server.client.list_objects_v2(Bucket=bucket)["Contents"]

    assert content(reader, "a") == BIG
    assert reader.list_resources() == ["a", "plain"]
    assert reader.verify_resource("a").size == len(BIG)
    assert reader.collect_garbage(0, dry_run=True) == []
    with reader.lease("a") as lease:
        assert lease.acquire()
    writes: list[Callable[[], object]] = [
        lambda: reader.set_resource("b", b""),
        lambda: reader.set_resource("b", [b""]),
        lambda: reader.delete_resource("a"),
        reader.collect_garbage,
    ]
    for write in writes:
        with pytest.raises(ReadOnlyStorageError):
            write()

    assert s3_server.client.list_objects_v2(Bucket=bucket)["Contents"] == before


# ---------------------------------------------------------------------- a server that is slow, lost or silent


def test_a_publish_whose_answer_is_lost_is_found_to_be_done_or_said_not_to_be_known(
    connector: FsspecStorageConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = connector._files.put

    def lose(path: str, data: bytes, *, arrives: bool) -> None:
        if arrives:
            put(path, data)
        raise StorageUnavailableError("the server broke off")

    connector.set_resource("a", b"old")
    monkeypatch.setattr(connector._files, "put", partial(lose, arrives=True))
    connector.set_resource("a", b"new")
    monkeypatch.setattr(connector._files, "put", partial(lose, arrives=False))
    with pytest.raises(StorageUnavailableError, match="unknown whether it was published"):
        connector.set_resource("a", b"newer")

    assert content(connector, "a") == b"new"


@pytest.mark.parametrize("is_listening", [False, True], ids=["nobody there", "silent"])
def test_every_call_ends_within_its_timeout_if_the_server_does_not_answer(s3_server: S3Server, is_listening: bool) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        port = listener.getsockname()[1]
        if not is_listening:
            listener.close()
        connector = FsspecStorageConnector("s3://bucket", timeout_seconds=0.25, **s3_server.options(port=port))
        calls: list[Callable[[], object]] = [
            lambda: connector.has_resource("a"),
            lambda: connector.get_resource("a"),
            lambda: connector.set_resource("a", b"a"),
            lambda: connector.set_resource("a", PART),
            connector.list_resources,
        ]
        for call in calls:
            start = time.monotonic()

            with pytest.raises(StorageUnavailableError, match="s3://bucket"):
                call()
            assert time.monotonic() - start < 25


# ---------------------------------------------------------------------- processes, left-overs


# ---------------------------------------------------------------------- secrets


# ---------------------------------------------------------------------- URLs


def test_a_url_gives_options_and_contacts_nothing() -> None:
    connector = FsspecStorageConnector.from_url(
        "s3://bucket/a/b/?endpointUrl=http://127.0.0.1:1&region=eu-1&anonymous=true&readOnly=true&timeoutSeconds=2.5"
    )

    assert repr(connector) == "FsspecStorageConnector('s3://bucket/a/b')"
    options = {"endpoint_url": "http://127.0.0.1:1", "client_kwargs": {"region_name": "eu-1"}, "anon": True}
    assert connector._configuration == ("s3://bucket/a/b/", True, 2.5, options)
    assert pickle.loads(pickle.dumps(connector))._configuration == connector._configuration


@pytest.mark.parametrize(
    "url",
    [
        "bucket", "s3:///", "nope://x", "s3://b?unknown=1", "s3://b?readOnly=perhaps", "s3://b?timeoutSeconds=nan",
        "s3://b?region=", "memory://x?endpointUrl=y", "s3://[b",
    ],
)  # fmt: skip
def test_a_url_that_names_no_store_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError):
        FsspecStorageConnector.from_url(url)
