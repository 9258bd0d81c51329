"""The stack machine that a pickle is a program of, for what Petastorm's pickles use.

Python's ``pickletools`` tells opcodes and their arguments, and runs nothing. Those that import, call or build anything are here
as well, but what they name is looked up in :data:`~.known_globals.KNOWN_GLOBALS`, and for each of the dozen functions that
Petastorm's pickles call there is a rule that gives an inert node or a plain value; every other name, call and opcode is refused.
Nothing here hashes what came from a pickle, and nothing walks through nodes: shared or recursive ones cost nothing.
"""

from __future__ import annotations

import pickletools
import re
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Final, TypeVar

import numpy as np

from data_stack.formats.parquet.pickled.known_globals import KnownGlobal, find_global
from data_stack.formats.parquet.plain_times import plain_time

#: An index of a million values takes 60 MB; Parquet's readers take no more than 100 MB of metadata.
_MOST_BYTES: Final = 100_000_000
#: A value of an index takes about ten. Each step makes one object at most; long strings and copies count for several.
_MOST_STEPS: Final = 20_000_000
_BYTES_PER_STEP: Final = 8
_MOST_INTEGER_BITS: Final = 128
#: Parquet and Arrow keep at most 76 digits; without limits a short text could stand for a number of gigabytes.
_DECIMAL: Final = re.compile(r"[+-]?(?=\.?[0-9])[0-9]{0,100}\.?[0-9]{0,100}(?:[eE][+-]?[0-9]{1,2})?")
_DTYPE: Final = re.compile(r"[<>|=]?([biufcMm][0-9]{1,2}|[SU][0-9]{1,9})")
_TIME_UNITS: Final = frozenset({"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"})
_FIELD_ATTRIBUTES: Final = ("name", "numpy_dtype", "shape", "codec", "nullable")
_TIMES: Final[dict[str, Any]] = {"date": date, "datetime": datetime, "time": time}
_MARK: Final = object()
T = TypeVar("T")


class Refusal(ValueError):
    """A pickle holds something that we do not decode; the message says what."""


