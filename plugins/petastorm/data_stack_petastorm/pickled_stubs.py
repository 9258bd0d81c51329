"""Decodes Petastorm's pickles to plain values and inert stubs.

``pickle.Unpickler`` does the work. It finds no class or function: ``find_class`` returns stubs for the names in
:data:`~.pickled_globals.KNOWN_GLOBALS` and refuses all others. Before it starts, a scan by ``pickletools`` refuses opcodes that
Petastorm's pickles do not contain, and numbers for which the unpickler would allocate memory. The scan also replaces dicts and
sets by stubs, because hashing nested tuples from a stranger may take forever. Nothing here walks through nested values.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Final

import numpy as np

from data_stack_petastorm.column_codec import user_codecs
from data_stack_petastorm.pickled_globals import KNOWN_GLOBALS, KnownGlobal
from data_stack_petastorm.plain_times import plain_time

#: An index of a million values takes 60 MB; Parquet's readers take no more than 100 MB of metadata.
_MAX_BYTES: Final = 100_000_000
#: A value of an index takes about ten opcodes. Each one makes at most one object.
_MAX_OPCODES: Final = 20_000_000
_MAX_INTEGER_BITS: Final = 128
#: Parquet and Arrow keep at most 76 digits; without limits a short text could stand for a number of gigabytes.
_DECIMAL: Final = re.compile(
    r"[+-]?(?=\.?[0-9])[0-9]{0,100}\.?[0-9]{0,100}(?:[eE][+-]?[0-9]{1,2})?"
)
_DTYPE: Final = re.compile(r"[<>|=]?([biufcMm][0-9]{1,2}|[SU][0-9]{1,9})")
_TIME_UNITS: Final = frozenset(
    {"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"}
)
_FIELD_ATTRIBUTES: Final = ("name", "numpy_dtype", "shape", "codec", "nullable")
_TIMES: Final[dict[str, Any]] = {"date": date, "datetime": datetime, "time": time}
_CLASS_ROLES: Final = ("schema", "field", "codec", "indexer", "spark type")

_INTEGERS: Final = frozenset(("INT", "LONG", "LONG1", "LONG4"))
_PUTS: Final = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
_OTHER_OPCODES: Final = frozenset(
    (
        *("BININT", "BININT1", "BININT2", "NONE", "NEWTRUE", "NEWFALSE", "FLOAT", "BINFLOAT"),
        *(
            "UNICODE",
            "BINUNICODE",
            "SHORT_BINUNICODE",
            "BINUNICODE8",
            "STRING",
            "BINSTRING",
            "SHORT_BINSTRING",
        ),
        *(
            "BINBYTES",
            "SHORT_BINBYTES",
            "BINBYTES8",
            "MEMOIZE",
            "GET",
            "BINGET",
            "LONG_BINGET",
            "PROTO",
            "STOP",
            "MARK",
        ),
        *(
            "GLOBAL",
            "STACK_GLOBAL",
            "REDUCE",
            "BUILD",
            "EMPTY_LIST",
            "LIST",
            "APPEND",
            "APPENDS",
            "SETITEM",
            "SETITEMS",
        ),
        *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "ADDITEMS"),
    )
)
_NEW_DICT: Final = b"ccollections\nOrderedDict\n)R"
#: What stands for opcodes that would make real dicts or sets, or that need a real class.
_REPLACEMENTS: Final = {
    "EMPTY_DICT": _NEW_DICT,
    "EMPTY_SET": b"cbuiltins\nset\n)R",
    "NEWOBJ": b"R",
    "FRAME": b"",
}


class Refusal(ValueError):
    """A pickle contains something that is not decoded; the message says what."""


class Stub:
    """Stands for an object; setting its attributes is refused."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        raise Refusal(f"{describe(self)} given {describe(state)} as its attributes")


@dataclass(slots=True, eq=False)
class SetNode(Stub):
    """A set, as the list of what was added to it."""

    items: list[Any] = field(default_factory=list)

    def add(self, item: Any) -> None:
        """Add an item; the unpickler calls this."""
        self.items.append(item)


