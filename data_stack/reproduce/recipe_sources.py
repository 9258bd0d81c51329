"""Finds the nodes of a recipe that iterators of the caller stand for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from data_stack.codecs.plain_data import shorten
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.recipes.recipe import node_digests, recipe
from data_stack.exception import ConfigError, RecipeError
from data_stack.reproduce.recipe_nodes import RecipeNode


def match_sources(nodes: Sequence[RecipeNode], sources: Any) -> dict[int, DatasetIteratorIF]:
    """Return the source for each node that sources stand for, by the number of the node.

    A source takes the place of the nodes that are equal to the last node of its own recipe. Several
    sources with equal last nodes are used in their order, one for each such node.

    Raises:
        ConfigError: ``sources`` is not a list of iterators.
        RecipeError: no node equals the last node of a source; or several sources are alike, but
            not as many as there are nodes for them.
    """
    if isinstance(sources, DatasetIteratorIF) or not isinstance(sources, Iterable):
        raise ConfigError(
            f"sources are a list of iterators, got {shorten(sources)}; "
            f"for one write sources=[iterator]"
        )
    # An iterator that is passed twice counts once. Iterators cannot be compared by ==.
    distinct_sources = list({id(source): source for source in sources}.values())
    if not distinct_sources:
        return {}
    sources_of_digest = _digest_sources(distinct_sources)
    numbers_of_digest = _digest_nodes(nodes)

    source_of_node: dict[int, DatasetIteratorIF] = {}
    for digest, alike_sources in sources_of_digest.items():
        numbers = numbers_of_digest.get(digest, [])
        n_sources = len(alike_sources)
        if not numbers or n_sources not in (1, len(numbers)):
            raise RecipeError(
                f"{n_sources} sources look like {alike_sources[0]!r:.80}, but {len(numbers)} nodes "
                f"equal its last; pass one source for all such nodes, or one for each in their "
                f"order"
            )
        if n_sources == 1:
            alike_sources = alike_sources * len(numbers)
        source_of_node.update(zip(numbers, alike_sources, strict=True))
    return source_of_node


def _digest_sources(sources: Sequence[Any]) -> dict[str, list[DatasetIteratorIF]]:
    """Return the sources by the digest of the last node of their recipes."""
    sources_of_digest: defaultdict[str, list[DatasetIteratorIF]] = defaultdict(list)
    for number, source in enumerate(sources):
        if not isinstance(source, DatasetIteratorIF):
            raise ConfigError(f"sources are iterators; number {number} is {shorten(source)}")
        last_digest = node_digests(recipe(source)["nodes"])[-1]
        sources_of_digest[last_digest].append(source)
    return sources_of_digest


def _digest_nodes(nodes: Sequence[RecipeNode]) -> dict[str, list[int]]:
    """Return the numbers of the nodes by their digests."""
    try:
        digests = node_digests([node._asdict() for node in nodes])
    except (TypeError, ValueError, RecursionError) as error:
        raise RecipeError(f"invalid JSON data: {error!s:.200}") from error
    numbers_of_digest: defaultdict[str, list[int]] = defaultdict(list)
    for number, digest in enumerate(digests):
        numbers_of_digest[digest].append(number)
    return numbers_of_digest