class PythonTwoString(bytes):
    """A ``str`` of Python 2: text or bytes, the pickle does not say which."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class SetNode:
    """A set, as the list of what was added to it."""

    items: list[Any] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class DictNode:
    """A dict, OrderedDict or defaultdict(set), as the list of what was stored in it; of equal keys the last one counts."""

    items: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class ObjectNode:
    """An object of a known class: a schema, field, codec, Spark type or indexer; ``state`` has its attributes."""

    known: KnownGlobal
    arguments: tuple[Any, ...] = ()
    state: DictNode | None = None


@dataclass(slots=True, eq=False)
class DtypeNode:
    """A dtype of numpy: its code (``"U3"``); when it is built, its byte order, and the unit of a time such as ``"[ns]"``."""

    code: str
    byte_order: str = ""
    unit: str = ""


def text_of(value: Any) -> str | None:
    """A str, or a Python 2 str that is text; None for anything else."""
    if isinstance(value, PythonTwoString):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) else None


def describe(value: Any) -> str:
    """A short name of a value for a message; never more of it than a few characters."""
    if isinstance(value, ObjectNode):
        value = value.known
    if isinstance(value, KnownGlobal):
        return f"the {value.role.replace('_', ' ')} {value.name}"
    if isinstance(value, (str, bytes)):
        return repr(value[:40])
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    return f"a {type(value).__name__.removesuffix('Node').lower()}"


def decode_pickle(data: bytes) -> Any:
    """Decode a pickle of protocol 0 to 5 to nodes and plain values; lists and tuples are Python's own.

    Raises:
        Refusal: it holds what Petastorm's pickles never hold, is damaged, or too large; with the offset in bytes.
    """
    if len(data) > _MOST_BYTES:
        raise Refusal(f"{len(data):,} bytes, more than the {_MOST_BYTES:,} that any schema or index needs")
    machine, offset = _Machine(), 0
    try:
        for opcode, argument, place in pickletools.genops(data):
            offset = place or 0
            machine.step(opcode.name, argument)
        result = machine.pop()
        if machine.stack or offset + 1 != len(data):
            raise Refusal("the end of the pickle with values or bytes left over")
    except (ValueError, LookupError, Warning) as error:  # of pickletools, too: an invalid argument, an unknown opcode
        raise Refusal(f"{error!s:.200} (byte {offset})") from error
    return result


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._n_left = _MOST_STEPS

    def step(self, name: str, argument: Any) -> None:
        """Do what an opcode says.

        Raises:
            Refusal, LookupError: Petastorm's pickles never say that here.
        """
        self._spend(1)
        match name:
            case "BININT" | "BININT1" | "BININT2" | "INT" | "LONG" | "LONG1" | "LONG4":
                if argument.bit_length() > _MOST_INTEGER_BITS:
                    raise Refusal(f"an integer of {argument.bit_length():,} bits")
                self.stack.append(argument)
            case "BINUNICODE" | "SHORT_BINUNICODE" | "UNICODE" | "BINUNICODE8":
                # Python 2 wrote what lies beyond 16 bits as two surrogates.
                self.stack.append(argument.encode("utf-16", "surrogatepass").decode("utf-16"))
            case "STRING" | "BINSTRING" | "SHORT_BINSTRING":
                self.stack.append(PythonTwoString(argument.encode("latin-1")))
            case "FLOAT" | "BINFLOAT" | "BINBYTES" | "SHORT_BINBYTES" | "BINBYTES8" | "NONE":
                self.stack.append(argument)
            case "NEWTRUE" | "NEWFALSE":
                self.stack.append(name == "NEWTRUE")
            case "MARK":
                self.stack.append(_MARK)
            case "MEMOIZE":
                self._memo[len(self._memo)] = self._top()
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = self._top()
            case "GET" | "BINGET" | "LONG_BINGET":
                self.stack.append(self._memo[argument])
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "GLOBAL":
                self._push_global(argument.replace(" ", ".", 1))
            case "STACK_GLOBAL":
                module, attribute = map(text_of, self._pop_several(2))
                self._push_global(f"{module}.{attribute}")
            case "REDUCE":
                made = self._make_by_call(*self._pop_several(2))
                self._spend(len(made) // _BYTES_PER_STEP if isinstance(made, (str, bytes)) else 0)
                self.stack.append(made)
            case "NEWOBJ":
                self.stack.append(_new_object(*self._pop_several(2)))
            case "BUILD":
                _build(state=self.pop(), target=self._top())
            case _:
                self._step_of_container(name)

    def _step_of_container(self, name: str) -> None:
        match name:
            case "EMPTY_SET":
                self.stack.append(SetNode())
            case "ADDITEMS":
                items = self._pop_to_mark()
                self._target(SetNode).items.extend(items)
            case "EMPTY_TUPLE":
                self.stack.append(())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self.stack.append(tuple(self._pop_several(int(name[-1]))))
            case "TUPLE":
                self.stack.append(tuple(self._pop_to_mark()))
            case "EMPTY_LIST":
                self.stack.append([])
            case "LIST":
                self.stack.append(self._pop_to_mark())
            case "APPEND" | "APPENDS":
                items = self._pop_several(1) if name == "APPEND" else self._pop_to_mark()
                self._target(list).extend(items)
            case "EMPTY_DICT":
                self.stack.append(DictNode())
            case "SETITEM" | "SETITEMS" | "DICT":
                items = self._pop_several(2) if name == "SETITEM" else self._pop_to_mark()
                if name == "DICT":
                    self.stack.append(DictNode())
                self._target(DictNode).items.extend(zip(items[::2], items[1::2], strict=True))
            case _:
                raise Refusal(f"the opcode {name}, which Petastorm's pickles never use")

    def _spend(self, n_steps: int) -> None:
        self._n_left -= n_steps
        if self._n_left < 0:
            raise Refusal("more objects than any schema or index needs")

    # The stack

    def _top(self) -> Any:
        if self.stack[-1] is _MARK:
            raise Refusal("an opcode that takes a value from an empty stack")
        return self.stack[-1]

    def pop(self) -> Any:
        """The value on top, which is there no longer."""
        self._top()
        return self.stack.pop()

    def _pop_several(self, n_values: int) -> list[Any]:
        return [self.pop() for _ in range(n_values)][::-1]

    def _pop_to_mark(self) -> list[Any]:
        items = []
        while (value := self.stack.pop()) is not _MARK:
            items.append(value)
        return items[::-1]

    def _target(self, kind: type[T]) -> T:
        target = self._top()
        if not isinstance(target, kind):
            raise Refusal(f"values added to {describe(target)}")
        return target

    # Names and calls

    def _push_global(self, name: str) -> None:
        known = find_global(name)
        if known is None:
            raise Refusal(f"the global {name[:80]}, which Petastorm does not write")
        self.stack.append(known)

    def _make_by_call(self, function: Any, arguments: Any) -> Any:
        """What ``function(*arguments)`` would be, made without calling it.

        Raises:
            Refusal: it is no function that we have a rule for, or its arguments are not those that Petastorm gives.
        """
        if not isinstance(function, KnownGlobal) or function.role != "function":
            raise Refusal(f"a call of {describe(function)}, which is no function that we know")
        if not isinstance(arguments, tuple):
            raise Refusal(f"{describe(arguments)} where a tuple of arguments belongs")
        try:
            match function.name, arguments:
                # How protocols 0 and 1 make an object: its class, its base, what to make the base from.
                case "_reconstructor", (KnownGlobal(role="field") as known, KnownGlobal(role="base", name="tuple"), values):
                    return _new_object(known, values)
                case "_reconstructor", (known, KnownGlobal(role="base", name="object"), None):
                    return _new_object(known, ())
                # pyspark before 3.5 replaced the pickling of named tuples: the name, those of the attributes, their values.
                case "_restore", (name, tuple() as names, values) if text_of(name) == "UnischemaField":
                    if tuple(map(text_of, names)) == _FIELD_ATTRIBUTES:
                        return _new_object(KnownGlobal("field", "UnischemaField"), values)
                case ("OrderedDict", ()) | ("defaultdict", (KnownGlobal(name="set"),)):
                    return DictNode()
                case "OrderedDict", (list() as pairs,):  # of Python 2: lists of two
                    self._spend(len(pairs))
                    if all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
                        return DictNode([(pair[0], pair[1]) for pair in pairs])
                case "set", ():
                    return SetNode()
                case "set", (list() as items,):
                    return SetNode(items)
            return _plain_value(function.name, arguments)
        except (TypeError, OverflowError) as error:
            raise Refusal(f"a call of {function.name}: {error!s:.100}") from error


def _new_object(known: Any, arguments: Any) -> ObjectNode:
    """What ``known.__new__(known, *arguments)`` would be: only a field takes arguments, and it takes all five."""
    if not isinstance(known, KnownGlobal) or known.role not in ("schema", "field", "codec", "indexer", "spark_type"):
        raise Refusal(f"a new object of {describe(known)}, which is no class that we know")
    expected = len(_FIELD_ATTRIBUTES) if known.role == "field" else 0
    if not isinstance(arguments, tuple) or len(arguments) != expected:
        raise Refusal(f"a new {known.name} made from {describe(arguments)} instead of {expected} values")
    return ObjectNode(known, arguments)


def _build(*, state: Any, target: Any) -> None:
    """Give an object its attributes, or a dtype the rest of it, once."""
    if isinstance(target, ObjectNode) and target.known.role != "field" and isinstance(state, DictNode) and target.state is None:
        target.state = state
        return
    match target, state:  # a dtype: version, byte order, no parts, size, alignment, flags, and the unit of a time
        case DtypeNode(byte_order=""), (_, order, None, None, None, _, _, _, *more) if text_of(order) in ("<", ">", "|", "="):
            target.byte_order = ">" if text_of(order) == ">" else "<"
            if target.code[0] not in "Mm":
                return
            match more:
                case [(_, (bytes() | str() as unit, int() as count, *_))] if 1 <= count < 2**31:
                    name = unit.decode("latin-1") if isinstance(unit, bytes) else unit
                    if name in _TIME_UNITS:
                        target.unit = f"[{count}{name}]"
                        return
    raise Refusal(f"{describe(target)} given {describe(state)} as its attributes")


def _plain_value(function: str, arguments: tuple[Any, ...]) -> Any:
    """What the call of a function is that makes a plain value, or a dtype.

    Raises:
        Refusal, ValueError, TypeError, OverflowError: Petastorm never gives it such arguments.
    """
    match function, arguments:
        case "encode", (str() as text, "latin1"):  # how Python 3 writes bytes in protocols 0 to 2
            return text.encode("latin-1")
        case "bytes", ():
            return b""
        case "Decimal", (given,) if _DECIMAL.fullmatch(text_of(given) or ""):
            return Decimal(text_of(given) or "")
        case "dtype", (given, _, _) if match := _DTYPE.fullmatch(text_of(given) or ""):
            np.dtype(match[1])  # which refuses sizes that there are not
            return DtypeNode(match[1])
        case "scalar", (DtypeNode() as dtype, bytes() as raw):
            return _numpy_scalar(dtype, bytes(raw))
        case (("date" | "datetime" | "time"), (bytes() as raw, *zone)) if all(isinstance(each, timezone) for each in zone):
            return _TIMES[function](raw, *zone).replace()  # what is made of bytes is not checked, but what replaces it is
        case "timedelta", (int(), int(), int()):
            return timedelta(*arguments)
        case "timezone", (timedelta() as offset,):
            return timezone(offset)
    raise Refusal(f"a call of {function} with arguments that Petastorm never gives it")


def _numpy_scalar(dtype: DtypeNode, raw: bytes) -> Any:
    kind, size = dtype.code[0], int(dtype.code[1:])
    if len(raw) != (4 * size if kind == "U" else size) or (kind in "Mm" and not dtype.unit):
        raise Refusal(f"{len(raw)} bytes of dtype {dtype.code}{dtype.unit}")
    if kind == "S":
        return raw.rstrip(b"\0")  # also of a Python 2 str: here it is bytes for certain
    if kind == "U":
        return raw.decode("utf-32-be" if dtype.byte_order == ">" else "utf-32-le").rstrip("\0")
    scalar = np.frombuffer(raw, np.dtype(f"{dtype.byte_order}{dtype.code}{dtype.unit}"))[0]
    if isinstance(scalar, (np.datetime64, np.timedelta64)):
        return plain_time(scalar)
    return float(scalar) if isinstance(scalar, np.longdouble) else scalar.item()
