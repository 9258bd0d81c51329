"""The fingerprint of a stack: a digest of all that decides its samples."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.iterator.blocks import estimate_bytes
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layers.in_memory import InMemoryDatasetIterator
from data_stack.dataset.recipes.nodes import (
    DATASET,
    IN_MEMORY,
    SEQUENCE,
    TABLE_FILE,
    Node,
    describe_node,
    describe_source,
    fingerprint_left_behind,
    has_source_in_memory,
    is_known_by_resources,
    nodes_below,
    opened_by_factory,
)
from data_stack.dataset.recipes.recipe_values import class_name, content_of, probe
from data_stack.exception import ResourceChangedError, ResourceNotFoundError

MAX_EMBEDDED_BYTES = 1 << 20
"""The largest data of a source that a recipe contains, in bytes.

Larger arguments are also left out of a fingerprint for which nothing may be read.
"""

#: Fingerprints are kept with splits and caches. A change of what they cover changes this number.
_FINGERPRINT_VERSION = 3

#: Layers that do not change samples.
_TRANSPARENT_LAYERS = ("informed", "in_memory", "cached", "stored_cache")

#: Arguments that do not change samples, by their names.
_TRANSPARENT_ARGUMENTS = ("view_tags",)


def fingerprint(iterator: DatasetIteratorIF, *, of_samples: bool = True) -> str:
    """Return a digest of all that decides the samples of a stack.

    Args:
        iterator: the stack.
        of_samples: whether the content of sources counts. If False, nothing is read: the digest
            then leaves out sources that no repository loaded, and large arguments.

    Returns:
        A SHA-256, as 64 hex digits.
    """
    describe = _describe_up_to_memory if of_samples else describe_node
    digests: dict[int, str] = {}
    digest = ""
    for node in nodes_below(iterator, describe):
        digests_below = [digests[id(below)] for below in node.below]
        digest = _fingerprint_of_node(node, digests_below, of_samples=of_samples)
        digests[id(node.iterator)] = digest
    # The stack itself is the last node.
    return digest


def describe_with_content(iterator: Any) -> Node:
    """Describe an iterator as a node of a recipe, with all that decides its samples.

    Files are read for their digests, and some samples of a class that is not of data_stack.
    """
    node = describe_node(iterator)
    if node.layer is None:
        return describe_source(iterator, with_content=True)
    if node.layer != DATASET:
        return node
    samples = None
    if not is_known_by_resources(iterator._origin):
        samples = samples_content(iterator)
    return replace(node, arguments={**node.arguments, "samples": samples})


def samples_content(iterator: Any) -> str:
    """Return the fingerprint of the iterator that the factory of a dataset opened."""
    opened = opened_by_factory(iterator)
    if opened is not None:
        return fingerprint(opened)
    # The dataset is an object of the factory's own class.
    return json_digest({"class": class_name(iterator), **probe(iterator)})


def argument_content(layer: str | None, name: str, value: Any) -> Any:
    """Return plain data that is equal for equal values of an argument.

    Args:
        layer: the layer of the node that has the argument.
        name: the name of the argument.
        value: the value of the argument.
    """
    # Functions may tell apart samples that are tuples, lists, or dicts in different orders.
    if layer == SEQUENCE:
        return content_of(value, of_samples=True)
    if layer is None and name == "samples":
        return {"sha256": json_digest(content_of(value, of_samples=True))}
    # Layers take a tuple as they take a list. The order of a dict counts, as in ratios.
    if isinstance(value, tuple):
        return content_of(list(value))
    return content_of(value)


def _describe_up_to_memory(iterator: Any) -> Node:
    """Describe an iterator; of samples in memory nothing below, which may have changed since."""
    if has_source_in_memory(iterator):
        return Node(iterator, IN_MEMORY, [], {})
    return describe_with_content(iterator)


def _fingerprint_of_node(node: Node, digests_below: list[str], *, of_samples: bool) -> str:
    if node.layer in _TRANSPARENT_LAYERS and len(digests_below) == 1:
        return digests_below[0]
    if node.layer == IN_MEMORY:
        return _fingerprint_in_memory(node.iterator)
    known_fingerprint = fingerprint_left_behind(node.iterator)
    if known_fingerprint is not None:
        return known_fingerprint

    if node.layer == TABLE_FILE:
        # The samples are the same wherever the file lies.
        node = describe_source(node.iterator, with_content=of_samples)
    arguments = node.arguments if of_samples else _small_arguments(node)
    return _digest_node(node.layer, digests_below, arguments)


def _small_arguments(node: Node) -> dict[str, Any]:
    """Return the arguments of a node that count if nothing may be read."""
    if not node.below and node.layer != DATASET:
        return {}
    return {
        name: value
        for name, value in node.arguments.items()
        if estimate_bytes(value) <= MAX_EMBEDDED_BYTES
    }


def _digest_node(layer: str | None, digests_below: list[str], arguments: Mapping[str, Any]) -> str:
    contents = {
        name: argument_content(layer, name, value)
        for name, value in arguments.items()
        if name not in _TRANSPARENT_ARGUMENTS
    }
    return json_digest(
        {
            "fingerprint": _FINGERPRINT_VERSION,
            "layer": layer,
            "of": digests_below,
            "arguments": contents,
        }
    )


def _fingerprint_in_memory(iterator: InMemoryDatasetIterator) -> str:
    """Return the fingerprint of samples in memory: that of their source when it was read.

    If the source has changed since, or is gone, the samples are their own source.
    """
    if iterator._kept_fingerprint is None:
        iterator._kept_fingerprint = _compute_fingerprint_in_memory(iterator)
    return iterator._kept_fingerprint


def _compute_fingerprint_in_memory(iterator: InMemoryDatasetIterator) -> str:
    if not iterator.has_changed_sources():
        (source,) = iterator._iterators_below()
        with suppress(ResourceChangedError, ResourceNotFoundError):
            return fingerprint(source)
    described = describe_source(iterator, with_content=True)
    return _digest_node(None, [], described.arguments)
