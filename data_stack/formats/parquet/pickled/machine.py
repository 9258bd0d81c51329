"""The stack machine that a pickle is a program of, for the opcodes that Petastorm's pickles use.

The opcodes are described in Python's ``pickletools``. Those that import, call, look up or extend anything are here as well, but
what they name is looked up in :data:`~.known_globals.KNOWN_GLOBALS`, and what they call has a rule in :mod:`.calls`; every
other name, call and opcode is refused. Nothing is imported, and no attribute of anything is set or asked for by name.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Final

from data_stack.formats.parquet.pickled.calls import build_dtype, made_by_call, new_object, text_of
from data_stack.formats.parquet.pickled.known_globals import KNOWN_GLOBALS
from data_stack.formats.parquet.pickled.nodes import (
    MAX_DEPTH,
    DictNode,
    DtypeNode,
    ListNode,
    ObjectNode,
    PythonTwoString,
    Refusal,
    SetNode,
    TupleNode,
    described,
)

__all__ = ["MAX_BYTES", "decode_pickle"]

#: An index of a million values takes 60 MB; Parquet's readers take no more than 100 MB of metadata.
MAX_BYTES: Final = 100_000_000
#: Containers and calls: a value of an index needs six.
MAX_OBJECTS: Final = 10_000_000
#: Python writes collections in batches of 1,000.
MAX_STACK: Final = 100_000
MAX_MEMO: Final = 20_000_000
_MAX_LINE: Final = 1_000_000
_MAX_INTEGER_BYTES: Final = 16

_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\", b"'": b"'", b'"': b'"'}
_INTEGER = re.compile(rb"[+-]?[0-9]{1,40}")
_FLOAT = re.compile(rb"[+-]?(?:[0-9]{1,40}\.?[0-9]{0,40}(?:e[+-]?[0-9]{1,4})?|nan|inf)")
_MARK = object()


def decode_pickle(data: bytes) -> Any:
    """Decode a pickle of protocol 0 to 5 to nodes and plain values.

    Raises:
        Refusal: it holds what Petastorm's pickles never hold, is damaged, or too large; with the offset in bytes.
    """
    if len(data) > MAX_BYTES:
        raise Refusal(f"{len(data):,} bytes, more than the {MAX_BYTES:,} that any schema or index needs", 0)
    return _Machine(data).run()


class _Machine:
    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0
        self._stack: list[Any] = []
        self._marks = 0
        self._memo: dict[int, Any] = {}
        self._n_objects, self._made_bytes = 0, 0
        self._offset = 0
        self._result: Any = None

    def run(self) -> Any:
        data, end = self._data, len(self._data)
        try:
            while self._position < end:
                self._offset = self._position
                code = data[self._position]
                self._position += 1
                execute = _OPCODES.get(code)
                if execute is None:
                    raise Refusal(f"the opcode {_OTHER_OPCODES.get(code, hex(code))}, which Petastorm's pickles never use")
                if execute(self):
                    return self._result
                if len(self._stack) > MAX_STACK:
                    raise Refusal(f"more than {MAX_STACK:,} values on the stack")
        except Refusal as error:
            if error.offset is None:
                error.offset = self._offset
            raise
        raise Refusal("the end of the data before that of the pickle: it is cut off", end)

    # The program

    def _take(self, n_bytes: int) -> bytes:
        start = self._position
        if n_bytes > len(self._data) - start:
            raise Refusal(f"an argument of {n_bytes:,} bytes where {len(self._data) - start:,} are left: cut off or damaged")
        self._position = start + n_bytes
        return self._data[start : self._position]

    def _line(self) -> bytes:
        end = self._data.find(b"\n", self._position, self._position + _MAX_LINE)
        if end < 0:
            raise Refusal("an argument without an end: cut off or damaged")
        line, self._position = self._data[self._position : end], end + 1
        return line

    def _unsigned(self, n_bytes: int) -> int:
        return int.from_bytes(self._take(n_bytes), "little")

    def _protocol(self) -> None:
        version = self._unsigned(1)
        if version > 5 or self._offset != 0:
            raise Refusal(f"protocol {version} declared" + (" in the middle" if self._offset else ", which nobody knows yet"))

    def _frame(self) -> None:
        length = self._unsigned(8)
        if length > len(self._data) - self._position:
            raise Refusal(f"a frame of {length:,} bytes where {len(self._data) - self._position:,} are left")

    def _stop(self) -> bool:
        self._result = self._pop()
        if self._stack:
            raise Refusal("the end of the pickle with values left over")
        if self._position != len(self._data):
            raise Refusal(f"{len(self._data) - self._position:,} bytes behind the end of the pickle")
        return True

    # The stack

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise Refusal("an opcode that takes a value where there is none")
        return self._stack.pop()

    def _top(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise Refusal("an opcode that needs a value where there is none")
        return self._stack[-1]

    def _pop_to_mark(self) -> list[Any]:
        if not self._marks:
            raise Refusal("an opcode that takes values from a mark on where there is no mark")
        start = len(self._stack) - 1
        while self._stack[start] is not _MARK:
            start -= 1
        items = self._stack[start + 1 :]
        del self._stack[start:]
        self._marks -= 1
        return items

    def _mark(self) -> None:
        self._marks += 1
        if self._marks > MAX_DEPTH:
            raise Refusal(f"more than {MAX_DEPTH} marks")
        self._stack.append(_MARK)

    def _counted(self) -> int:
        self._n_objects += 1
        if self._n_objects > MAX_OBJECTS:
            raise Refusal(f"more than {MAX_OBJECTS:,} objects")
        return self._offset

    # The memo

    def _remember(self, key: int) -> None:
        if key > MAX_MEMO:
            raise Refusal(f"a memo of more than {MAX_MEMO:,} values")
        self._memo[key] = self._top()

    def _recall(self, key: int) -> None:
        if key not in self._memo:
            raise Refusal(f"the value number {key} of the memo, which was never stored")
        self._stack.append(self._memo[key])

    def _memoize(self) -> None:
        self._remember(len(self._memo))

    def _put(self) -> None:
        self._remember(self._natural())

    def _get(self) -> None:
        self._recall(self._natural())

    def _natural(self) -> int:
        line = self._line()
        if not line.isdigit() or len(line) > 10:
            raise Refusal(f"{described(line)} where a number of the memo belongs")
        return int(line)

    # Plain values

    def _push_int_line(self) -> None:
        line = self._line()
        if line in (b"00", b"01"):  # protocol 0 has no other booleans
            self._stack.append(line == b"01")
        else:
            self._push_integer(line)

    def _push_long_line(self) -> None:
        self._push_integer(self._line().removesuffix(b"L"))

    def _push_integer(self, text: bytes) -> None:
        if not _INTEGER.fullmatch(text):
            raise Refusal(f"{described(text)} where an integer belongs")
        self._stack.append(int(text))

    def _push_signed(self) -> None:
        self._stack.append(int.from_bytes(self._take(4), "little", signed=True))

    def _push_long(self, length: int) -> None:
        if length > _MAX_INTEGER_BYTES:
            raise Refusal(f"an integer of {length:,} bytes")
        self._stack.append(int.from_bytes(self._take(length), "little", signed=True))

    def _push_float_line(self) -> None:
        line = self._line()
        if not _FLOAT.fullmatch(line):
            raise Refusal(f"{described(line)} where a number belongs")
        self._stack.append(float(line))

    def _push_float(self) -> None:
        self._stack.append(struct.unpack(">d", self._take(8))[0])

    def _push_quoted(self) -> None:
        line = self._line()
        if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1]:
            raise Refusal(f"{described(line)} where a quoted string belongs")
        self._stack.append(PythonTwoString(_ESCAPE.sub(_unescaped, line[1:-1])))

    def _push_unicode_line(self) -> None:
        try:
            text = self._line().decode("raw-unicode-escape")
            # Python 2 wrote what lies beyond 16 bits as two surrogates.
            self._stack.append(text.encode("utf-16", "surrogatepass").decode("utf-16"))
        except UnicodeDecodeError:
            raise Refusal("a string that is not in its encoding") from None

    def _push_unicode(self, length: int) -> None:
        try:
            self._stack.append(self._take(length).decode("utf-8"))
        except UnicodeDecodeError:
            raise Refusal("a string that is not UTF-8") from None

    def _push_signed_length(self) -> None:
        length = int.from_bytes(self._take(4), "little", signed=True)
        if length < 0:
            raise Refusal("a string of negative length")
        self._stack.append(PythonTwoString(self._take(length)))

    # Containers

    def _push_list(self) -> None:
        items = self._pop_to_mark()
        made = ListNode(self._counted())
        for item in items:
            made.append(item)
        self._stack.append(made)

    def _push_tuple(self, items: list[Any]) -> None:
        self._stack.append(TupleNode(self._counted(), tuple(items)))

    def _push_short_tuple(self, length: int) -> None:
        items = [self._pop() for _ in range(length)]
        self._push_tuple(items[::-1])

    def _push_dict(self) -> None:
        items = self._pop_to_mark()
        made = DictNode(self._counted())
        self._store(made, items)
        self._stack.append(made)

    def _append(self, items: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, ListNode):
            raise Refusal(f"values appended to {described(target)}")
        for item in items:
            target.append(item)

    def _add(self) -> None:
        items = self._pop_to_mark()
        target = self._top()
        if not isinstance(target, SetNode):
            raise Refusal(f"values added to {described(target)}")
        for item in items:
            target.add(item)

    def _set_item(self) -> None:
        value = self._pop()
        key = self._pop()
        self._store(self._top(), [key, value])

    def _set_items(self) -> None:
        items = self._pop_to_mark()
        self._store(self._top(), items)

    def _store(self, target: Any, items: list[Any]) -> None:
        if not isinstance(target, DictNode) or len(items) % 2:
            raise Refusal(f"{len(items)} keys and values stored in {described(target)}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target.store(key, value)

    # Names and objects

    def _push_global(self, module: Any, name: Any) -> None:
        module_name, global_name = text_of(module), text_of(name)
        if module_name is None or global_name is None:
            raise Refusal(f"a global whose names are {described(module)} and {described(name)}")
        known = KNOWN_GLOBALS.get((module_name, global_name))
        if known is None:
            raise Refusal(f"the global {module_name[:80]}.{global_name[:80]}, which is none of those that Petastorm writes")
        self._stack.append(known)

    def _global_lines(self) -> None:
        lines = (self._line(), self._line())
        self._push_global(*(PythonTwoString(line) for line in lines))

    def _global_from_stack(self) -> None:
        name = self._pop()
        self._push_global(self._pop(), name)

    def _arguments(self) -> tuple[Any, ...]:
        arguments = self._pop()
        if not isinstance(arguments, TupleNode):
            raise Refusal(f"{described(arguments)} where a tuple of arguments belongs")
        return arguments.items

    def _reduce(self) -> None:
        arguments = self._arguments()
        made = made_by_call(self._pop(), arguments, self._counted())
        if isinstance(made, (str, bytes)):
            # A string of the memo may be decoded again and again: all of it may not be longer than the longest pickle.
            self._made_bytes += len(made)
            if self._made_bytes > MAX_BYTES:
                raise Refusal(f"calls that make more than {MAX_BYTES:,} bytes of strings")
        self._stack.append(made)

    def _new_object(self) -> None:
        arguments = self._arguments()
        self._stack.append(new_object(self._pop(), arguments, self._counted()))

    def _build(self) -> None:
        state = self._pop()
        target = self._top()
        if isinstance(target, DtypeNode):
            build_dtype(target, state)
        elif isinstance(target, ObjectNode):
            target.build(state)
        else:
            raise Refusal(f"attributes given to {described(target)}")


def _unescaped(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes.fromhex(match[1].decode("ascii"))
    if match[2] not in _ESCAPED:
        raise Refusal(f"the escape {described(match[0])} in a string")
    return _ESCAPED[match[2]]


_OPCODES: dict[int, Callable[[_Machine], bool | None]] = {
    ord(code): method
    for code, method in {
        "\x80": _Machine._protocol,
        "\x95": _Machine._frame,
        ".": _Machine._stop,
        "(": _Machine._mark,
        # memo
        "p": _Machine._put,
        "q": lambda machine: machine._remember(machine._unsigned(1)),
        "r": lambda machine: machine._remember(machine._unsigned(4)),
        "\x94": _Machine._memoize,
        "g": _Machine._get,
        "h": lambda machine: machine._recall(machine._unsigned(1)),
        "j": lambda machine: machine._recall(machine._unsigned(4)),
        # plain values
        "N": lambda machine: machine._stack.append(None),
        "\x88": lambda machine: machine._stack.append(True),
        "\x89": lambda machine: machine._stack.append(False),
        "I": _Machine._push_int_line,
        "J": _Machine._push_signed,
        "K": lambda machine: machine._stack.append(machine._unsigned(1)),
        "M": lambda machine: machine._stack.append(machine._unsigned(2)),
        "L": _Machine._push_long_line,
        "\x8a": lambda machine: machine._push_long(machine._unsigned(1)),
        "\x8b": lambda machine: machine._push_long(machine._unsigned(4)),
        "F": _Machine._push_float_line,
        "G": _Machine._push_float,
        "S": _Machine._push_quoted,
        "T": _Machine._push_signed_length,
        "U": lambda machine: machine._stack.append(PythonTwoString(machine._take(machine._unsigned(1)))),
        "B": lambda machine: machine._stack.append(machine._take(machine._unsigned(4))),
        "C": lambda machine: machine._stack.append(machine._take(machine._unsigned(1))),
        "\x8e": lambda machine: machine._stack.append(machine._take(machine._unsigned(8))),
        "V": _Machine._push_unicode_line,
        "X": lambda machine: machine._push_unicode(machine._unsigned(4)),
        "\x8c": lambda machine: machine._push_unicode(machine._unsigned(1)),
        "\x8d": lambda machine: machine._push_unicode(machine._unsigned(8)),
        # containers
        "]": lambda machine: machine._stack.append(ListNode(machine._counted())),
        "l": _Machine._push_list,
        "a": lambda machine: machine._append([machine._pop()]),
        "e": lambda machine: machine._append(machine._pop_to_mark()),
        ")": lambda machine: machine._push_tuple([]),
        "t": lambda machine: machine._push_tuple(machine._pop_to_mark()),
        "\x85": lambda machine: machine._push_short_tuple(1),
        "\x86": lambda machine: machine._push_short_tuple(2),
        "\x87": lambda machine: machine._push_short_tuple(3),
        "}": lambda machine: machine._stack.append(DictNode(machine._counted())),
        "d": _Machine._push_dict,
        "s": _Machine._set_item,
        "u": _Machine._set_items,
        "\x8f": lambda machine: machine._stack.append(SetNode(machine._counted())),
        "\x90": _Machine._add,
        # names and objects
        "c": _Machine._global_lines,
        "\x93": _Machine._global_from_stack,
        "R": _Machine._reduce,
        "\x81": _Machine._new_object,
        "b": _Machine._build,
    }.items()
}

#: Names of the opcodes we refuse, for the message.
_OTHER_OPCODES = {
    ord(code): name
    for code, name in {
        "0": "POP",
        "1": "POP_MARK",
        "2": "DUP",
        "P": "PERSID",
        "Q": "BINPERSID",
        "i": "INST",
        "o": "OBJ",
        "\x82": "EXT1",
        "\x83": "EXT2",
        "\x84": "EXT4",
        "\x91": "FROZENSET",
        "\x92": "NEWOBJ_EX",
        "\x96": "BYTEARRAY8",
        "\x97": "NEXT_BUFFER",
        "\x98": "READONLY_BUFFER",
    }.items()
}
