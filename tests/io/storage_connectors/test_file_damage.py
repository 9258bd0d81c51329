"""A file that something else touched since it was stored: never a wrong byte of it, and no error without damage."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import mmap
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.exception import ChecksumMismatchError, ConfigError, DamagedBlockError, ResourceNotFoundError
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.io.storage_connectors.digest_notes import DigestNotes
from data_stack.testing.storage import assert_same_bytes

BLOCK = BLOCK_BYTES
DATA = hashlib.shake_128(b"touched").digest(3 * BLOCK + 17)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def connector(root: Path) -> FileStorageConnector:
    connector = FileStorageConnector(root)
    connector.set_resource("d/x", DATA)
    return connector


def flip(path: Path, offset: int, *, traceless: bool = False) -> None:
    """Change one bit; ``traceless``: with the time of the last change set back, as far as the system lets one."""
    status = path.stat()
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 16]))
    if traceless:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def whole(connector: FileStorageConnector, identifier: str = "d/x") -> bytes:
    with connector.get_resource(identifier) as resource:
        return resource.read()


def notes(root: Path) -> list[str]:
    """Names of all that lies beside the note on d/x."""
    return sorted(os.listdir(root / ".data_stack/digests/d"))


# ---------------------------------------------------------------------- damage


@pytest.mark.parametrize("traceless", [False, True])
@pytest.mark.parametrize("offset", [0, BLOCK - 1, BLOCK, 2 * BLOCK + 5, 3 * BLOCK, len(DATA) - 1])
def test_a_flipped_bit_is_an_error_that_names_resource_and_block_and_the_rest_is_served(
    connector: FileStorageConnector, root: Path, offset: int, traceless: bool
) -> None:
    flip(root / "d/x", offset, traceless=traceless)

    with connector.get_resource("d/x") as resource:
        with pytest.raises(DamagedBlockError, match=rf"block {offset // BLOCK} of resource 'd/x'.*import-file d/x") as caught:
            resource.read_at(offset, 1)
        for block in range(4):
            if block != offset // BLOCK:
                assert_same_bytes(resource.read_at(block * BLOCK, BLOCK), DATA[block * BLOCK : (block + 1) * BLOCK])
        with pytest.raises(DamagedBlockError):
            resource.read()
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.identifier, error.block, error.block_bytes, error.algorithm) == ("d/x", offset // BLOCK, BLOCK, "xxh3-64")


def test_what_a_damaged_block_was_read_into_holds_nothing_of_it(connector: FileStorageConnector, root: Path) -> None:
    flip(root / "d/x", 5)
    buffer = bytearray(b"\xff" * BLOCK)

    with connector.get_resource("d/x") as resource, pytest.raises(DamagedBlockError):
        resource.readinto(buffer)

    assert not DATA.startswith(buffer[:100])
    assert set(buffer) <= {0, 0xFF}


@pytest.mark.parametrize("size", [0, 1, BLOCK, len(DATA) - 1, len(DATA) + 1, 5 * BLOCK])
def test_another_size_is_an_error_before_the_first_byte(connector: FileStorageConnector, root: Path, size: int) -> None:
    os.truncate(root / "d/x", size)

    with connector.get_resource("d/x") as resource, pytest.raises(DamagedBlockError, match=r"size .* bytes, expected 196,625"):
        resource.read_at(0, 1)
    with pytest.raises(ChecksumMismatchError):
        connector.verify_resource("d/x")


@pytest.mark.parametrize(
    "use",
    [
        lambda resource: resource.fileno(),
        lambda resource: mmap.mmap(resource.fileno(), 0, access=mmap.ACCESS_READ),
        lambda resource: resource.read_ranges([(2 * BLOCK, 5)]),
        lambda resource: list(resource),
        lambda resource: resource.seek(2 * BLOCK) and resource.read(1),
    ],
)
def test_no_way_of_reading_goes_around_the_check(
    connector: FileStorageConnector, root: Path, use: Callable[[Any], object]
) -> None:
    flip(root / "d/x", 2 * BLOCK + 1)

    with connector.get_resource("d/x") as resource, pytest.raises(DamagedBlockError):
        use(resource)


def test_a_file_swapped_for_another_is_not_known_any_more_and_found_by_verifying(
    connector: FileStorageConnector, root: Path
) -> None:
    (root / "other").write_bytes(bytes(len(DATA)))
    os.replace(root / "other", root / "d/x")

    assert connector.stat("d/x").sha256 is None
    with pytest.raises(ChecksumMismatchError, match="damaged in blocks"):
        connector.verify_resource("d/x")


def test_what_verify_found_damaged_is_not_served_any_more(connector: FileStorageConnector, root: Path) -> None:
    # The kernel lets nobody damage a file without a trace, as a disk does: so its note is made to agree.
    flip(root / "d/x", BLOCK)
    notes = DigestNotes(str(root / ".data_stack/digests"))
    noted = notes.read("d/x")
    assert noted is not None
    notes.write("d/x", noted, (root / "d/x").stat())
    assert connector.stat("d/x").sha256 is not None

    with pytest.raises(ChecksumMismatchError, match=r"damaged in blocks \[1\] of 64 KiB"):
        connector.verify_resource("d/x")

    assert connector.stat("d/x").sha256 is None
    with pytest.raises(DamagedBlockError, match="block 1"):
        whole(connector)
    with connector.get_resource("d/x") as resource:
        assert_same_bytes(resource.read_at(0, 100), DATA[:100])


def test_every_read_is_checked_if_that_is_asked_for(connector: FileStorageConnector, root: Path) -> None:
    careful = FileStorageConnector(root, check_reads="always")
    assert_same_bytes(whole(careful), DATA)
    assert careful.stat("d/x").sha256 == hashlib.sha256(DATA).hexdigest()

    with careful.get_resource("d/x") as resource:
        assert resource.sha256 == hashlib.sha256(DATA).hexdigest()
        with open(root / "d/x", "r+b") as file:
            file.write(bytes(5))
        with pytest.raises(DamagedBlockError):
            resource.read(1)

    assert "check_reads='always'" in repr(pickle.loads(pickle.dumps(careful)))
    with pytest.raises(ConfigError, match="check_reads"):
        FileStorageConnector(root, check_reads="sometimes")  # type: ignore[arg-type]


@given(
    offset=st.integers(0, len(DATA) - 1),
    reads=st.lists(st.tuples(st.integers(0, len(DATA) + 9), st.integers(0, 2 * BLOCK)), max_size=6),
)
def test_any_sequence_of_reads_of_a_damaged_file_gives_the_right_bytes_or_the_error(
    tmp_path_factory: pytest.TempPathFactory, offset: int, reads: list[tuple[int, int]]
) -> None:
    root = tmp_path_factory.mktemp("store")
    connector = FileStorageConnector(root)
    connector.set_resource("d/x", DATA)
    flip(root / "d/x", offset)

    with connector.get_resource("d/x") as resource:
        for start, size in reads:
            touches = start // BLOCK <= offset // BLOCK <= (min(start + size, len(DATA)) - 1) // BLOCK
            if touches and size and start < len(DATA):
                with pytest.raises(DamagedBlockError, match=f"block {offset // BLOCK} "):
                    resource.read_at(start, size)
            else:
                assert_same_bytes(resource.read_at(start, size), DATA[start : start + size])
    shutil.rmtree(root)


# ---------------------------------------------------------------------- no damage


@pytest.mark.parametrize(
    "touch",
    [
        "touch store/d/x",
        "touch -d @0 store/d/x",
        "chmod 600 store/d/x",
        "ln store/d/x backup",
        "mv store/d/x y; mv y store/d/x",
        "cp store/d/x y; mv y store/d/x",
        "cp -a store copy; rm -r store; mv copy store",
        "cp -r store copy; rm -r store; mv copy store",
        "tar -cf a.tar store; rm -r store; tar -xf a.tar",
    ],
)
def test_an_intact_file_is_read_right_and_known_again_once_it_was_verified(
    connector: FileStorageConnector, root: Path, touch: str
) -> None:
    subprocess.run(["/bin/sh", "-ec", touch], check=True, cwd=root.parent)
    known_before = connector.stat("d/x").sha256

    with connector.get_resource("d/x") as resource:
        assert_same_bytes(resource.read(), DATA)
        known_read = resource.sha256
    connector.verify_resource("d/x")

    assert (known_before, known_read) == (None, None)
    assert connector.stat("d/x").sha256 == hashlib.sha256(DATA).hexdigest()
    assert notes(root) == ["x~"]


def test_an_intact_file_is_checked_and_mapped_then(connector: FileStorageConnector, root: Path) -> None:
    os.utime(root / "d/x", (0, 0))

    with (
        connector.get_resource("d/x") as resource,
        contextlib.closing(mmap.mmap(resource.fileno(), 0, access=mmap.ACCESS_READ)) as mapped,
    ):
        assert_same_bytes(mapped[:], DATA)


def test_a_store_whose_notes_cannot_be_written_works_without(connector: FileStorageConnector, root: Path) -> None:
    shutil.rmtree(root / ".data_stack/digests/d")
    (root / ".data_stack/digests/d").symlink_to("/proc/self/task")  # where nobody can write, not even root

    connector.set_resource("d/x", DATA[::-1])

    assert_same_bytes(whole(connector), DATA[::-1])
    assert connector.verify_resource("d/x").sha256 == hashlib.sha256(DATA[::-1]).hexdigest()
    assert connector.stat("d/x").sha256 is None


def test_a_change_on_purpose_is_adopted_by_its_digest_or_by_storing_it(connector: FileStorageConnector, root: Path) -> None:
    (root / "d/x").write_bytes(b"new")
    with pytest.raises(ChecksumMismatchError):
        connector.verify_resource("d/x")
    with pytest.raises(ChecksumMismatchError):
        connector.verify_resource("d/x", hashlib.sha256(DATA).hexdigest())

    connector.verify_resource("d/x", hashlib.sha256(b"new").hexdigest())

    assert whole(connector) == b"new"
    (root / "d/x").write_bytes(b"newer")
    connector.set_resource("d/x", io.BytesIO((root / "d/x").read_bytes()))
    assert whole(connector) == b"newer"


def test_a_file_without_a_record_is_served_as_it_is(connector: FileStorageConnector, root: Path) -> None:
    shutil.rmtree(root / ".data_stack/digests")
    (root / "d/x").write_bytes(b"other")

    assert whole(connector) == b"other"


@pytest.mark.parametrize("earlier", ["a file", "a folder of files"])
def test_notes_of_an_earlier_format_say_nothing_and_give_way(connector: FileStorageConnector, root: Path, earlier: str) -> None:
    note = root / ".data_stack/digests/d/x~"
    record = json.dumps({"size": 1, "sha256": "0" * 64, "mtime_ns": 1, "ctime_ns": 1, "inode": 1, "blocks": ""})
    note.unlink()
    if earlier == "a file":
        note.write_text(record)
    else:
        note.mkdir()
        status = (root / "d/x").stat()
        (note / f"{status.st_ino}.{status.st_mtime_ns}").write_text(record)

    assert_same_bytes(whole(connector), DATA)
    assert connector.stat("d/x").sha256 is None
    connector.verify_resource("d/x")

    assert connector.stat("d/x").sha256 == hashlib.sha256(DATA).hexdigest()


# ---------------------------------------------------------------------- beside writers


def test_readers_beside_writers_never_take_a_new_version_for_a_damaged_one(root: Path) -> None:
    connector = FileStorageConnector(root)
    versions = [bytes([65 + i]) * (BLOCK + 3) for i in range(4)]
    connector.set_resource("d/x", versions[0])
    stop = threading.Event()

    def write(offset: int) -> None:
        step = 0
        while not stop.is_set():
            step += 1
            connector.set_resource("d/x", versions[(offset + step) % 4])

    def read(_: int) -> bool:
        with connector.get_resource("d/x") as resource:
            return resource.read() in versions

    with ThreadPoolExecutor(5) as threads:
        writers = [threads.submit(write, offset) for offset in range(3)]
        try:
            right = list(threads.map(read, range(150)))
        finally:
            stop.set()
        for writer in writers:
            writer.result()

    assert all(right)
    assert notes(root) in ([], ["x~"])
    assert connector.verify_resource("d/x").sha256 == hashlib.sha256(whole(connector)).hexdigest()


def test_a_reader_of_a_touched_file_finishes_with_it_while_it_is_replaced_and_deleted(
    connector: FileStorageConnector, root: Path
) -> None:
    os.utime(root / "d/x", (0, 0))
    with connector.get_resource("d/x") as resource:
        beginning = resource.read(10)

        connector.set_resource("d/x", b"new")
        assert_same_bytes(resource.read_at(BLOCK, 10), DATA[BLOCK : BLOCK + 10])
        connector.delete_resource("d/x")

        assert_same_bytes(beginning + resource.read(), DATA)
    with pytest.raises(ResourceNotFoundError):
        connector.get_resource("d/x")
    assert not (root / ".data_stack/digests/d/x~").exists()


@pytest.mark.parametrize("step", ["os.rename", "os.remove"])
@pytest.mark.parametrize("at", range(1, 4))
def test_killed_while_it_publishes_a_writer_leaves_no_file_that_seems_damaged(
    connector: FileStorageConnector, root: Path, step: str, at: int
) -> None:
    program = f"""
