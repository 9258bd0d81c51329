"""Stubs, which stand for the classes, functions and objects of a pickle.

A stub does nothing that the class, function or object would do. The unpickler can fill stubs of
sets, dicts, objects and dtypes; it cannot set any other attribute of a stub. Stubs compare by
identity: comparing or hashing nested values of a stranger could take forever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from data_stack_petastorm.pickles.known_globals import KnownGlobal

#: Units of times of numpy.
_TIME_UNITS: Final = frozenset(
    {"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"}
)

#: numpy keeps the number of units in a signed integer of 32 bits.
_MAX_UNITS: Final = 2**31 - 1

#: The length of the state of a dtype of numpy, without the metadata of times.
_N_DTYPE_ATTRIBUTES: Final = 8


class Refusal(ValueError):
    """A pickle contains something that is not decoded; the message says what."""


class Stub:
    """Stands for something in a pickle; setting its attributes is refused."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        raise self._refusal_of_state(state)

    def _refusal_of_state(self, state: Any) -> Refusal:
        """Return the error for attributes that this stub does not take."""
        return Refusal(f"{describe(self)} given {describe(state)} as its attributes")


@dataclass(slots=True, eq=False)
class SetStub(Stub):
    """A set, as the list of the items that were added to it.

    Attributes:
        items: the items; equal ones are not joined.
    """

    items: list[Any] = field(default_factory=list)

    def add(self, item: Any) -> None:
        """Add an item; the unpickler calls this."""
        self.items.append(item)


@dataclass(slots=True, eq=False)
class DictStub(Stub):
    """A dict, OrderedDict or defaultdict of sets, as the list of its items.

    Attributes:
        items: pairs of a key and a value; of equal keys, the last one counts.
    """

    items: list[tuple[Any, Any]] = field(default_factory=list)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Add an item; the unpickler calls this."""
        self.items.append((key, value))


@dataclass(slots=True, eq=False)
class ObjectStub(Stub):
    """An object of a known class: a schema, field, codec, Spark type or indexer.

    Attributes:
        known: its class.
        arguments: the values of a field; other objects have none.
        state: its attributes; None without any. A field has none.
    """

    known: KnownGlobal
    arguments: tuple[Any, ...] = ()
    state: DictStub | None = None

    def __setstate__(self, state: Any) -> None:
        is_field = self.known.role == "field"
        is_set = self.state is not None
        if is_field or is_set or not isinstance(state, DictStub):
            raise self._refusal_of_state(state)
        self.state = state


@dataclass(slots=True, eq=False)
class DtypeStub(Stub):
    """A dtype of numpy.

    Attributes:
        code: its kind and size, such as ``"U3"``.
        byte_order: ``"<"`` or ``">"``; empty until the unpickler sets the state of the dtype.
        unit: the unit of a time, such as ``"[ns]"``; empty for others.
    """

    code: str
    byte_order: str = ""
    unit: str = ""

    def __setstate__(self, state: Any) -> None:
        was_set_before = self.byte_order != ""
        if was_set_before or not isinstance(state, (tuple, list)):
            raise self._refusal_of_state(state)
        if len(state) < _N_DTYPE_ATTRIBUTES:
            raise self._refusal_of_state(state)
        # numpy's order. The size, the alignment and the flags come last; the code implies them.
        _version, byte_order, subarray, names, fields, *_ = state
        metadata = state[_N_DTYPE_ATTRIBUTES:]

        is_structured = any(part is not None for part in (subarray, names, fields))
        is_byte_order = isinstance(byte_order, str) and byte_order in ("<", ">", "|", "=")
        if is_structured or not is_byte_order:
            raise self._refusal_of_state(state)
        # "|" says that there is no order. "=" is taken as little-endian, as on the machines that
        # Petastorm runs on.
        self.byte_order = ">" if byte_order == ">" else "<"
        is_time = self.code[0] in "Mm"
        if is_time:
            unit = _unit_of_time(metadata)
            if unit is None:
                raise self._refusal_of_state(state)
            self.unit = unit


def _unit_of_time(metadata: tuple[Any, ...] | list[Any]) -> str | None:
    """Return the unit in the metadata of a dtype of times, such as ``"[25us]"``.

    Args:
        metadata: what follows the flags in the state of a dtype. Times have one pair there: a dict,
            and a tuple (name of the unit, number of units, …).

    Returns:
        The unit; None if the metadata is not such a pair.
    """
    match metadata:
        case [(_, (bytes() | str() as unit, int() as n_units, *_))]:
            name = unit.decode("latin-1") if isinstance(unit, bytes) else unit
            if name in _TIME_UNITS and 1 <= n_units <= _MAX_UNITS:
                return f"[{n_units}{name}]"
    return None


class GlobalStub(Stub):
    """A known class or function of a pickle; a call of it makes a stub or a plain value.

    Args:
        known: what it is.
        call: makes the result of a call, from ``known`` and the arguments.

    Attributes:
        known: as given.
    """

    __slots__ = ("_call", "known")

    def __init__(
        self, known: KnownGlobal, call: Callable[[KnownGlobal, tuple[Any, ...]], Any]
    ) -> None:
        self.known = known
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        """Make the result of a call; the unpickler calls this."""
        return self._call(self.known, arguments)


def describe(value: Any) -> str:
    """Return a short name of a value for a message."""
    if isinstance(value, (ObjectStub, GlobalStub)):
        return f"the {value.known.role} {value.known.name}"
    if isinstance(value, (str, bytes)):
        return repr(value[:40])
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    type_name = type(value).__name__.removesuffix("Stub").lower()
    return f"a {type_name}"
