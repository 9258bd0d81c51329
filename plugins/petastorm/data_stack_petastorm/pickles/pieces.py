"""Pieces of pickles that Petastorm reads, of opcodes of protocol 2 (see :mod:`pickletools`)."""

from __future__ import annotations

import struct
from typing import Final

# Opcodes, by their names in pickletools.
PROTO: Final = b"\x80"
STOP: Final = b"."
MARK: Final = b"("
NONE: Final = b"N"
EMPTY_LIST: Final = b"]"
APPENDS: Final = b"e"
EMPTY_DICT: Final = b"}"
SETITEMS: Final = b"u"
EMPTY_TUPLE: Final = b")"
TUPLE: Final = b"t"
TUPLE1: Final = b"\x85"
REDUCE: Final = b"R"
NEWOBJ: Final = b"\x81"
_BUILD: Final = b"b"
_GLOBAL: Final = b"c"
_NEWTRUE: Final = b"\x88"
_NEWFALSE: Final = b"\x89"
_LONG1: Final = b"\x8a"
_BINFLOAT: Final = b"G"
_BINUNICODE: Final = b"X"
_BINBYTES: Final = b"B"
_LONG_BINPUT: Final = b"r"
_LONG_BINGET: Final = b"j"

#: Bytes of an integer: with 9 of them, integers without a sign fit up to 64 bits.
_INTEGER_BYTES: Final = 9


def named(name: str) -> bytes:
    """A global by module and name, such as ``"numpy.int8"``."""
    module, _, attribute = name.rpartition(".")
    return _GLOBAL + f"{module}\n{attribute}\n".encode("ascii")


def text(value: str) -> bytes:
    """A text."""
    encoded = value.encode("utf-8")
    return _BINUNICODE + struct.pack("<I", len(encoded)) + encoded


def raw_bytes(value: bytes) -> bytes:
    """Bytes; this opcode is of protocol 3."""
    return _BINBYTES + struct.pack("<I", len(value)) + value


def boolean(value: bool) -> bytes:
    """A bool."""
    return _NEWTRUE if value else _NEWFALSE


def integer(number: int) -> bytes:
    """An integer of 64 bits, signed or not."""
    digits = number.to_bytes(_INTEGER_BYTES, "little", signed=True)
    return _LONG1 + bytes([_INTEGER_BYTES]) + digits


def real(number: float) -> bytes:
    """A float."""
    return _BINFLOAT + struct.pack(">d", number)


def call(function: str, argument: bytes) -> bytes:
    """A call of a global with one argument."""
    return named(function) + argument + TUPLE1 + REDUCE


def new_object(class_name: str, attributes: bytes = b"") -> bytes:
    """An object that is made without arguments.

    Args:
        class_name: module and name of its class.
        attributes: pairs of names and values.
    """
    made = named(class_name) + EMPTY_TUPLE + NEWOBJ
    if not attributes:
        return made
    return made + EMPTY_DICT + MARK + attributes + SETITEMS + _BUILD


def store(number: int) -> bytes:
    """Store the value before it in the memo."""
    return _LONG_BINPUT + struct.pack("<I", number)


def load(number: int) -> bytes:
    """The value that was stored in the memo."""
    return _LONG_BINGET + struct.pack("<I", number)