@dataclass(slots=True, eq=False)
class DictNode(Stub):
    """A dict, OrderedDict or defaultdict(set), as the list of its items; of equal keys the last one counts."""

    items: list[tuple[Any, Any]] = field(default_factory=list)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))


@dataclass(slots=True, eq=False)
class ObjectNode(Stub):
    """An object of a known class: a schema, field, codec, Spark type or indexer; ``state`` has its attributes."""

    known: KnownGlobal
    arguments: tuple[Any, ...] = ()
    state: DictNode | None = None

    def __setstate__(self, state: Any) -> None:
        if self.known.role == "field" or self.state is not None or not isinstance(state, DictNode):
            raise Refusal(f"{describe(self)} given {describe(state)} as its attributes")
        self.state = state


@dataclass(slots=True, eq=False)
class DtypeNode(Stub):
    """A dtype of numpy: its code (``"U3"``), its byte order, and the unit of a time such as ``"[ns]"``."""

    code: str
    byte_order: str = ""
    unit: str = ""

    def __setstate__(self, state: Any) -> None:
        match (
            state
        ):  # version, byte order, no parts, size, alignment, flags, and the unit of a time
            case (_, "<" | ">" | "|" | "=" as order, None, None, None, _, _, _, *more) if (
                not self.byte_order
            ):
                self.byte_order = ">" if order == ">" else "<"
                if self.code[0] not in "Mm":
                    return
                match more:
                    case [(_, (bytes() | str() as unit, int() as count, *_))] if 1 <= count < 2**31:
                        name = unit.decode("latin-1") if isinstance(unit, bytes) else unit
                        if name in _TIME_UNITS:
                            self.unit = f"[{count}{name}]"
                            return
        raise Refusal(f"a dtype given {describe(state)} as its attributes")


class GlobalNode(Stub):
    """A known class or function; calling it makes a stub or a plain value."""

    __match_args__ = ("role", "name")
    __slots__ = ("_unpickler", "known")

    def __init__(self, known: KnownGlobal, unpickler: _Unpickler) -> None:
        self.known, self._unpickler = known, unpickler

    @property
    def role(self) -> str:
        """What it may be used for."""
        return self.known.role

    @property
    def name(self) -> str:
        """Our name for it."""
        return self.known.name

    def __call__(self, *arguments: Any) -> Any:
        made = _make(self.known, arguments)
        self._unpickler.count(made)
        return made


