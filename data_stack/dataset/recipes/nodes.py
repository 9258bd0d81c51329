"""The layers and sources of a stack, described as the nodes of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import AdaptedIterator, as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF, InformedDatasetIteratorIF
from data_stack.dataset.iterator.layers.in_memory import InMemoryDatasetIterator
from data_stack.dataset.iterator.stack import walk_stack
from data_stack.dataset.recipes.library_identity import column_of_numbers
from data_stack.dataset.recipes.recipe_values import class_name, probe

DATASET = "dataset"
"""The node of a dataset that a repository loads by name."""

TABLE_FILE = "table_file"
"""The node of a table that was read from a file."""

PLACE = "place"
"""The node of a file or folder of this machine that ``data_stack.load`` opened by its path."""

SEQUENCE = "sequence"
"""The node of columns in memory."""

IN_MEMORY = "in_memory"
"""The node of samples in memory that were read from an iterator."""

_INFORMED = "informed"

#: Types that may be used as an iterator, and hold samples only.
_PLAIN_SAMPLES = (list, tuple, np.ndarray)

#: What a node says of a dataset, beside a fingerprint of its samples.
_ORIGIN_KEYS = ("name", "version", "split", "config", "resources")


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """An iterator of a stack, described for a recipe or a fingerprint.

    Attributes:
        iterator: the iterator, or what is used as one.
        layer: the name of the layer; None for an iterator that ``from_recipe`` cannot make.
        below: the iterators that this iterator is stacked on.
        arguments: the arguments of the iterator's constructor; of a source what is known of its
            content.
    """

    iterator: Any
    layer: str | None
    below: list[Any]
    arguments: Mapping[str, Any]


def nodes_below(top: Any, describe: Callable[[Any], Node]) -> list[Node]:
    """Describe an iterator and all iterators below it, each once.

    Args:
        top: an iterator, or what is used as one.
        describe: describes one iterator.

    Returns:
        The nodes. A node comes after the nodes that it is stacked on, so ``top`` comes last.

    Raises:
        ConfigError: an iterator is stacked on itself.
    """
    nodes: dict[int, Node] = {}

    def describe_and_list_below(iterator: Any) -> list[Any]:
        node = describe(iterator)
        nodes[id(iterator)] = node
        return node.below

    iterators = [iterator for iterator, _below in walk_stack(top, describe_and_list_below)]
    return [nodes[id(iterator)] for iterator in iterators]


def describe_node(iterator: Any) -> Node:
    """Describe an iterator without reading samples or files.

    Of a source, the node names the class only.
    """
    origin = origin_of(iterator)
    if origin is not None:
        return Node(iterator, DATASET, [], _dataset_arguments(origin))

    layer = _layer_of(iterator)
    if layer == TABLE_FILE and iterator._read_from is not None:
        return Node(iterator, TABLE_FILE, [], iterator._read_from)
    if _is_source(iterator, layer):
        return describe_source(iterator, with_content=False)
    return Node(iterator, layer, _iterators_below(iterator), _layer_arguments(iterator, layer))


def describe_source(iterator: Any, *, with_content: bool) -> Node:
    """Describe an iterator that ``from_recipe`` cannot make.

    Args:
        iterator: the source.
        with_content: whether the node says what the source contains: the samples of a list or an
            array, the digests that a source knows, otherwise a digest of some samples. Without
            content, the node has the name of the class only.
    """
    samples = _adapted_samples(iterator)
    arguments: dict[str, Any] = {"class": class_name(samples)}
    if with_content:
        arguments.update(_source_content(iterator, samples))
    return Node(iterator, None, _iterators_below(iterator), arguments)


def _source_content(iterator: Any, samples: Any) -> dict[str, Any]:
    if type(samples) in _PLAIN_SAMPLES:
        return {"n_samples": len(samples), "samples": samples}
    if has_content_fingerprint(iterator):
        return {
            "n_samples": len(iterator),
            **iterator._arguments(),
            "content": access_to(iterator).content_fingerprint(),
        }
    return probe(samples)


# ------------------------------------------------------------------------------ loaded datasets


def origin_of(iterator: Any) -> Mapping[str, Any] | None:
    """Return what a repository noted of a dataset that it loaded; None for other iterators."""
    if not isinstance(iterator, InformedDatasetIteratorIF):
        return None
    origin = _own_attribute(iterator, "_origin")
    return origin if isinstance(origin, Mapping) else None


def is_known_by_resources(origin: Mapping[str, Any]) -> bool:
    """Return whether the digests of a dataset's prepared resources decide its samples.

    They do if the code that opens the resources is installed, so that its version is known.
    """
    return origin.get("resources") is not None and origin.get("distribution") is not None


def opened_by_factory(iterator: Any) -> DatasetIteratorIF | None:
    """Return the iterator that the factory of a dataset opened.

    Returns:
        The iterator below the loaded dataset; None if the loaded dataset is itself what the factory
        returned, an object of a class of its own.
    """
    if _layer_of(iterator) != _INFORMED:
        return None
    return as_iterator(iterator._dataset_iterator)


def list_origins(iterator: DatasetIteratorIF) -> tuple[list[Mapping[str, Any]], int]:
    """Return the datasets in a stack.

    Returns:
        What a repository noted of each dataset that it loaded, and the number of the sources that
        no repository loaded.
    """
    origins = []
    n_others = 0
    for node in nodes_below(iterator, describe_node):
        if node.layer == DATASET:
            origins.append(node.iterator._origin)
        elif not node.below:
            n_others += 1
    return origins, n_others


def _dataset_arguments(origin: Mapping[str, Any]) -> dict[str, Any]:
    arguments = {key: origin.get(key) for key in _ORIGIN_KEYS}
    # Options are passed by name, so their order means nothing.
    config = arguments["config"] or {}
    arguments["config"] = dict(sorted(config.items(), key=lambda option: str(option[0])))
    return arguments


# --------------------------------------------------------------------- files and folders by path


def note_place(
    iterator: DatasetIteratorIF, path: str, split: str | None, options: Mapping[str, Any]
) -> None:
    """Note on an iterator where its samples were opened, so that its recipe can name the place.

    Args:
        iterator: what was opened.
        path: the path of a file or folder of this machine.
        split: the split of the folder; None if it has no splits.
        options: the options with which :func:`data_stack.load` opened it.
    """
    place: Any = iterator
    place._opened_at = {"path": path, "split": split, "options": dict(options)}


def place_of(iterator: Any) -> Mapping[str, Any] | None:
    """Return what :func:`note_place` noted on an iterator; None if it was not opened by a path."""
    place: Mapping[str, Any] | None = _own_attribute(iterator, "_opened_at")
    return place


def _own_attribute(iterator: Any, name: str) -> Any:
    """Return an attribute of an object itself, or None.

    A wrapper of a client may forward attributes; those of what it wraps are not its own.
    """
    return getattr(iterator, "__dict__", {}).get(name)


# ------------------------------------------------------------------------------------------ layers


def _layer_of(iterator: Any) -> str | None:
    """Return the name of a layer; None for other classes, such as subclasses of a layer."""
    if not isinstance(iterator, DatasetIteratorIF) or "_layer_name" not in vars(type(iterator)):
        return None
    layer_name: str | None = iterator._layer_name
    return layer_name


def _is_source(iterator: Any, layer: str | None) -> bool:
    if layer is None or layer == TABLE_FILE:
        return True
    # Samples in memory without the iterator that they were read from are their own source.
    return type(iterator) is InMemoryDatasetIterator and not _iterators_below(iterator)


def _iterators_below(iterator: Any) -> list[Any]:
    if not isinstance(iterator, DatasetIteratorIF):
        return []
    return list(iterator._iterators_below() or ())


def _layer_arguments(iterator: Any, layer: str | None) -> Mapping[str, Any]:
    arguments: dict[str, Any] = dict(iterator._arguments())
    if layer == _INFORMED:
        return {"dataset_meta": arguments["dataset_meta"]}
    if layer == SEQUENCE:
        columns = arguments["dataset_sequences"]
        arguments["dataset_sequences"] = [_without_index(column) for column in columns]
    return arguments


def _without_index(column: Any) -> Any:
    """Return the numbers of a series of pandas; other columns as they are."""
    numbers = column_of_numbers(column)
    return column if numbers is None else numbers


# ----------------------------------------------------------------------------------------- sources


def has_content_fingerprint(iterator: Any) -> bool:
    """Return whether the whole content of a source is known, not only some of its samples."""
    samples = _adapted_samples(iterator)
    if samples is not iterator or not isinstance(iterator, DatasetIteratorIF):
        return type(samples) in _PLAIN_SAMPLES
    return type(access_to(iterator)).content_fingerprint is not SampleAccess.content_fingerprint


def samples_in_memory(iterator: Any) -> Sequence[Any] | None:
    """Return the samples of an iterator that keeps them in a list; None for any other."""
    if isinstance(iterator, InMemoryDatasetIterator):
        return iterator._kept_samples
    samples = _adapted_samples(iterator)
    return samples if type(samples) in _PLAIN_SAMPLES else None


def fingerprint_left_behind(iterator: Any) -> str | None:
    """Return the fingerprint of the source of samples in memory that were pickled without it."""
    if not isinstance(iterator, InMemoryDatasetIterator):
        return None
    return iterator._known_fingerprint


def has_source_in_memory(iterator: Any) -> bool:
    """Return whether samples in memory still refer to the iterator that they were read from."""
    return isinstance(iterator, InMemoryDatasetIterator) and bool(iterator._iterators_below())


def arguments_without_samples(node: Node) -> Mapping[str, Any]:
    """Return the arguments of a layer, or of a source that knows its content, without samples."""
    if node.layer == SEQUENCE:
        return {}
    is_our_source = node.layer is None and isinstance(node.iterator, DatasetIteratorIF)
    if is_our_source and has_content_fingerprint(node.iterator):
        arguments: Mapping[str, Any] = node.iterator._arguments()
        return arguments
    return node.arguments


def _adapted_samples(iterator: Any) -> Any:
    """Return what a client passed in place of an iterator; an iterator itself."""
    if isinstance(iterator, AdaptedIterator):
        return iterator.adapted_samples
    return iterator
