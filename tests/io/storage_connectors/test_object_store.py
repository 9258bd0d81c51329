"""What FsspecStorageConnector promises beyond the contract: damage, garbage, other tools, lost
answers, silence, secrets.
"""

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
from urllib.parse import quote

import paramiko
import pytest
from process_harness import eventually, frozen, run_python, until
from s3_server import S3Server
from sftp_server import PASSWORD, USER, SFTPServer

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    ResourceChangedError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.integrity import BLOCK_BYTES, block_digest
from data_stack.io.storage_connectors import heartbeat
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
from data_stack.io.storage_connectors.object_store.pointer import FORMAT, PART_BYTES
from data_stack.testing.storage_connector import content

PART = random.Random(1).randbytes(PART_BYTES)
BIG = PART + random.Random(2).randbytes(300_000)
LARGE = os.urandom(1 << 20) * 5


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


def test_several_parts_are_read_whole_and_in_ranges(
    connector: FsspecStorageConnector,
) -> None:
    size = 2 * PART_BYTES + 5
    data = random.Random(size).randbytes(size)

    connector.set_resource("a", data)

    edges = [
        offset
        for edge in (0, BLOCK_BYTES, PART_BYTES, size)
        for offset in (edge - 2, edge)
        if 0 <= offset <= size
    ]
    assert hashlib.sha256(content(connector, "a")).digest() == hashlib.sha256(data).digest()
    assert connector.read_ranges("a", [(offset, 5) for offset in edges]) == [
        data[offset : offset + 5] for offset in edges
    ]


# ---------------------------------------------------------------------- damage