class _Unpickler(pickle.Unpickler):
    """Looks names up in our table.

    A ``str`` of Python 2 may be text or bytes. It becomes a str, in which surrogates stand for bytes that are not UTF-8.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8", errors="surrogateescape")
        self._n_left = _MAX_BYTES

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        known = KNOWN_GLOBALS.get(full) or (
            KnownGlobal("codec", full) if full in user_codecs else None
        )
        if known is None:
            raise Refusal(f"the global {full[:80]!r}, which Petastorm does not write")
        return GlobalNode(known, self)

    def count(self, made: Any) -> None:
        """Count the size of what a call made: a short pickle can call a function on one value many times."""
        self._n_left -= (
            len(made)
            if isinstance(made, bytes)
            else len(made.items)
            if isinstance(made, DictNode)
            else 0
        )
        if self._n_left < 0:
            raise Refusal("more data than any schema or index needs")


def decode_pickle(data: bytes) -> Any:
    """Decode a pickle of protocol 0 to 5 to stubs and plain values; lists and tuples are Python's own.

    Raises:
        Refusal: it contains what Petastorm's pickles do not contain, is damaged, or too large.
    """
    if len(data) > _MAX_BYTES:
        raise Refusal(
            f"{len(data):,} bytes, more than the {_MAX_BYTES:,} that any schema or index needs"
        )
    try:
        return _Unpickler(_check_opcodes(data)).load()
    except Refusal:
        raise
    except (
        *(pickle.UnpicklingError, EOFError, AttributeError, TypeError),
        *(
            ValueError,
            LookupError,
            ArithmeticError,
            Warning,
        ),  # also of pickletools, such as for an unknown opcode
    ) as error:
        raise Refusal(f"an invalid opcode or value: {error!s:.200}") from error


def _check_opcodes(data: bytes) -> bytes:
    """The pickle, with stubs for dicts and sets, if each opcode is one that Petastorm's pickles contain.

    Raises:
        Refusal, ValueError: an opcode is not allowed, or its argument is too large.
    """
    safe, copied, previous, place = bytearray(), 0, "", 0
    argument: Any
    for number, (opcode, argument, start) in enumerate(pickletools.genops(data)):
        name, place = opcode.name, start or 0
        if name in _REPLACEMENTS:
            safe += data[copied:place] + _REPLACEMENTS[name]
            copied = place + (9 if name == "FRAME" else 1)
        elif name == "DICT" and previous == "MARK":
            safe += data[copied : place - 1] + _NEW_DICT
            copied = place + 1
        elif name in _INTEGERS:
            if argument.bit_length() > _MAX_INTEGER_BITS:
                raise Refusal(f"an integer of {argument.bit_length():,} bits")
        elif name in _PUTS:
            if argument > number:  # the unpickler allocates a list of this length
                raise Refusal(f"the memo {argument:,} after {number:,} opcodes")
        elif name not in _OTHER_OPCODES:
            raise Refusal(f"the opcode {name}, which Petastorm's pickles do not contain")
        if number > _MAX_OPCODES:
            raise Refusal("more objects than any schema or index needs")
        previous = name
    if place + 1 != len(data):
        raise Refusal("bytes after its end")
    return bytes(safe + data[copied:])


def describe(value: Any) -> str:
    """A short name of a value for a message."""
    if isinstance(value, (ObjectNode, GlobalNode)):
        return f"the {value.known.role} {value.known.name}"
    if isinstance(value, (str, bytes)):
        return repr(value[:40])
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    return f"a {type(value).__name__.removesuffix('Node').lower()}"


def _make(known: KnownGlobal, arguments: tuple[Any, ...]) -> Any:
    """What a call of a global would make, without calling it.

    Raises:
        Refusal, ValueError, TypeError, OverflowError, ArithmeticError: Petastorm's pickles do not contain such a call.
    """
    if known.role in _CLASS_ROLES:
        return _new_object(known, arguments)
    match known.name, arguments:
        # How protocols 0 and 1 make an object: its class, its base, what to make the base from.
        case "_reconstructor", (
            GlobalNode(role="field") as class_,
            GlobalNode("base", "tuple"),
            tuple() as values,
        ):
            return _new_object(class_.known, values)
        case "_reconstructor", (GlobalNode() as class_, GlobalNode("base", "object"), None):
            return _new_object(class_.known, ())
        # pyspark before 3.5 replaced the pickling of named tuples: the name, those of the attributes, their values.
        case "_restore", ("UnischemaField", tuple() as names, tuple() as values) if (
            names == _FIELD_ATTRIBUTES
        ):
            return _new_object(KnownGlobal("field", "UnischemaField"), values)
        case ("OrderedDict", ()) | ("defaultdict", (GlobalNode(name="set"),)):
            return DictNode()
        case "OrderedDict", (list() as pairs,) if all(
            isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs
        ):
            return DictNode([(pair[0], pair[1]) for pair in pairs])  # of Python 2
        case "set", ():
            return SetNode()
        case "set", (list() as items,):
            return SetNode(items)
        case "encode", (str() as text, "latin1"):  # how Python 3 writes bytes in protocols 0 to 2
            return text.encode("latin-1")
        case "bytes", ():
            return b""
        case "Decimal", (str() as given,) if _DECIMAL.fullmatch(given):
            return Decimal(given)
        case "dtype", (str() as given, _, _) if match := _DTYPE.fullmatch(given):
            np.dtype(match[1])  # which refuses sizes that do not exist
            return DtypeNode(match[1])
        case "scalar", (DtypeNode() as dtype, bytes() | str() as raw):
            return _numpy_scalar(dtype, _raw(raw))
        case (("date" | "datetime" | "time"), (bytes() | str() as raw, *zone)) if all(
            isinstance(each, timezone) for each in zone
        ):
            return _TIMES[known.name](
                _raw(raw), *zone
            ).replace()  # the constructor does not check bytes, but replace() does
        case "timedelta", (int(), int(), int()):
            return timedelta(*arguments)
        case "timezone", (timedelta() as offset,):
            return timezone(offset)
    raise Refusal(f"a call of {known.name} that Petastorm does not write")


def _new_object(known: KnownGlobal, arguments: tuple[Any, ...]) -> ObjectNode:
    """A new object: only a field takes arguments, and it takes all five."""
    if known.role not in _CLASS_ROLES or len(arguments) != (
        len(_FIELD_ATTRIBUTES) if known.role == "field" else 0
    ):
        raise Refusal(f"a new {known.name} with {len(arguments)} arguments")
    return ObjectNode(known, arguments)


def _raw(value: bytes | str) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _numpy_scalar(dtype: DtypeNode, raw: bytes) -> Any:
    kind, size = dtype.code[0], int(dtype.code[1:])
    if len(raw) != (4 * size if kind == "U" else size) or (kind in "Mm" and not dtype.unit):
        raise Refusal(f"{len(raw)} bytes of dtype {dtype.code}{dtype.unit}")
    if kind == "S":
        return raw.rstrip(b"\0")
    if kind == "U":
        return raw.decode("utf-32-be" if dtype.byte_order == ">" else "utf-32-le").rstrip("\0")
    scalar = np.frombuffer(raw, np.dtype(f"{dtype.byte_order}{dtype.code}{dtype.unit}"))[0]
    if isinstance(scalar, (np.datetime64, np.timedelta64)):
        return plain_time(scalar)
    return float(scalar) if isinstance(scalar, np.longdouble) else scalar.item()


# Parts of schemas and of indexes


def object_of(value: Any, role: str) -> ObjectNode:
    """A stub of an object with this role.

    Raises:
        Refusal: it is something else.
    """
    if not isinstance(value, ObjectNode) or value.known.role != role:
        raise Refusal(f"{describe(value)} where a {role} belongs")
    return value


def attributes_of(node: ObjectNode) -> dict[str, Any]:
    """The attributes of an object by name."""
    items = node.state.items if node.state is not None else ()
    return {text_of(name, "the name of an attribute"): value for name, value in items}


def text_of(value: Any, what: str) -> str:
    """A text.

    Raises:
        Refusal: it is something else, also a ``str`` of Python 2 that is not text.
    """
    text = plain_value(value) if isinstance(value, str) else None
    if not isinstance(text, str):
        raise Refusal(f"{describe(value)} as {what}")
    return text


def plain_value(value: Any) -> Any:
    """A plain value; a ``str`` of Python 2 that is not text is bytes.

    Raises:
        Refusal: it is a stub, list, tuple, or None.
    """
    if isinstance(value, str) and not value.isascii():
        try:
            text = value.encode("utf-16", "surrogatepass").decode(
                "utf-16", "surrogatepass"
            )  # Python 2 wrote pairs of surrogates
            raw = text.encode("utf-8", "surrogateescape")
        except UnicodeError as error:
            raise Refusal(f"the invalid text {value[:40]!r}") from error
        return raw if any("\ud800" <= character <= "\udfff" for character in text) else text
    # A bool is an int, a datetime is a date.
    if not isinstance(
        value,
        (
            str,
            bytes,
            int,
            float,
            complex,
            Decimal,
            date,
            time,
            timedelta,
            np.datetime64,
            np.timedelta64,
        ),
    ):
        raise Refusal(f"{describe(value)} as a value")
    return value
