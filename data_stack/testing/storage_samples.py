"""What the suites for storage connectors store, and how they look at what is stored."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import Any, Final

import pytest

from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import StorageConnector

__all__ = [
    "CONTENT",
    "HOSTILE_IDENTIFIERS",
    "SOURCES",
    "ForwardOnly",
    "SourceFailed",
    "assert_same_bytes",
    "content",
    "noise",
    "overrides",
    "read_all",
]

CONTENT: Final = hashlib.shake_128(b"content").digest(300_001)  # every place tells where it is

HOSTILE_IDENTIFIERS: Final = [
    "", ".", "..", "/", "../up", "a/../../up", "/etc/passwd", "//host/share", "a//b", "a/", "/a", "a/./b", "./a",
    "a\\b", "..\\up", "C:\\x", "C:x", "a\0", "\0", "a\0b", "a\nb", "\x7f", " a", "a ", "a/ /b", "a.", "a...", ".hidden",
    "~", "~root/x", "-rf", "*", "$HOME", "a:b", "a|b", "a?b", "%2e%2e/up", "\uff0e\uff0e/up", "ü", "\u212a", "a\u200b",
    "\ud800", "NUL", "con.txt", "a/COM1", "a" * 201, "a/" * 16 + "a", "/".join(["a" * 100] * 6), "file:///etc/passwd",
    None, 0, True, b"a", ["a"], {"$ne": None},
]  # fmt: skip


class ForwardOnly(io.RawIOBase):
    """A source that cannot seek and gives less than it was asked for."""

    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._stream.read(min(size, 5000) if size >= 0 else 5000)


SOURCES: Final[dict[str, Callable[[], Any]]] = {
    "bytes": lambda: CONTENT,
    "bytearray": lambda: bytearray(CONTENT),
    "memoryview": lambda: memoryview(CONTENT),
    "file": lambda: io.BytesIO(CONTENT),
    "list": lambda: [CONTENT[:10], b"", CONTENT[10:]],
    "generator": lambda: (CONTENT[i : i + 70_000] for i in range(0, len(CONTENT), 70_000)),
    "resource": lambda: StreamedResource("another/name", io.BytesIO(CONTENT)),
    "forward-only stream": lambda: ForwardOnly(CONTENT),
}


class SourceFailed(Exception):
    """What a source of bytes says when it breaks off."""


def assert_same_bytes(actual: bytes, expected: bytes) -> None:
    """Fail with the first difference. (pytest would compare byte by byte, in CI whole: minutes for a few 100 kB.)"""
    if actual != expected:
        at = next((i for i, (a, b) in enumerate(zip(actual, expected, strict=False)) if a != b), min(len(actual), len(expected)))
        pytest.fail(
            f"{len(actual):,} bytes differ from the {len(expected):,} expected ones from offset {at:,} on: "
            f"{actual[at : at + 20]!r} instead of {expected[at : at + 20]!r}"
        )


def content(connector: StorageConnector, identifier: str) -> bytes:
    """All bytes of a stored resource."""
    with connector.get_resource(identifier) as resource:
        return resource.read()


def overrides(connector: StorageConnector, method: str) -> bool:
    """Whether a connector brings a method of its own, instead of the default of StorageConnector."""
    return getattr(type(connector), method) is not getattr(StorageConnector, method)


def noise(size: int) -> bytes:
    """Bytes of which every place tells where it is."""
    return hashlib.shake_128(b"noise").digest(size)


def read_all(resource: StreamedResource) -> bytes:
    """All bytes of a resource, which is closed then."""
    with resource:
        return resource.read()
