"""What only files can get wrong: half writes, links, full disks, left-overs, names in each other's way."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import resource as limits
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from data_stack.exception import (
    ChecksumMismatchError,
    DataStackError,
    MaliciousFilePathError,
    ResourceNotFoundError,
    StorageError,
    StorageFullError,
)
from data_stack.io.integrity import digests_of_blocks
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnectorFactory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def connector(root: Path) -> FileStorageConnector:
    return FileStorageConnector(str(root))


def content(connector: FileStorageConnector, identifier: str) -> bytes:
    with connector.get_resource(identifier) as resource:
        return resource.read()


def note_on(root: Path, identifier: str) -> Path:
    return root / ".data_stack/digests" / f"{identifier}~"


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_resource_is_a_plain_file_of_its_name(connector: FileStorageConnector, root: Path) -> None:
    connector.set_resource("mnist/raw/labels.gz", io.BytesIO(b"abc"))

    assert (root / "mnist/raw/labels.gz").read_bytes() == b"abc"
    assert isinstance(StorageConnectorFactory.get_file_storage_connector(str(root)), FileStorageConnector)
    assert connector.root_path == str(root)


def test_nothing_is_written_by_looking(connector: FileStorageConnector, root: Path) -> None:
    assert not connector.has_resource("a")
    assert connector.list_resources() == []
    with pytest.raises(ResourceNotFoundError):
        connector.stat("a")

    assert not root.exists()


def test_an_iterable_that_fails_half_way_leaves_what_was_there(connector: FileStorageConnector, root: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"first half"
        assert not connector.has_resource("new")
        raise RuntimeError("source went away")

    connector.set_resource("old", b"old")
    for identifier in ("new", "old"):
        with pytest.raises(RuntimeError, match="went away"):
            connector.set_resource(identifier, broken())

    assert content(connector, "old") == b"old"
    assert not connector.has_resource("new")
    assert files_below(root) == {"old", ".data_stack/digests/old~"}


def test_a_file_too_large_for_the_disk_is_our_error_and_the_old_stays(connector: FileStorageConnector, root: Path) -> None:
    connector.set_resource("x", b"old")
    soft, hard = limits.getrlimit(limits.RLIMIT_FSIZE)
    # SIGXFSZ is ignored by Python, so the write itself fails, as on a full disk.
    limits.setrlimit(limits.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StorageFullError, match=r"could not store 'x'.*bytes are free.*make room"):
            connector.set_resource("x", io.BytesIO(bytes(3_000_000)))
        with pytest.raises(StorageFullError), connector.create("y") as writer:
            for _ in range(300):
                writer.write(b"1" * 1000)
    finally:
        limits.setrlimit(limits.RLIMIT_FSIZE, (soft, hard))

    assert content(connector, "x") == b"old"
    assert files_below(root) == {"x", ".data_stack/digests/x~"}


def test_a_store_that_cannot_be_written_is_our_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")

    with pytest.raises(StorageError, match="could not store 'a'"):
        FileStorageConnector(tmp_path / "file").set_resource("a", b"x")


def test_storing_a_resource_from_itself_keeps_it(connector: FileStorageConnector) -> None:
    connector.set_resource("q", b"data")
    with connector.get_resource("q") as resource:
        connector.set_resource("q", resource)

    assert content(connector, "q") == b"data"


def test_a_reader_keeps_the_version_that_it_opened(connector: FileStorageConnector) -> None:
    connector.set_resource("x", b"old " * 100_000)
    with connector.get_resource("x") as resource:
        beginning = resource.read(4)
        connector.set_resource("x", b"new " * 100_000)
        assert (beginning + resource.read()) == b"old " * 100_000
        connector.delete_resource("x")
        assert resource.read_at(0, 4) == b"old "


def test_a_reader_during_overwrites_sees_one_version_or_another(connector: FileStorageConnector) -> None:
    versions = [bytes([65 + i]) * 300_000 for i in range(4)]
    connector.set_resource("x", versions[0])
    stop = threading.Event()

    def overwrite() -> None:
        i = 0
        while not stop.is_set():
            i += 1
            connector.set_resource("x", versions[i % 4])

    thread = threading.Thread(target=overwrite)
    thread.start()
    try:
        seen = [content(connector, "x") for _ in range(150)]
    finally:
        stop.set()
        thread.join()

    assert all(version in versions for version in seen)


# ---------------------------------------------------------------------- containment


def test_a_neighbour_whose_name_begins_alike_is_out_of_reach(connector: FileStorageConnector, tmp_path: Path) -> None:
    for identifier in ("../data-evil/f", str(tmp_path / "data-evil" / "f"), "/etc/passwd"):
        with pytest.raises(DataStackError):
            connector.set_resource(identifier, b"boo")
        with pytest.raises(DataStackError):
            connector.get_resource(identifier)

    assert files_below(tmp_path) == set()


def test_an_absolute_identifier_below_the_root_is_tolerated(connector: FileStorageConnector, root: Path) -> None:
    connector.set_resource(str(root / "ham10k/raw.h5"), b"x")

    assert connector.has_resource("ham10k/raw.h5")
    assert content(connector, str(root / "ham10k/raw.h5")) == b"x"
    with pytest.raises(DataStackError):
        connector.has_resource(str(root) + "/../outside")


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    connector = FileStorageConnector(tmp_path / "link")

    connector.set_resource("a/b", b"x")

    assert (tmp_path / "real/a/b").read_bytes() == b"x"
    assert connector.list_resources() == ["a/b"]


def test_links_that_stay_inside_are_followed_and_others_refused(
    connector: FileStorageConnector, root: Path, tmp_path: Path
) -> None:
    connector.set_resource("big/file", b"inside")
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "folder").symlink_to("big")
    (root / "file").symlink_to("big/file")
    (root / "out").symlink_to(tmp_path)
    (root / "out_file").symlink_to(tmp_path / "secret")
    (root / "loop").symlink_to("loop")

    assert content(connector, "folder/file") == content(connector, "file") == b"inside"
    connector.set_resource("folder/second", b"2")
    assert (root / "big/second").read_bytes() == b"2"
    for identifier in ("out/secret", "out_file", "loop/x", "out/new"):
        with pytest.raises(MaliciousFilePathError):
            connector.get_resource(identifier)
        if identifier != "out_file":
            with pytest.raises(MaliciousFilePathError):
                connector.set_resource(identifier, b"overwritten")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "new").exists()


def test_a_folder_swapped_for_a_link_never_leads_out(connector: FileStorageConnector, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"SECRET")
    connector.set_resource("d/f", b"inside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(root / "d", root / "kept")
            os.symlink(outside, root / "d")
            os.unlink(root / "d")
            os.rename(root / "kept", root / "d")

    thread = threading.Thread(target=swap)
    thread.start()
    read, deadline = 0, time.monotonic() + 1.5
    try:
        while time.monotonic() < deadline:
            try:
                assert content(connector, "d/f") == b"inside"
                read += 1
            except DataStackError:
                pass
    finally:
        stop.set()
        thread.join()

    assert read > 0
    assert (outside / "f").read_bytes() == b"SECRET"


def test_folders_devices_and_pipes_are_no_resources(connector: FileStorageConnector, root: Path) -> None:
    connector.set_resource("a/b/c", b"x")
    os.mkfifo(root / "fifo")

    assert not connector.has_resource("a/b")
    assert not connector.has_resource("fifo")
    with pytest.raises(ResourceNotFoundError):
        connector.get_resource("a/b")
    with pytest.raises(ResourceNotFoundError):
        connector.get_resource("fifo")
    assert connector.list_resources() == ["a/b/c"]


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a")])
def test_a_resource_in_the_way_of_another_is_our_error(connector: FileStorageConnector, first: str, second: str) -> None:
    connector.set_resource(first, b"1")

    with pytest.raises(StorageError, match=f"could not store '{second}'"):
        connector.set_resource(second, b"2")

    assert connector.list_resources() == [first]
    assert content(connector, first) == b"1"


# ---------------------------------------------------------------------- digests


def test_the_digest_is_that_of_the_whole_however_it_was_written(connector: FileStorageConnector) -> None:
    expected = b"HEAD" + bytes(2_500_000) + b"tail"
    with connector.create("x") as writer:
        writer.write(b"????")
        writer.write(bytes(2_500_000))
        writer.write(memoryview(b"tail"))
        writer.seek(0)
        writer.write(b"HEAD")

    info = connector.stat("x")
    assert (info.size, info.sha256) == (len(expected), hashlib.sha256(expected).hexdigest())
    assert info.blocks == digests_of_blocks(expected)
    assert connector.verify_resource("x").blocks == info.blocks


def test_a_file_that_other_means_put_there_has_no_recorded_digest_until_it_was_read(
    connector: FileStorageConnector, root: Path
) -> None:
    root.mkdir()
    (root / "by_hand").write_bytes(b"abc")

    assert connector.stat("by_hand").sha256 is None
    assert connector.verify_resource("by_hand").sha256 == hashlib.sha256(b"abc").hexdigest()
    assert connector.stat("by_hand").sha256 == hashlib.sha256(b"abc").hexdigest()  # known, having been read


def test_verify_names_the_damaged_block(connector: FileStorageConnector, root: Path) -> None:
    connector.set_resource("x", bytes(5 << 20))
    status = (root / "x").stat()
    with open(root / "x", "r+b") as file:
        file.seek((3 << 20) + 17)
        file.write(b"\x01")
    os.utime(root / "x", ns=(status.st_atime_ns, status.st_mtime_ns))  # as a failing disk would do it: no trace

    with pytest.raises(ChecksumMismatchError, match=r"'x' .*damaged in blocks \[48\] of 64 KiB"):
        connector.verify_resource("x")


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"size": "x"}', b"\xff\xfe", b'{"size":3,"mtime_ns":null,"inode":[],"sha256":7}']
)
def test_a_damaged_record_only_makes_the_digest_unknown(connector: FileStorageConnector, root: Path, damage: bytes) -> None:
    connector.set_resource("x", b"abc")
    note_on(root, "x").write_bytes(damage)

    assert connector.stat("x").sha256 is None
    assert content(connector, "x") == b"abc"


# ---------------------------------------------------------------------- left-overs


def test_permissions_follow_the_umask_and_temporaries_are_private(connector: FileStorageConnector, root: Path) -> None:
    before = os.umask(0o027)
    try:
        with connector.create("x") as writer:
            writer.write(b"abc")
            (temporary,) = [path for path in root.iterdir() if path.name.startswith(".~")]
            assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    finally:
        os.umask(before)

    assert stat.S_IMODE((root / "x").stat().st_mode) == 0o640


def test_what_a_killed_writer_left_is_removed_and_a_live_writer_keeps_its_own(
    connector: FileStorageConnector, root: Path
) -> None:
    program = f"""