import os, signal, sys
left = {at}
def count(event, arguments):
    global left
    if event == {step!r}:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
from data_stack.io.storage_connectors import FileStorageConnector
connector = FileStorageConnector({str(root)!r})
sys.addaudithook(count)
connector.set_resource("d/x", b"new" * 1000)
"""
    run = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert run.returncode in (0, -signal.SIGKILL), run.stderr

    for _ in range(2):  # before cleaning up, and after
        assert whole(connector) in (DATA, b"new" * 1000)
        connector.remove_abandoned()
        connector.collect_garbage(0.0)
    assert not [name for name in notes(root) if name.startswith(".~")]
    assert connector.verify_resource("d/x").sha256 == hashlib.sha256(whole(connector)).hexdigest()


def test_threads_and_a_forked_child_check_a_touched_file_for_themselves(connector: FileStorageConnector, root: Path) -> None:
    flip(root / "d/x", 2 * BLOCK)
    offsets = [i * 65_537 % (2 * BLOCK - 1000) for i in range(200)]

    with connector.get_resource("d/x") as resource:
        with ThreadPoolExecutor(8) as threads:
            parts = list(threads.map(lambda offset: resource.read_at(offset, 1000), offsets))
        child = os.fork()
        if child == 0:
            right = 1
            try:
                right = 0 if resource.read_at(BLOCK, 9) == DATA[BLOCK : BLOCK + 9] else 1
                resource.read_at(2 * BLOCK, 1)
                right = 2
            except DamagedBlockError:
                pass
            finally:
                os._exit(right)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert_same_bytes(b"".join(parts), b"".join(DATA[offset : offset + 1000] for offset in offsets))
    assert code == 0


# ---------------------------------------------------------------------- upkeep


def test_digests_of_files_that_other_means_removed_are_garbage(connector: FileStorageConnector, root: Path) -> None:
    connector.set_resource("kept", b"1")
    os.unlink(root / "d/x")

    promised = connector.collect_garbage(0.0, dry_run=True)
    assert connector.collect_garbage() == []  # they are young
    collected = connector.collect_garbage(0.0)

    assert [garbage.reason for garbage in collected] == ["digest of a file that is gone"]
    assert collected == promised
    assert connector.collect_garbage(0.0) == []
    assert connector.stat("kept").sha256 is not None
    assert (connector.usage().n_resources, connector.usage().resource_bytes) == (1, 1)


class _WatchedPublisher(FileStorageConnector):
    """Looks which files are open after it has published one, and before it notes that it did."""

    def _rename(self, temporary: str, name: str, folder: int) -> None:
        super()._rename(temporary, name, folder)
        inode = os.stat(name, dir_fd=folder).st_ino
        os.replace(os.path.join(self.root_path, "other"), name, dst_dir_fd=folder)  # somebody is faster
        inodes = set()
        for handle in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                inodes.add(os.fstat(int(handle)).st_ino)
        self.keeps_inode = inode in inodes


def test_a_file_keeps_its_inode_until_it_is_noted_so_that_no_successor_can_have_it(tmp_path: Path) -> None:
    connector = _WatchedPublisher(tmp_path)
    FileStorageConnector(tmp_path).set_resource("other", b"the successor")

    connector.set_resource("a", b"replaced at once")

    assert connector.keeps_inode
    with FileStorageConnector(tmp_path).get_resource("a") as resource:
        assert resource.read() == b"the successor"


def test_a_file_that_was_changed_in_place_is_checked_under_its_new_name_too(connector: FileStorageConnector, root: Path) -> None:
    connector.set_resource("a", io.BytesIO(DATA))
    with open(root / "a", "r+b") as file:
        file.write(b"other")

    connector.move_resource("a", "b")

    with connector.get_resource("b") as resource, pytest.raises(DamagedBlockError):
        resource.read()
