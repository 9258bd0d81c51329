"""A file that something else touched since it was stored: never a wrong byte of it, and no error without damage."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from data_stack.exception import ChecksumMismatchError
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.io.storage_connectors.file_source import DigestNotes, facts_of
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
def test_a_changed_file_is_not_known_any_more_and_found_by_verifying(
    connector: FileStorageConnector, root: Path, traceless: bool
) -> None:
    flip(root / "d/x", 2 * BLOCK + 5, traceless=traceless)

    assert connector.stat("d/x").sha256 is None
    with connector.get_resource("d/x") as resource:
        assert resource.sha256 is None
    for _ in range(2):
        with pytest.raises(ChecksumMismatchError):
            connector.verify_resource("d/x")


def test_what_verify_found_damaged_is_not_trusted_any_more(connector: FileStorageConnector, root: Path) -> None:
    # The kernel lets nobody damage a file without a trace, as a disk does: so its note is made to agree.
    flip(root / "d/x", BLOCK)
    notes = DigestNotes(str(root / ".data_stack/digests"))
    noted = notes.read("d/x")
    assert noted is not None
    notes.write("d/x", replace(noted, facts=facts_of((root / "d/x").stat())))
    assert connector.stat("d/x").sha256 is not None

    with pytest.raises(ChecksumMismatchError):
        connector.verify_resource("d/x")

    assert connector.stat("d/x").sha256 is None
    with pytest.raises(ChecksumMismatchError):
        connector.verify_resource("d/x")


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


# ---------------------------------------------------------------------- beside writers


# ---------------------------------------------------------------------- upkeep
