"""What only files can get wrong: links, left-overs, names in each other's way, and files that
something else touched.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from folding_case import fold_case
from full_disk import files_limited
from hypothesis import given
from hypothesis import strategies as st
from process_census import descriptors
from process_harness import flip_file

from data_stack.exception import (
    ChecksumMismatchError,
    DataStackError,
    ResourceNotFoundError,
    StorageConflictError,
    StorageError,
)
from data_stack.io.checked_json import to_checked_json
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnectorFactory
from data_stack.io.storage_connectors.file.digest_notes import DigestNotes, state_of
from data_stack.io.storage_connectors.file.publishing import replace_file
from data_stack.io.storage_connectors.owners import this_machine, this_process
from data_stack.io.storage_connectors.storable import split_into_pieces
from data_stack.testing.comparing import assert_same_bytes
from data_stack.testing.storage_connector import content

DATA = hashlib.shake_128(b"touched").digest(3 * BLOCK_BYTES + 17)


@pytest.fixture
def stored(store: FileStorageConnector) -> FileStorageConnector:
    """A store with the resource d/x."""
    store.set_resource("d/x", DATA)
    return store


@pytest.fixture
def private_files() -> Iterator[None]:
    """A umask that gives others nothing."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("private_files")
def test_a_store_in_the_folder_of_a_group_is_shared(
    store: FileStorageConnector, root: Path
) -> None:
    root.mkdir()
    root.chmod(0o2770)

    store.set_resource("d/1/x", DATA)
    with store.create_resumable("d/1/y", "key") as writer:
        writer.write(DATA)
    with store.lease("d/1") as lease:
        assert lease.acquire()
        modes = {
            path.relative_to(root): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")
        }

    assert {Path("d/1/x"), Path(".data_stack/digests/d/1/x~")} < {*modes}
    assert {path for path in modes if "leases" in path.parts[:-1]}
    assert {
        path: oct(mode)
        for path, mode in modes.items()
        if mode != (0o2770 if (root / path).is_dir() else 0o660)
    } == {}


@pytest.mark.usefixtures("private_files")
@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644)])
def test_a_resource_is_a_plain_file_of_its_name(
    store: FileStorageConnector, root: Path, umask: int, mode: int
) -> None:
    os.umask(umask)
    for number in range(5):
        with (
            store.create_resumable("mnist/raw/labels.gz", "key")
            if number
            else store.create("mnist/a") as writer
        ):
            writer.write(b"abc")
            before = time.time_ns()  # the kernel's clock of files is up to 4 ms late
        assert writer.status.st_mtime_ns >= before
        assert stat.S_IMODE(writer.status.st_mode) == mode

    assert (root / "mnist/raw/labels.gz").read_bytes() == b"abc"
    assert isinstance(
        StorageConnectorFactory.get_file_storage_connector(str(root)), FileStorageConnector
    )
    assert store.root_path == str(root)


# ---------------------------------------------------------------------- containment


def test_an_absolute_identifier_below_the_root_is_tolerated(
    store: FileStorageConnector, root: Path
) -> None:
    store.set_resource(str(root / "ham10k/raw.h5"), b"x")

    assert store.has_resource("ham10k/raw.h5")
    assert content(store, str(root / "ham10k/raw.h5")) == b"x"
    with pytest.raises(DataStackError):
        store.has_resource(str(root) + "/../outside")


