"""A file is known by size, times and number: replaced files are seen, other numbers of an old file
are no proof.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from data_stack.io.folder import folder_of
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.io.versions import LocalVersion, is_same_version, local_version_of, version_of

_SECOND = 10**9
_SETTLED = LocalVersion(10, 1 * _SECOND, 2 * _SECOND, 3, 4, 9 * _SECOND, "here")


def test_a_replaced_file_is_another_version(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "b").write_bytes(b"new")
    before = LocalVersion.of((tmp_path / "a").stat())

    os.replace(tmp_path / "b", tmp_path / "a")
    status = (tmp_path / "a").stat()

    assert not before.is_of(status)
    assert is_same_version(before, LocalVersion.of(status)) is False


def test_an_untouched_file_is_the_same_version(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"data")
    before = LocalVersion.of((tmp_path / "a").stat())
    sent = pickle.loads(pickle.dumps(before))

    assert sent.is_of((tmp_path / "a").stat())
    assert is_same_version(sent, LocalVersion.of((tmp_path / "a").stat())) is True
    with folder_of(tmp_path).open("a") as resource:
        assert is_same_version(before, local_version_of(resource)) is True


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (_SETTLED, True),
        (_SETTLED._replace(seen_ns=0), True),
        (_SETTLED._replace(inode=5), None),
        (_SETTLED._replace(device=5), None),
        (_SETTLED._replace(size=11), False),
        (_SETTLED._replace(modified_ns=5), False),
        (_SETTLED._replace(changed_ns=5), False),
        (_SETTLED._replace(machine="there", inode=5, changed_ns=7), None),
        (_SETTLED._replace(machine="there", size=5), False),
        (None, None),
        ("sha256", False),
    ],
)
def test_what_differs_decides(now: Any, expected: bool | None) -> None:
    assert is_same_version(_SETTLED, now) is expected


def test_another_number_of_a_file_just_written_is_another_file() -> None:
    written = _SETTLED._replace(seen_ns=3 * _SECOND)

    assert is_same_version(written, written._replace(inode=5)) is False


def test_a_store_that_knows_the_digest_tells_the_version(tmp_path: Path) -> None:
    store = FileStorageConnector(tmp_path)
    store.set_resource("a", b"data")
    (tmp_path / "b").write_bytes(b"data")

    with store.get_resource("a") as known, store.get_resource("b") as unknown:
        assert version_of(known) == known.sha256
        assert isinstance(version_of(unknown), LocalVersion)
