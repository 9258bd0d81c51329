"""Makes the pieces of which pickles that Petastorm reads are joined.

A piece is the bytes of one or more opcodes; :mod:`pickletools` documents each opcode. All but
:func:`raw_bytes` are of protocol 2 or older.
"""

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

#: The length of an integer in bytes. Opcodes have signed integers, and an unsigned one of 64 bits
#: needs a ninth byte for the sign.
_INTEGER_BYTES: Final = 9


def named(name: str) -> bytes:
    """Return the piece that names a class or function, such as ``"numpy.int8"``."""
    module, _, attribute = name.rpartition(".")
    return _GLOBAL + f"{module}\n{attribute}\n".encode("ascii")


def text(value: str) -> bytes:
    """Return the piece that makes a text."""
    encoded = value.encode("utf-8")
    return _BINUNICODE + struct.pack("<I", len(encoded)) + encoded


def raw_bytes(value: bytes) -> bytes:
    """Return the piece that makes bytes, by an opcode of protocol 3."""
    return _BINBYTES + struct.pack("<I", len(value)) + value


def boolean(value: bool) -> bytes:
    """Return the piece that makes a bool."""
    return _NEWTRUE if value else _NEWFALSE


def integer(number: int) -> bytes:
    """Return the piece that makes an integer of up to 64 bits, signed or not."""
    digits = number.to_bytes(_INTEGER_BYTES, "little", signed=True)
    return _LONG1 + bytes([_INTEGER_BYTES]) + digits


def real(number: float) -> bytes:
    """Return the piece that makes a float of 64 bits."""
    return _BINFLOAT + struct.pack(">d", number)


def call(function: str, argument: bytes) -> bytes:
    """Return the piece that calls a function with one argument.

    Args:
        function: module and name of the function, or class.
        argument: the piece that makes the argument.
    """
    return named(function) + argument + TUPLE1 + REDUCE


def new_object(class_name: str, attributes: bytes = b"") -> bytes:
    """Return the piece that makes an object, without a call of its constructor.

    Args:
        class_name: module and name of its class.
        attributes: for each attribute, the pieces of its name and of its value; empty for none.
    """
    new = named(class_name) + EMPTY_TUPLE + NEWOBJ
    if not attributes:
        return new
    state = EMPTY_DICT + MARK + attributes + SETITEMS
    return new + state + _BUILD


def store(number: int) -> bytes:
    """Return the piece that stores the value made before it, under a number in the memo."""
    return _LONG_BINPUT + struct.pack("<I", number)


def load(number: int) -> bytes:
    """Return the piece that loads the value stored under a number in the memo."""
    return _LONG_BINGET + struct.pack("<I", number)