def test_only_the_root_may_be_a_link(
    tmp_path: Path,
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "secret").write_bytes(b"secret")
    store = FileStorageConnector(tmp_path / "link")
    store.set_resource("big/file", b"inside")
    links = {
        "folder": "big",
        "file": "big/file",
        "out": str(tmp_path),
        "out_file": str(tmp_path / "secret"),
    }
    for name, target in links.items():
        (tmp_path / "real" / name).symlink_to(target)
    os.mkfifo(tmp_path / "real" / "pipe")
    before = descriptors()

    for identifier in ("folder/file", "file", "out/secret", "out_file", "out/new", "big", "pipe"):
        assert not store.has_resource(identifier)
        with pytest.raises(ResourceNotFoundError):
            store.get_resource(identifier)
    for identifier in ("folder/new", "out/secret", "out/new"):
        with pytest.raises(StorageError):
            store.set_resource(identifier, b"overwritten")
    assert store.list_resources() == ["big/file"]
    assert content(store, "big/file") == b"inside"
    assert descriptors() == before
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("swapped", ["folder", "file"])
def test_a_path_swapped_for_a_link_never_leads_out(
    store: FileStorageConnector, root: Path, tmp_path: Path, swapped: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"SECRET")
    store.set_resource("d/f", b"inside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            if swapped == "folder":
                os.rename(root / "d", root / "kept")
                os.symlink(outside, root / "d")
                os.unlink(root / "d")
                os.rename(root / "kept", root / "d")
            else:  # each in one step
                os.symlink(outside / "f", root / "new")
                os.replace(root / "new", root / "d/f")
                (root / "new").write_bytes(b"inside")
                os.replace(root / "new", root / "d/f")

    thread = threading.Thread(target=swap)
    thread.start()
    read, n_tries, deadline = 0, 0, time.monotonic() + 60
    try:
        while (read == 0 or n_tries < 300) and time.monotonic() < deadline:
            n_tries += 1
            try:
                assert content(store, "d/f") == b"inside"
                read += 1
            except DataStackError:
                pass
    finally:
        stop.set()
        thread.join()

    assert read > 0
    assert (outside / "f").read_bytes() == b"SECRET"


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a")])
def test_a_resource_in_the_way_of_another_is_our_error(
    store: FileStorageConnector, first: str, second: str
) -> None:
    store.set_resource(first, b"1")

    with pytest.raises(StorageError, match=f"could not store '{second}'"):
        store.set_resource(second, b"2")

    assert store.list_resources() == [first]
    assert content(store, first) == b"1"


# ---------------------------------------------------------------------- digests


def test_a_foreign_file_has_no_digest_until_it_is_verified(
    store: FileStorageConnector, root: Path
) -> None:
    root.mkdir()
    (root / "by_hand").write_bytes(b"abc")

    assert store.stat("by_hand").sha256 is None
    assert store.verify_resource("by_hand").sha256 == hashlib.sha256(b"abc").hexdigest()
    assert (
        store.stat("by_hand").sha256 == hashlib.sha256(b"abc").hexdigest()
    )  # known, having been read


def test_a_damaged_record_only_makes_the_digest_unknown(
    store: FileStorageConnector, root: Path
) -> None:
    store.set_resource("x", b"abc")
    note_on_it = root / ".data_stack/digests/x~"
    note = note_on_it.read_bytes()
    earlier_format = b'{"format": 3, "size": 3, "sha256": "", "facts": []}\n' + bytes(16)
    for damage in (
        b"",
        b"{",
        note[:-1],
        note[:20] + b"?" + note[21:],
        to_checked_json({"size": 3}),
        earlier_format,
    ):
        note_on_it.write_bytes(damage)

        assert store.stat("x").sha256 is None
        assert content(store, "x") == b"abc"


# ---------------------------------------------------------------------- left-overs


def test_temporaries_of_other_machines_are_left_until_they_are_old(
    store: FileStorageConnector, root: Path
) -> None:
    store.set_resource("a", b"x")
    os.utime(root / "a", (0, 0))
    name = ".~0123456789ab-1-2-deadbeef"
    for folder in ("d", "e", "."):
        (root / folder).mkdir(exist_ok=True)
        (root / folder / name).write_bytes(b"half")
    assert store.remove_abandoned() == []

    for folder in ("d", "e", "."):
        os.utime(root / folder / name, (time.time() - 2 * 24 * 3600,) * 2)

    assert store.remove_abandoned("d/x") == [f"d/{name}"]
    assert sorted(store.remove_abandoned()) == [name, f"e/{name}"]
    assert store.list_resources() == ["a"]
    store.set_resource("e", b"in the place of an empty folder")


def test_a_temporary_stays_while_its_writer_lives(store: FileStorageConnector, root: Path) -> None:
    store.set_resource("a", b"x")
    alive, dead = (
        root / f".~{owner}-deadbeef" for owner in (this_process(), f"{this_machine()}-1-0")
    )
    for path in (alive, dead):
        path.write_bytes(b"half")
    os.utime(alive, (0, 0))

    assert [garbage.name for garbage in store.collect_garbage(dry_run=True)] == [dead.name]
    assert store.remove_abandoned() == [dead.name]
    assert alive.exists()


def test_bytes_written_in_any_order_are_hashed(
    store: FileStorageConnector,
) -> None:
    # As many bytes as the file has, others than it has.
    with store.create("x") as writer:
        for piece in (b"abc", b"xyz"):
            writer.seek(0)
            assert writer.write(piece) == 3
    with store.create("y") as cut:
        cut.write(b"abcdef")
        cut.truncate(3)
        assert (cut.write(b"ghi"), cut.readable()) == (3, True)

    for identifier, expected in (("x", b"xyz"), ("y", b"abc\0\0\0ghi")):
        assert content(store, identifier) == expected
        assert store.stat(identifier).sha256 == hashlib.sha256(expected).hexdigest()


def test_a_finished_writer_takes_no_bytes(store: FileStorageConnector, root: Path) -> None:
    with store.create("x") as writer:
        writer.write(b"abc")
        writer.flush()
        writer.close()
        writer.flush()
        assert writer.closed
        with pytest.raises(ValueError, match="after it was finished"):
            writer.write(b"d")
    with pytest.raises(KeyError), store.create("x") as writer:
        writer.write(b"half")
        raise KeyError

    assert [path.read_bytes() for path in root.iterdir() if path.is_file()] == [b"abc"]


def test_a_prefix_never_leads_out(store: FileStorageConnector, root: Path) -> None:
    for name in ("a/b/1", "a/b/2", "a/c", "other/1"):
        store.set_resource(name, b"")
    (root / "link").symlink_to("a")

    assert store.list_resources("a/b/") == ["a/b/1", "a/b/2"]
    assert store.list_resources("a/b/2") == ["a/b/2"]
    for prefix in (
        "link/",
        "link/b/",
        f"{root}/",
        f"{root}/a/",
        "/etc/",
        "../",
        "a/../a/",
        "missing/",
    ):
        assert store.list_resources(prefix) == []
    with pytest.raises(DataStackError, match="beginning of an identifier"):
        store.list_resources("a\nb")


@given(pieces=st.lists(st.binary(max_size=9)), piece_bytes=st.integers(1, 5))
def test_bytes_are_cut_into_pieces_of_one_size(pieces: list[bytes], piece_bytes: int) -> None:
    whole = b"".join(pieces)

    assert [*split_into_pieces(pieces, piece_bytes)] == [
        whole[start : start + piece_bytes] for start in range(0, len(whole), piece_bytes)
    ]


# ---------------------------------------------------------------------- damage


@pytest.mark.parametrize("keep_time", [False, True])
def test_a_changed_file_is_found_by_verifying(
    stored: FileStorageConnector, root: Path, keep_time: bool
) -> None:
    flip_file(root / "d/x", 8 * (2 * BLOCK_BYTES + 5), keep_time=keep_time)

    assert stored.stat("d/x").sha256 is None
    with stored.get_resource("d/x") as resource:
        assert resource.sha256 is None
    for _ in range(2):
        with pytest.raises(ChecksumMismatchError):
            stored.verify_resource("d/x")
    stored.move_resource("d/x", "e/y")
    with pytest.raises(ChecksumMismatchError):
        stored.verify_resource("e/y")


def test_what_verify_found_damaged_is_not_trusted_any_more(
    stored: FileStorageConnector, root: Path
) -> None:
    # The kernel lets nobody damage a file without a trace, as a disk does: so its note is made to
    # agree.
    flip_file(root / "d/x", 8 * BLOCK_BYTES)
    notes = DigestNotes(str(root / ".data_stack/digests"))
    noted: Any = notes.read("d/x")
    notes.write("d/x", replace(noted, state=state_of((root / "d/x").stat())))
    assert stored.stat("d/x").sha256 is not None

    with pytest.raises(ChecksumMismatchError):
        stored.verify_resource("d/x")

    assert stored.stat("d/x").sha256 is None
    with pytest.raises(ChecksumMismatchError):
        stored.verify_resource("d/x")


# ---------------------------------------------------------------------- no damage


@pytest.mark.parametrize(
    "touch",
    [
        "touch store/d/x",
        "chmod 600 store/d/x",
        "cp -r store copy; rm -r store; mv copy store",
        "tar -cf a.tar store; rm -r store; tar -xf a.tar",
    ],
)
def test_an_intact_file_is_known_again_once_verified(
    stored: FileStorageConnector, root: Path, touch: str
) -> None:
    subprocess.run(["/bin/sh", "-ec", touch], check=True, cwd=root.parent)
    known_before = stored.stat("d/x").sha256

    with stored.get_resource("d/x") as resource:
        assert_same_bytes(resource.read(), DATA)
        known_read = resource.sha256
    stored.verify_resource("d/x")

    assert (known_before, known_read) == (None, None)
    assert stored.stat("d/x").sha256 == hashlib.sha256(DATA).hexdigest()
    assert os.listdir(root / ".data_stack/digests/d") == ["x~"]
    stored.move_resource("d/x", "e/y")
    assert stored.stat("e/y").sha256 == hashlib.sha256(DATA).hexdigest()


def test_a_deliberate_change_is_adopted_by_its_digest(
    stored: FileStorageConnector, root: Path
) -> None:
    (root / "d/x").write_bytes(b"new")
    with pytest.raises(ChecksumMismatchError):
        stored.verify_resource("d/x")
    with pytest.raises(ChecksumMismatchError):
        stored.verify_resource("d/x", hashlib.sha256(DATA).hexdigest())

    stored.verify_resource("d/x", hashlib.sha256(b"new").hexdigest())

    assert content(stored, "d/x") == b"new"
    with files_limited(64):  # room for the file, not for its note
        stored.set_resource("d/x", b"next")
    assert stored.stat("d/x").sha256 is None
    assert stored.verify_resource("d/x").sha256 == hashlib.sha256(b"next").hexdigest()
    (root / "d/x").write_bytes(b"newer")
    stored.set_resource("d/x", io.BytesIO((root / "d/x").read_bytes()))
    assert content(stored, "d/x") == b"newer"


# ------------------------------------------------------------------ file systems without case


@pytest.fixture
def caseless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileStorageConnector:
    """A store on a file system that does not tell upper from lower case."""
    (tmp_path / "store").mkdir()
    fold_case(monkeypatch, str(tmp_path / "store"))
    return FileStorageConnector(tmp_path / "store")


def test_no_two_names_share_a_file_without_case(
    caseless: FileStorageConnector,
) -> None:
    caseless.set_resource("d/Ab", b"first")
    caseless.set_resource("d/Ab", b"again")

    for other in ("d/aB", "D/Ab", "d/AB", "D/new"):
        assert not caseless.has_resource(other)
        for ask in (caseless.get_resource, caseless.stat, caseless.delete_resource):
            with pytest.raises(ResourceNotFoundError):
                ask(other)
        with pytest.raises(StorageConflictError, match="tell the two names apart"):
            caseless.set_resource(other, b"second")
        with pytest.raises(StorageConflictError):
            caseless.move_resource("d/Ab", other)

    assert content(caseless, "d/Ab") == b"again"
    assert caseless.list_resources() == ["d/Ab"]


def test_a_prefix_keeps_its_case_without_case(
    caseless: FileStorageConnector,
) -> None:
    caseless.set_resource("d/Ab", b"x")
    caseless.set_resource("X", b"x")

    assert caseless.list_resources("D/") == []
    assert caseless.list_resources("d/") == ["d/Ab"]
    assert caseless.list_resources() == ["X", "d/Ab"]
    caseless.delete_resource("d/Ab")
    caseless.set_resource("d/aB", b"y")
    assert content(caseless, "d/aB") == b"y"


def test_names_that_differ_in_case_are_two_where_it_counts(tmp_path: Path) -> None:
    connector = FileStorageConnector(tmp_path)
    connector.set_resource("d/Ab", b"x")
    os.link(tmp_path / "d" / "Ab", tmp_path / "d" / "aB")  # one file under both names

    assert connector.list_resources() == ["d/Ab", "d/aB"]
    assert content(connector, "d/aB") == b"x"


def test_a_small_file_that_cannot_be_replaced_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "taken" / "below").mkdir(parents=True)

    with pytest.raises(OSError, match="taken"):
        replace_file(str(tmp_path / "taken"), b"bytes")

    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
