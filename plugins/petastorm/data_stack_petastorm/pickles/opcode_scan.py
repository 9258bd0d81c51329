"""Checks the opcodes of a pickle before an unpickler sees it.

The scan refuses what could take memory or time without limit, and all opcodes that Petastorm's
pickles do not contain. It also replaces opcodes that make dicts and sets by calls that make stubs:
adding a key to a real dict or set hashes the key, and hashing nested tuples of a stranger may take
forever.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from typing import Any, Final

from data_stack_petastorm.pickles.stubs import Refusal

#: Each opcode makes at most one object. A value of an index takes about ten opcodes, so that this
#: is enough for two million values.
_MAX_OPCODES: Final = 20_000_000

#: The largest integers in Petastorm's pickles have 64 bits. Python takes quadratic time for
#: decimal texts of large integers.
_MAX_INTEGER_BITS: Final = 128

_INTEGER_OPCODES: Final = frozenset(("INT", "LONG", "LONG1", "LONG4"))

#: Opcodes that store the value on top of the stack in the memo, at the number in their argument.
_MEMO_OPCODES: Final = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))

#: Further opcodes that are accepted as they are. Their arguments are limited by the length of the
#: pickle, and they make only plain values, lists, tuples and calls of stubs.
#:
#: Refused are, among others: INST and OBJ, which call a class by another way than REDUCE;
#: NEWOBJ_EX; EXT1, EXT2 and EXT4, which name globals by numbers that this process registered;
#: PERSID and BINPERSID; FROZENSET, which hashes; POP, POP_MARK and DUP; buffers outside of the
#: pickle.
_HARMLESS_OPCODES: Final = frozenset(
    (
        # the frame of a pickle
        "PROTO",
        "STOP",
        # numbers and constants
        "BININT",
        "BININT1",
        "BININT2",
        "FLOAT",
        "BINFLOAT",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        # text
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        # the str of Python 2, which is text or bytes
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        # bytes
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        # lists and tuples
        "MARK",
        "EMPTY_LIST",
        "LIST",
        "APPEND",
        "APPENDS",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        # items of dicts and sets, of which there are only stubs
        "SETITEM",
        "SETITEMS",
        "ADDITEMS",
        # the memo: MEMOIZE stores at the next free number
        "MEMOIZE",
        "GET",
        "BINGET",
        "LONG_BINGET",
        # globals, which are stubs; their calls; and attributes of objects, which are stubs
        "GLOBAL",
        "STACK_GLOBAL",
        "REDUCE",
        "BUILD",
    )
)


@dataclass(frozen=True, slots=True)
class _Replacement:
    """What replaces an opcode.

    Attributes:
        code: the bytes to put in its place.
        n_bytes: the length of the opcode with its argument.
        n_bytes_before: the length of the opcode before it, if that is replaced as well.
    """

    code: bytes
    n_bytes: int = 1
    n_bytes_before: int = 0


#: A call of OrderedDict without arguments, which makes a stub of a dict.
_NEW_DICT: Final = b"ccollections\nOrderedDict\n)R"

#: A call of set without arguments, which makes a stub of a set.
_NEW_SET: Final = b"cbuiltins\nset\n)R"

_REPLACEMENTS: Final = {
    "EMPTY_DICT": _Replacement(_NEW_DICT),
    "EMPTY_SET": _Replacement(_NEW_SET),
    # NEWOBJ needs a real class; a stub of a class is called by REDUCE.
    "NEWOBJ": _Replacement(b"R"),
    # FRAME says how many bytes to read ahead, a number that the replacements make wrong. The opcode
    # has 9 bytes: one of its own, and 8 of the number. A pickle without it is valid.
    "FRAME": _Replacement(b"", n_bytes=9),
}

#: Protocol 0 makes an empty dict by MARK and DICT, and adds items by SETITEM. Items between MARK
#: and DICT would become a real dict; Petastorm's pickles do not contain them, and they are refused.
_EMPTY_DICT_OF_PROTOCOL_0: Final = _Replacement(_NEW_DICT, n_bytes_before=1)


def check_opcodes(data: bytes) -> bytes:
    """Return a pickle that makes the same values, but stubs instead of dicts and sets.

    Raises:
        Refusal: an opcode is not one of Petastorm's pickles, or its argument is too large.
        ValueError: an opcode is unknown or damaged.
    """
    checked = bytearray()
    # The bytes of ``data`` before this position are in ``checked``, or were replaced.
    n_done = 0
    name_before = ""
    stop_position = 0
    for number, (opcode, argument, start) in enumerate(pickletools.genops(data)):
        if number > _MAX_OPCODES:
            raise Refusal("more objects than any schema or index needs")
        name = opcode.name
        position = start or 0  # pickletools gives None only for streams without positions
        replacement = _REPLACEMENTS.get(name)
        if name == "DICT" and name_before == "MARK":
            replacement = _EMPTY_DICT_OF_PROTOCOL_0
        if replacement is None:
            _check_opcode(name, argument, number)
        else:
            checked += data[n_done : position - replacement.n_bytes_before]
            checked += replacement.code
            n_done = position + replacement.n_bytes
        name_before = name
        stop_position = position
    if stop_position + 1 != len(data):
        raise Refusal("bytes after its end")
    checked += data[n_done:]
    return bytes(checked)


def _check_opcode(name: str, argument: Any, n_before: int) -> None:
    """Check an opcode that is not replaced.

    Args:
        name: the name of the opcode in :mod:`pickletools`.
        argument: its argument.
        n_before: the number of opcodes before it.

    Raises:
        Refusal: the opcode is not accepted, or its argument is too large.
    """
    if name in _INTEGER_OPCODES:
        n_bits = argument.bit_length()
        if n_bits > _MAX_INTEGER_BITS:
            raise Refusal(f"an integer of {n_bits:,} bits")
    elif name in _MEMO_OPCODES:
        # The unpickler allocates an array up to this number. Petastorm's pickles count from 0.
        if argument > n_before:
            raise Refusal(f"the memo {argument:,} after {n_before:,} opcodes")
    elif name not in _HARMLESS_OPCODES:
        raise Refusal(f"the opcode {name}, which Petastorm's pickles do not contain")
