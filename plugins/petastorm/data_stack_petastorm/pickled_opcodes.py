"""Pieces of pickles that Petastorm reads, see :mod:`pickletools`."""

from __future__ import annotations

import struct


def object_with(name: str, state: bytes = b"") -> bytes:
    """An object without arguments; ``state`` has pairs of names and values."""
    return named(name) + b")\x81" + (b"}(" + state + b"ub" if state else b"")


def named(name: str) -> bytes:
    """A global by module and name."""
    module, _, attribute = name.rpartition(".")
    return f"c{module}\n{attribute}\n".encode("ascii")


def text(value: str) -> bytes:
    """A text."""
    encoded = value.encode("utf-8")
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def integer(number: int) -> bytes:
    """An integer of 64 bits, signed or not."""
    return b"\x8a\x09" + number.to_bytes(9, "little", signed=True)