def hostile(
    line: bytes | None = None, rest: bytes = block_digest(b"small") + b"small", **changes: Any
) -> bytes:
    """A pointer with a right digest of itself and wrong fields."""
    fields = {
        "identifier": "a", "size": 5, "sha256": hashlib.sha256(b"small").hexdigest(), "block_bytes": BLOCK_BYTES, "version": None,
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


def test_a_hostile_pointer_is_an_error_of_ours(
    connector: FsspecStorageConnector, root: Path
) -> None:
    for document in HOSTILE_POINTERS:
        connector.set_resource("a", b"small")
        assert content(connector, "a") == b"small"
        pointer_file(root, "a").write_bytes(document)

        with pytest.raises(DatasetFileCorruptError, match="'a'"):
            content(connector, "a")
    connector.set_resource("b", BIG)
    with pytest.raises(DatasetFileCorruptError):  # as it cannot be known which parts are needed
        connector.collect_garbage(0)


# ----------------------------------------------------------- replaced, deleted, put there by others


def test_what_another_tool_put_there_is_read_listed_and_deleted(s3: FsspecStorageConnector) -> None:
    for name, data in {
        "plain/a.bin": BIG,
        "plain/empty": b"",
        "b": b"b",
        ".hidden": b"",
        "not/a/na~me": b"",
    }.items():
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


def test_the_digest_of_a_plain_file_is_known_once_verified(
    connector: FsspecStorageConnector,
) -> None:
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


def test_an_upload_whose_last_part_is_young_is_left_alone(
    connector: FsspecStorageConnector, root: Path
) -> None:
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

        assert until(lambda: lease_file.read_bytes() not in (first, b""))
    assert not lease_file.exists()
    assert not [thread for thread in threading.enumerate() if thread.name == "data_stack-lease"]


# ------------------------------------------------------------ a server that is slow, lost or silent


def test_a_lost_answer_to_publishing_is_looked_up(
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
def test_every_call_ends_within_its_timeout(s3_server: S3Server, is_listening: bool) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        port = listener.getsockname()[1]
        if not is_listening:
            listener.close()
        connector = FsspecStorageConnector(
            "s3://bucket", timeout_seconds=0.25, **s3_server.options(port=port)
        )
        calls: list[Callable[[], object]] = [
            lambda: connector.has_resource("a"),
            lambda: connector.get_resource("a"),
            lambda: connector.set_resource("a", b"a"),
            lambda: connector.set_resource("a", PART),
            connector.list_resources,
        ]
        check_all_end(calls, "s3://bucket")


def check_all_end(calls: list[Callable[[], object]], match: str) -> None:
    for call in calls:
        with pytest.raises(StorageUnavailableError, match=match):
            call()


# ---------------------------------------------------------------------- URLs


def test_a_url_gives_options_and_contacts_nothing() -> None:
    connector = FsspecStorageConnector.from_url(
        "s3://bucket/a/b/?endpointUrl=http://127.0.0.1:1&region=eu-1&anonymous=true&readOnly=true&timeoutSeconds=2.5"
    )

    assert repr(connector) == "FsspecStorageConnector('s3://bucket/a/b')"
    for same_connector in (connector, pickle.loads(pickle.dumps(connector))):
        make, arguments = same_connector.__reduce__()
        assert arguments == ("s3://bucket/a/b/",)
        assert make.keywords == {
            "read_only": True,
            "timeout_seconds": 2.5,
            "endpoint_url": "http://127.0.0.1:1",
            "client_kwargs": {"region_name": "eu-1"},
            "anon": True,
        }


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


# ---------------------------------------------------------------------- SFTP


@pytest.fixture
def url(sftp_server: SFTPServer) -> str:
    return f"sftp://127.0.0.1/{os.urandom(6).hex()}"


@pytest.fixture
def sftp(sftp_server: SFTPServer, url: str) -> FsspecStorageConnector:
    return FsspecStorageConnector(url, **sftp_server.options())


# ---------------------------------------------------------------------- whom it trusts


def test_a_server_that_is_not_known_is_refused_with_advice(
    sftp_server: SFTPServer, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    connector = FsspecStorageConnector(url, **{**sftp_server.options(), "known_hosts": None})

    with pytest.raises(StorageError, match="ssh-keyscan") as caught:
        connector.set_resource("a", b"a")

    assert not isinstance(caught.value, StorageUnavailableError)  # trying again does not help
    assert PASSWORD not in str(caught.value)


def test_a_server_with_another_key_is_refused(
    sftp_server: SFTPServer, url: str, tmp_path: Path
) -> None:
    key = paramiko.ECDSAKey.generate()
    (tmp_path / "known_hosts").write_text(
        f"[127.0.0.1]:{sftp_server.port} {key.get_name()} {key.get_base64()}\n"
    )

    with pytest.raises(StorageError, match="does not match"):
        FsspecStorageConnector(
            url, **{**sftp_server.options(), "known_hosts": tmp_path / "known_hosts"}
        ).has_resource("a")


# ---------------------------------------------------------------------- secrets


def test_a_login_in_the_url_is_decoded_and_shown_nowhere(sftp_server: SFTPServer, url: str) -> None:
    place = f"sftp://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{sftp_server.port}/{url.rpartition('/')[2]}"
    options = f"?knownHosts={sftp_server.known_hosts}"
    wrong = FsspecStorageConnector.from_url(place.replace("canary", "wrong-canary") + options)

    connector = FsspecStorageConnector.from_url(place + options)
    connector.set_resource("a", b"a")
    with pytest.raises(StorageError, match="Check the credentials") as caught:
        wrong.has_resource("a")

    assert content(connector, "a") == b"a"
    assert "canary" not in f"{connector!r} {wrong!r} {caught.value!r} {caught.value}"
    assert not isinstance(caught.value, StorageUnavailableError)


# ---------------------------------------------------------------------- files


def test_garbage_collection_removes_what_a_killed_writer_left(
    sftp: FsspecStorageConnector, sftp_server: SFTPServer, url: str
) -> None:
    program = (
        "import os, sys; from data_stack.io.storage_connectors.owners import this_process;"
        "open(os.path.join(sys.argv[1], this_process() + '.1'), 'x')"
    )
    sftp.set_resource("a", b"a")
    folder = sftp_server.folder / url.rpartition("/")[2] / ".data_stack/temporaries"
    (folder / "elsewhere-1-1.1").write_bytes(b"of a process that may live")

    run_python("-c", program, folder)
    removed = sftp.collect_garbage()

    assert len(removed) == 1
    assert [file.name for file in folder.iterdir()] == ["elsewhere-1-1.1"]


# ---------------------------------------------------------------------- connections


def test_a_lost_connection_is_made_anew(sftp: FsspecStorageConnector) -> None:
    sftp.set_resource("a", LARGE)
    with sftp.get_resource("a") as resource:
        beginning = resource.read(10)
        sftp._files._file_system._connect_once().file_system.client.close()

        assert beginning + resource.read() == LARGE
    sftp.set_resource("b", b"b")
    assert content(sftp, "b") == b"b"


def test_every_call_ends_in_time_with_a_silent_server(
    tmp_path: Path,
) -> None:
    (tmp_path / "served").mkdir()
    with (
        SFTPServer(tmp_path / "served") as server,
        socket.create_server(("127.0.0.1", 0), backlog=64) as listener,
    ):
        options = server.options()
        blind = FsspecStorageConnector(
            "sftp://127.0.0.1/a",
            timeout_seconds=0.15,
            **{**options, "port": listener.getsockname()[1]},
        )
        connector = FsspecStorageConnector("sftp://127.0.0.1/a", timeout_seconds=0.3, **options)
        FsspecStorageConnector("sftp://127.0.0.1/a", **options).set_resource("a", LARGE)
        opened = eventually(lambda: connector.get_resource("a"), StorageUnavailableError)
        with opened as resource, frozen(server.pid):
            calls: list[Callable[[], object]] = [resource.read]
            for each in (blind, connector):
                calls += [
                    partial(each.has_resource, "a"),
                    partial(each.set_resource, "a", LARGE),
                    each.list_resources,
                ]
            check_all_end(calls, "sftp://")


def test_the_former_module_warns_that_it_moved() -> None:
    with pytest.warns(DeprecationWarning, match="data_stack.FsspecStorageConnector"):
        from data_stack.io.storage_connectors.fsspec import FsspecStorageConnector as former

    assert former is FsspecStorageConnector