import os, signal
from data_stack.io.storage_connectors import FileStorageConnector
with FileStorageConnector({str(root)!r}).create("d/x") as writer:
    writer.write(b"half")
    writer.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    assert len(files_below(root)) == 1

    with connector.create("d/y") as writer:
        writer.write(b"whole")
        removed = connector.remove_abandoned("d/")

    assert len(removed) == 1
    assert connector.remove_abandoned() == []
    assert connector.list_resources() == ["d/y"]
    assert files_below(root / "d") == {"y"}


def test_temporaries_of_other_machines_are_left_until_they_are_old(connector: FileStorageConnector, root: Path) -> None:
    connector.set_resource("a", b"x")
    foreign = root / ".~0123456789ab-1-2-deadbeef"
    foreign.write_bytes(b"half")
    assert connector.remove_abandoned() == []

    os.utime(foreign, (time.time() - 2 * 24 * 3600,) * 2)

    assert connector.remove_abandoned() == [foreign.name]


def kill_points(program: str, root: Path, check: Callable[[], None]) -> int:
    """Run ``program`` again and again, killed at its first, second, … file-changing event, until it survives."""
    events = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate"}
    prelude = f"""
import os, signal, sys
left = int(sys.argv[1])
def count(event, arguments):
    global left
    if event in {events!r} and (event != "open" or any("data" in str(a) or ".~" in str(a) for a in arguments[:1])):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
"""
    for n in range(1, 200):
        run = subprocess.run([sys.executable, "-c", prelude + program, str(n)], check=False, capture_output=True)
        check()
        if run.returncode == 0:
            return n
        assert run.returncode == -9, run.stderr.decode()
    raise AssertionError("the program never survived")


