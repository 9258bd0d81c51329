"""The stack machine that a pickle is a program of, for the opcodes that Petastorm's pickles use.

Python's ``pickletools`` tells opcodes and their arguments, and runs nothing. Those that import, call, look up or extend anything
are here as well, but what they name is looked up in :data:`~.known_globals.KNOWN_GLOBALS`, and what they call has a rule in
:mod:`.calls`; every other name, call and opcode is refused. Nothing is imported, and no attribute of anything is set or asked for
by name.
"""

from __future__ import annotations

import pickletools
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
_MAX_INTEGER_BITS: Final = 128
_MARK = object()


def decode_pickle(data: bytes) -> Any:
    """Decode a pickle of protocol 0 to 5 to nodes and plain values.

    Raises:
        Refusal: it holds what Petastorm's pickles never hold, is damaged, or too large; with the offset in bytes.
    """
    if len(data) > MAX_BYTES:
        raise Refusal(f"{len(data):,} bytes, more than the {MAX_BYTES:,} that any schema or index needs", 0)
    return _Machine().run(data)


class _Machine:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marks = 0
        self._memo: dict[int, Any] = {}
        self._n_objects, self._made_bytes = 0, 0
        self._offset = 0

    def run(self, data: bytes) -> Any:
        try:
            for opcode, argument, offset in pickletools.genops(data):
                self._offset = offset or 0
                execute = _OPCODES.get(opcode.name)
                if execute is None:
                    raise Refusal(f"the opcode {opcode.name}, which Petastorm's pickles never use")
                execute(self, argument)
                if len(self._stack) > MAX_STACK:
                    raise Refusal(f"more than {MAX_STACK:,} values on the stack")
        except Refusal as error:
            if error.offset is None:
                error.offset = self._offset
            raise
        except (ValueError, IndexError, Warning) as error:  # of pickletools: an argument that is none, no end, an unknown opcode
            raise Refusal(f"no pickle: {error!s:.120}", self._offset) from error
        result = self._pop()
        if self._stack or self._offset + 1 != len(data):
            raise Refusal("the end of the pickle with values or bytes left over", self._offset)
        return result

    def _protocol(self, version: int) -> None:
        if version > 5 or self._offset != 0:
            raise Refusal(f"protocol {version} declared" + (" in the middle" if self._offset else ", which nobody knows yet"))

    # The stack

    def _pop(self) -> Any:
        value = self._top()
        self._stack.pop()
        return value

    def _top(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise Refusal("an opcode that takes a value where there is none", self._offset)
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

    def _mark(self, _: Any) -> None:
        self._marks += 1
        if self._marks > MAX_DEPTH:
            raise Refusal(f"more than {MAX_DEPTH} marks")
        self._stack.append(_MARK)

    def _counted(self) -> int:
        self._n_objects += 1
        if self._n_objects > MAX_OBJECTS:
            raise Refusal(f"more than {MAX_OBJECTS:,} objects")
        return self._offset

    # The memo, and plain values

    def _remember(self, key: int | None) -> None:
        key = len(self._memo) if key is None else key
        if not 0 <= key <= MAX_MEMO:
            raise Refusal(f"a memo of more than {MAX_MEMO:,} values")
        self._memo[key] = self._top()

    def _recall(self, key: int) -> None:
        if key not in self._memo:
            raise Refusal(f"the value number {key} of the memo, which was never stored")
        self._stack.append(self._memo[key])

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _push_integer(self, number: int) -> None:
        if number.bit_length() > _MAX_INTEGER_BITS:
            raise Refusal(f"an integer of {number.bit_length():,} bits")
        self._stack.append(number)

    def _push_text(self, text: str) -> None:
        try:
            # Python 2 wrote what lies beyond 16 bits as two surrogates.
            self._stack.append(text.encode("utf-16", "surrogatepass").decode("utf-16"))
        except UnicodeDecodeError:
            raise Refusal("a string that is no text") from None

    def _push_python_two(self, text: str) -> None:
        self._stack.append(PythonTwoString(text.encode("latin-1")))

    # Containers

    def _push_list(self, _: Any) -> None:
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

    def _push_dict(self, _: Any) -> None:
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

    def _add(self, _: Any) -> None:
        items = self._pop_to_mark()
        target = self._top()
        if not isinstance(target, SetNode):
            raise Refusal(f"values added to {described(target)}")
        for item in items:
            target.add(item)

    def _set_item(self, _: Any) -> None:
        value = self._pop()
        key = self._pop()
        self._store(self._top(), [key, value])

    def _set_items(self, _: Any) -> None:
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

    def _global_from_stack(self, _: Any) -> None:
        name = self._pop()
        self._push_global(self._pop(), name)

    def _arguments(self) -> tuple[Any, ...]:
        arguments = self._pop()
        if not isinstance(arguments, TupleNode):
            raise Refusal(f"{described(arguments)} where a tuple of arguments belongs")
        return arguments.items

    def _reduce(self, _: Any) -> None:
        arguments = self._arguments()
        made = made_by_call(self._pop(), arguments, self._counted())
        if isinstance(made, (str, bytes)):
            # A string of the memo may be decoded again and again: all of it may not be longer than the longest pickle.
            self._made_bytes += len(made)
            if self._made_bytes > MAX_BYTES:
                raise Refusal(f"calls that make more than {MAX_BYTES:,} bytes of strings")
        self._stack.append(made)

    def _new_object(self, _: Any) -> None:
        arguments = self._arguments()
        self._stack.append(new_object(self._pop(), arguments, self._counted()))

    def _build(self, _: Any) -> None:
        state = self._pop()
        target = self._top()
        if isinstance(target, DtypeNode):
            build_dtype(target, state)
        elif isinstance(target, ObjectNode):
            target.build(state)
        else:
            raise Refusal(f"attributes given to {described(target)}")


_OPCODES: Final[dict[str, Callable[[_Machine, Any], None]]] = {
    "PROTO": _Machine._protocol,
    "FRAME": lambda machine, _: None,
    "STOP": lambda machine, _: None,
    "MARK": _Machine._mark,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine._remember),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine._recall),
    # plain values
    "NONE": lambda machine, _: machine._push(None),
    "NEWTRUE": lambda machine, _: machine._push(True),
    "NEWFALSE": lambda machine, _: machine._push(False),
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), _Machine._push_integer),
    **dict.fromkeys(("FLOAT", "BINFLOAT", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"), _Machine._push),
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), _Machine._push_python_two),
    **dict.fromkeys(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _Machine._push_text),
    # containers
    "EMPTY_LIST": lambda machine, _: machine._push(ListNode(machine._counted())),
    "LIST": _Machine._push_list,
    "APPEND": lambda machine, _: machine._append([machine._pop()]),
    "APPENDS": lambda machine, _: machine._append(machine._pop_to_mark()),
    "EMPTY_TUPLE": lambda machine, _: machine._push_tuple([]),
    "TUPLE": lambda machine, _: machine._push_tuple(machine._pop_to_mark()),
    "TUPLE1": lambda machine, _: machine._push_short_tuple(1),
    "TUPLE2": lambda machine, _: machine._push_short_tuple(2),
    "TUPLE3": lambda machine, _: machine._push_short_tuple(3),
    "EMPTY_DICT": lambda machine, _: machine._push(DictNode(machine._counted())),
    "DICT": _Machine._push_dict,
    "SETITEM": _Machine._set_item,
    "SETITEMS": _Machine._set_items,
    "EMPTY_SET": lambda machine, _: machine._push(SetNode(machine._counted())),
    "ADDITEMS": _Machine._add,
    # names and objects
    "GLOBAL": lambda machine, names: machine._push_global(*names.split(" ", 1)),
    "STACK_GLOBAL": _Machine._global_from_stack,
    "REDUCE": _Machine._reduce,
    "NEWOBJ": _Machine._new_object,
    "BUILD": _Machine._build,
}
