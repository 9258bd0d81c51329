"""Checks documents before mlcroissant parses them: they are finite, and name no others."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final

#: Objects and lists inside of each other.
MAX_DEPTH: Final = 64
#: Objects but those of inline data. For each, mlcroissant takes half a millisecond; a field has
#: about four.
MAX_OBJECTS: Final = 50_000
#: Nodes of a document with each reference written out, which is how mlcroissant goes through it.
_MAX_NODES: Final = 1_000_000

#: Words of JSON-LD that would make a parser read another document, or read this one otherwise.
_REFUSED_WORDS: Final = frozenset(
    {"@context", "@import", "@base", "@graph", "@reverse", "@included", "@nest"}
)


def check_document(document: Any) -> None:
    """Refuse what would make a parser fetch other documents, or work without end.

    Args:
        document: parsed JSON.

    Raises:
        ValueError: the document has such a thing.
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
    if any(isinstance(value, str) and value.startswith("@") for value in context.values()):
        raise ValueError("its @context renames words that begin with @")
    _References(nodes, context, inline_keys).check(body)


def _find_inline_keys(context: Mapping[str, Any]) -> set[str]:
    """Return the keys whose values are inline data, in which nothing refers to anything."""
    return {
        key
        for key, meaning in context.items()
        if isinstance(meaning, dict) and meaning.get("@type") == "@json"
    }


def _list_objects(body: Mapping[str, Any], inline_keys: Container[str]) -> list[dict[str, Any]]:
    """Return the objects of a document, without those of inline data.

    Raises:
        ValueError: there are too many, or they lie too deep inside of each other.
    """
    nodes = list(itertools.islice(_iterate_objects(body, inline_keys), MAX_OBJECTS + 1))
    if len(nodes) > MAX_OBJECTS:
        raise ValueError(f"it has more than {MAX_OBJECTS:,} objects, besides inline data")
    return nodes


def _iterate_objects(value: Any, inline_keys: Container[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects in a value, but those in inline data, level by level.

    Raises:
        ValueError: they lie too deep inside of each other.
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
        for element in level:
            if isinstance(element, dict):
                yield element
                next_level += _values_of(element, inline_keys)
        level = next_level


def _values_of(node: Mapping[str, Any], inline_keys: Container[str]) -> list[Any]:
    """Return the values of an object that are not inline data."""
    return [value for key, value in node.items() if key not in inline_keys]


class _References:
    """The references between the objects of a document, by their identifiers.

    Args:
        nodes: the objects.
        context: of the document.
        inline_keys: keys whose values refer to nothing.
    """

    #: By identifier the values of all objects that have it.
    _values: dict[str, list[Any]]
    #: By identifier the number of nodes below it, with each reference written out.
    _weights: dict[str, int]

    def __init__(
        self,
        nodes: Sequence[Mapping[str, Any]],
        context: Mapping[str, Any],
        inline_keys: Container[str],
    ) -> None:
        self._context = context
        self._inline_keys = inline_keys
        self._weights = {}
        self._values = {}
        for node in nodes:
            if "@id" in node:
                identifier = self._full_identifier(node["@id"])
                self._values.setdefault(identifier, []).extend(node.values())

    def check(self, body: Mapping[str, Any]) -> None:
        """Check that the document is finite, and not too large with each reference written out.

        mlcroissant goes through it so.

        Raises:
            ValueError: it is not.
        """
        self._weigh(body, above=())

    def _weigh(self, value: Any, above: tuple[str, ...]) -> int:
        """Return the number of nodes of a value.

        Args:
            value: a value of the document.
            above: the identifiers of the objects that contain it.
        """
        if isinstance(value, list):
            return self._sum_up(value, above)
        if not isinstance(value, dict):
            return 1
        if "@id" not in value:
            return self._sum_up(_values_of(value, self._inline_keys), above)
        identifier = self._full_identifier(value["@id"])
        if identifier in above:
            raise ValueError(f"{identifier!r:.80} refers to itself")
        if identifier not in self._weights:
            values = self._values[identifier]
            self._weights[identifier] = self._sum_up(values, (*above, identifier))
        return self._weights[identifier]

    def _sum_up(self, values: Sequence[Any], above: tuple[str, ...]) -> int:
        """Return the number of nodes of some values and of the one that contains them."""
        weight = 1 + sum(self._weigh(value, above) for value in values)
        if weight > _MAX_NODES:
            raise ValueError(f"its references, written out, are more than {_MAX_NODES:,} nodes")
        return weight

    def _full_identifier(self, identifier: Any) -> str:
        """Return an identifier with its prefix written out, or as a normal path."""
        text = str(identifier)
        prefix, colon, name = text.partition(":")
        beginning = self._context.get(prefix)
        if colon and isinstance(beginning, str):
            return f"{beginning}{name}"
        return posixpath.normpath(text)
