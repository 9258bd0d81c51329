"""What a pickle is decoded to: inert nodes of ours, whatever objects the pickle speaks of.

Beside nodes, values are None, bool, int, float, str, bytes and what :mod:`.calls` makes of dates, decimals and numpy scalars.
Nothing here hashes or compares what came from a pickle, and nothing walks through nodes: shared or recursive ones cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from data_stack.formats.parquet.pickled.known_globals import KnownGlobal

__all__ = [
    "MAX_DEPTH",
    "DictNode",
    "DtypeNode",
    "ListNode",
    "ObjectNode",
    "PythonTwoString",
    "Refusal",
    "SetNode",
    "TupleNode",
    "described",
]

#: Containers within containers; Petastorm needs 10.
MAX_DEPTH = 64


class Refusal(ValueError):
    """A pickle holds something that we do not decode.

    Attributes:
        problem: what was found.
        offset: in bytes; None where the machine is to add its own.
    """

    def __init__(self, problem: str, offset: int | None = None) -> None:
        super().__init__(problem, offset)
        self.problem, self.offset = problem, offset

    def __str__(self) -> str:
        return self.problem


class PythonTwoString(bytes):
    """A ``str`` of Python 2: text or bytes, the pickle does not say which."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class _Container:
    offset: int
    depth: int = field(default=1, init=False)

    def _hold(self, item: Any) -> None:
        if isinstance(item, _Container) and item.depth >= self.depth:
            self.depth = item.depth + 1
            if self.depth > MAX_DEPTH:
                raise Refusal(f"containers more than {MAX_DEPTH} deep in each other")


@dataclass(slots=True, eq=False)
class TupleNode(_Container):
    """A tuple."""

    items: tuple[Any, ...]

    def __post_init__(self) -> None:
        for item in self.items:
            self._hold(item)


@dataclass(slots=True, eq=False)
class ListNode(_Container):
    """A list."""

    items: list[Any] = field(default_factory=list)
    _given_away: bool = False

    def give_away(self) -> list[Any]:
        """Its items, for the one set or dict that is made from it; a list named by a million sets would be a bomb.

        Raises:
            Refusal: they have been given away before.
        """
        if self._given_away:
            raise Refusal("two collections made from one list")
        self._given_away = True
        return self.items

    def append(self, item: Any) -> None:
        self._hold(item)
        self.items.append(item)


@dataclass(slots=True, eq=False)
class SetNode(_Container):
    """A set, as the list of what was added to it."""

    items: list[Any] = field(default_factory=list)

    def add(self, item: Any) -> None:
        self._hold(item)
        self.items.append(item)


@dataclass(slots=True, eq=False)
class DictNode(_Container):
    """A dict, OrderedDict or defaultdict(set), as the list of what was stored in it; of equal keys the last one counts."""

    items: list[tuple[Any, Any]] = field(default_factory=list)

    def store(self, key: Any, value: Any) -> None:
        self._hold(key)
        self._hold(value)
        self.items.append((key, value))


@dataclass(slots=True, eq=False)
class ObjectNode(_Container):
    """An object of a known class: a schema, field, codec, Spark type or indexer."""

    known: KnownGlobal
    arguments: tuple[Any, ...] = ()
    state: DictNode | None = None

    def __post_init__(self) -> None:
        for argument in self.arguments:
            self._hold(argument)

    def build(self, state: Any) -> None:
        """Give the object its attributes, once.

        Raises:
            Refusal: it has some, its class has none, or they are no dict.
        """
        if self.known.role == "field" or not isinstance(state, DictNode):
            raise Refusal(f"{described(self)} given {described(state)} as its attributes")
        if self.state is not None:
            raise Refusal(f"attributes given to {described(self)} twice")
        self._hold(state)
        self.state = state


@dataclass(slots=True, eq=False)
class DtypeNode(_Container):
    """A dtype of numpy: its code (``"U"``), its size in bytes, its byte order; a unit where it is a time.

    Attributes:
        unit: with its count, e.g. ``"[ns]"``, or ``""``.
        built: whether byte order and unit have been given.
    """

    code: str
    itemsize: int
    byte_order: str = "<"
    unit: str = ""
    built: bool = False


def described(value: Any) -> str:
    """A short name of a value for a message; never more of it than a few characters."""
    if isinstance(value, ObjectNode):
        return f"a {value.known.role.replace('_', ' ')} ({value.known.name})"
    if isinstance(value, KnownGlobal):
        return f"the {value.role.replace('_', ' ')} {value.name}"
    if isinstance(value, _Container):
        return f"a {type(value).__name__.removesuffix('Node').lower()}"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, (str, bytes)):
        return repr(value if len(value) <= 40 else value[:40]) + ("" if len(value) <= 40 else "…")
    return f"a {type(value).__name__}"
