"""Checks documents before mlcroissant parses them, which trusts what it reads."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final

#: Limit of objects and lists inside of each other.
MAX_DEPTH: Final = 64
#: Limit of the number of objects, without those of inline data. mlcroissant takes half a
#: millisecond for each. A field has about four.
MAX_OBJECTS: Final = 50_000
#: Limit of the number of nodes if each reference is replaced by the object to which it refers.
#: mlcroissant goes through a document in this way.
_MAX_NODES: Final = 1_000_000

#: Words of JSON-LD that would make a parser read another document, or read this one otherwise.
_REFUSED_WORDS: Final = frozenset(
    {"@context", "@import", "@base", "@graph", "@reverse", "@included", "@nest"}
)


def check_document(document: Any) -> None:
    """Check that a parser of a document fetches no other document, and comes to an end.

    Args:
        document: parsed JSON.

    Raises:
        ValueError: the document names contexts elsewhere, refers to itself, or is too large.
    """
    context = document.get("@context") if isinstance(document, dict) else None
    if not isinstance(context, dict):
        raise ValueError(
            "it is not an object with an object as @context; contexts elsewhere are not fetched"
        )
    body = {key: value for key, value in document.items() if key != "@context"}
    inline_keys = _find_inline_keys(context)
    nodes = _list_objects(body, inline_keys)
    for node in itertools.chain(nodes, _iterate_objects(context, inline_keys=())):
        refused = _REFUSED_WORDS & node.keys()
        if refused:
            raise ValueError(f"{min(refused)} is only understood at the top, where it is an object")
    for meaning in context.values():
        if isinstance(meaning, str) and meaning.startswith("@"):
            raise ValueError("its @context renames words that begin with @")
    _References(nodes, context, inline_keys).check(body)


def _find_inline_keys(context: Mapping[str, Any]) -> set[str]:
    """Return the keys whose values are inline data, which has no references."""
    inline_keys = set()
    for key, meaning in context.items():
        if isinstance(meaning, dict) and meaning.get("@type") == "@json":
            inline_keys.add(key)
    return inline_keys


def _list_objects(body: Mapping[str, Any], inline_keys: Container[str]) -> list[dict[str, Any]]:
    """Return the objects of a document, without those of inline data.

    Raises:
        ValueError: there are too many, or they lie too deep inside of each other.
    """
    nodes: list[dict[str, Any]] = []
    for node in _iterate_objects(body, inline_keys):
        if len(nodes) == MAX_OBJECTS:
            raise ValueError(f"it has more than {MAX_OBJECTS:,} objects, besides inline data")
        nodes.append(node)
    return nodes


def _iterate_objects(value: Any, inline_keys: Container[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects in a value level by level, without those in inline data.

    Raises:
        ValueError: objects or lists lie too deep inside of each other.
    """
    level = [value]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(
                f"its objects and lists are more than {MAX_DEPTH} deep inside of each other"
            )
        next_level: list[Any] = []
        for element in level:
            if isinstance(element, list):
                next_level += element
            elif isinstance(element, dict):
                yield element
                next_level += _values_of(element, inline_keys)
        level = next_level


def _values_of(node: Mapping[str, Any], inline_keys: Container[str]) -> list[Any]:
    """Return the values of an object that are not inline data."""
    return [value for key, value in node.items() if key not in inline_keys]


class _References:
    """The references between the objects of a document, by their identifiers.

    Args:
        nodes: the objects of the document.
        context: the ``@context`` of the document.
        inline_keys: keys whose values are inline data.
    """

    _context: Mapping[str, Any]
    _inline_keys: Container[str]
    #: The values of all objects with an identifier, by the identifier.
    _values: dict[str, list[Any]]
    #: The number of nodes of the object with an identifier, by the identifier, where each reference
    #: counts as the object to which it refers.
    _n_nodes: dict[str, int]

    def __init__(
        self,
        nodes: Sequence[Mapping[str, Any]],
        context: Mapping[str, Any],
        inline_keys: Container[str],
    ) -> None:
        self._context = context
        self._inline_keys = inline_keys
        self._n_nodes = {}
        self._values = {}
        for node in nodes:
            if "@id" in node:
                identifier = self._full_identifier(node["@id"])
                self._values.setdefault(identifier, []).extend(node.values())

    def check(self, body: Mapping[str, Any]) -> None:
        """Check that no object refers to itself, and that references do not multiply the document.

        Args:
            body: the document without its context.

        Raises:
            ValueError: an object refers to itself, or there are too many nodes.
        """
        self._count_nodes(body, above=())

    def _count_nodes(self, value: Any, above: tuple[str, ...]) -> int:
        """Return the number of nodes of a value.

        Args:
            value: a value of the document.
            above: the identifiers of the objects that contain the value.

        Raises:
            ValueError: an object refers to itself, or there are too many nodes.
        """
        if isinstance(value, list):
            return self._count_nodes_of_container(value, above)
        if not isinstance(value, dict):
            return 1
        if "@id" not in value:
            return self._count_nodes_of_container(_values_of(value, self._inline_keys), above)
        identifier = self._full_identifier(value["@id"])
        if identifier in above:
            raise ValueError(f"{identifier!r:.80} refers to itself")
        if identifier not in self._n_nodes:
            values = self._values[identifier]
            n_nodes = self._count_nodes_of_container(values, (*above, identifier))
            self._n_nodes[identifier] = n_nodes
        return self._n_nodes[identifier]

    def _count_nodes_of_container(self, values: Sequence[Any], above: tuple[str, ...]) -> int:
        """Return the number of nodes of an object or list with some values."""
        n_nodes = 1
        for value in values:
            n_nodes += self._count_nodes(value, above)
        if n_nodes > _MAX_NODES:
            raise ValueError(f"its references, written out, are more than {_MAX_NODES:,} nodes")
        return n_nodes

    def _full_identifier(self, identifier: Any) -> str:
        """Return an identifier in the one form in which mlcroissant compares it.

        A prefix that the context declares is replaced by its meaning. Else the identifier is a
        path, in which ``a/../b`` means ``b``.
        """
        text = str(identifier)
        prefix, colon, name = text.partition(":")
        beginning = self._context.get(prefix)
        if colon and isinstance(beginning, str):
            return f"{beginning}{name}"
        return posixpath.normpath(text)