def test_killed_at_any_point_a_write_shows_the_old_or_the_new(connector: FileStorageConnector, root: Path) -> None:
    program = f"""
from data_stack.io.storage_connectors import FileStorageConnector
connector = FileStorageConnector({str(root)!r})
sys.addaudithook(count)
connector.set_resource("d/x", b"new" * 1000)
"""
    connector.set_resource("d/x", b"old" * 1000)

    def check() -> None:
        info = connector.stat("d/x")
        bytes_now = content(connector, "d/x")
        assert bytes_now in (b"old" * 1000, b"new" * 1000)
        assert info.sha256 in (None, hashlib.sha256(bytes_now).hexdigest())
        connector.remove_abandoned()
        assert not [name for name in files_below(root) if ".~" in name]

    assert kill_points(program, root, check) > 4
    assert content(connector, "d/x") == b"new" * 1000


# ---------------------------------------------------------------------- leases, pickling


def test_a_lease_excludes_others_and_dies_with_its_process(connector: FileStorageConnector, root: Path) -> None:
    program = f"""
from data_stack.io.storage_connectors import FileStorageConnector
with FileStorageConnector({str(root)!r}).lease("mnist") as lease:
    print(lease.acquire(), flush=True)
    input()
"""
    holder = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    with connector.lease("mnist") as lease, connector.lease("other") as other:
        assert (lease.acquire(), other.acquire()) == (False, True)
        holder.kill()
        holder.communicate()
        assert (lease.acquire(), lease.acquire()) == (True, True)
        with FileStorageConnector(root).lease("mnist") as second:
            assert not second.acquire()
    with connector.lease("mnist") as lease:
        assert lease.acquire()


def test_a_connector_pickles_as_its_root(connector: FileStorageConnector) -> None:
    connector.set_resource("x", b"abc")

    again = pickle.loads(pickle.dumps(connector))

    assert (again.root_path, content(again, "x")) == (connector.root_path, b"abc")
    assert len(pickle.dumps(connector)) < 300


def test_the_record_beside_is_plain_data(connector: FileStorageConnector, root: Path) -> None:
    connector.set_resource("x", b"abc")

    record = json.loads(note_on(root, "x").read_bytes().splitlines()[0])

    assert record["sha256"] == hashlib.sha256(b"abc").hexdigest()
