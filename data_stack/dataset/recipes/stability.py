"""Finds out what a fingerprint does not cover: edited functions, and samples that may change."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.recipes.code_description import describe_code
from data_stack.dataset.recipes.nodes import (
    DATASET,
    SEQUENCE,
    Node,
    arguments_without_samples,
    describe_node,
    fingerprint_left_behind,
    has_content_fingerprint,
    is_known_by_resources,
    nodes_below,
    opened_by_factory,
    samples_in_memory,
)
from data_stack.dataset.recipes.recipe_values import (
    class_name,
    content_if_known,
    content_of,
    other_values,
)

#: Types whose values plain data show completely.
_SIMPLE_TYPES: frozenset[type] = frozenset({type(None), bool, int, float, str, bytes})


def code_digest(iterator: DatasetIteratorIF) -> str | None:
    """Return a digest of the code of the functions that a stack calls, and of all that they use.

    A fingerprint holds the names of functions, and is the same in all versions of Python. This
    digest changes if a function of the program, or one that it calls, is edited, and with the
    version of Python. It is for caches, which can be made again. See
    :mod:`data_stack.dataset.recipes.code_description`.

    Returns:
        A SHA-256, as 64 hex digits; None if the stack calls no functions.
    """
    digests = []
    for node in nodes_below(iterator, describe_node):
        for value in other_values(arguments_without_samples(node)):
            digest = describe_code(value, content_if_known).digest
            if digest is not None:
                digests.append(digest)
    if not digests:
        return None
    return hashlib.sha256("".join(digests).encode("ascii")).hexdigest()


def instability_reason(iterator: DatasetIteratorIF) -> str | None:
    """Return why the fingerprint of a stack cannot be relied on.

    Such a fingerprint may miss a change of the samples, or is valid in this process only. No
    sample is read, except for lists in memory.

    Returns:
        A sentence; None if the fingerprint can be relied on.
    """
    for node in nodes_below(iterator, describe_node):
        reasons = _instability_reasons(node)
        if reasons:
            layer_name = node.layer or class_name(node.iterator)
            return f"{layer_name}: {reasons[0]}"
    return None


def _instability_reasons(node: Node) -> Sequence[str]:
    """Return why one node makes the fingerprint of its stack unreliable."""
    if node.layer == DATASET:
        return _reasons_of_dataset(node)
    if node.layer is None and not has_content_fingerprint(node.iterator):
        return ["its class is not of data_stack, so only you know when its samples change"]
    if fingerprint_left_behind(node.iterator) is not None:
        return ["it comes from another process and has left there what it was read from"]
    if node.layer == SEQUENCE:
        return _reasons_of_samples(node.arguments.get("dataset_sequences", ()))
    if node.layer is None:
        samples = samples_in_memory(node.iterator)
        if samples is not None:
            return _reasons_of_samples(samples)
    return _reasons_of_arguments(node)


def _reasons_of_dataset(node: Node) -> Sequence[str]:
    """Return why the fingerprint of a dataset that a repository loaded is unreliable."""
    reasons: list[str] = []
    content_of(node.arguments["config"], reasons=reasons)
    if is_known_by_resources(node.iterator._origin):
        return reasons

    opened = opened_by_factory(node.iterator)
    if opened is None:
        reasons.append(
            f"its factory returned {class_name(node.iterator)}, which is not of data_stack"
        )
        return reasons
    reason = instability_reason(opened)
    if reason is not None:
        reasons.append(reason)
    return reasons


def _reasons_of_samples(columns: Sequence[Any]) -> Sequence[str]:
    """Return why samples in memory may change unseen; ``columns`` are columns or samples."""
    reasons: list[str] = []
    columns_of_objects = [column for column in columns if _may_hold_objects(column)]
    content_of(columns_of_objects, of_samples=True, reasons=reasons)
    return reasons


def _reasons_of_arguments(node: Node) -> Sequence[str]:
    """Return why the arguments of a layer make its fingerprint unreliable."""
    reasons: list[str] = []
    arguments = arguments_without_samples(node)
    content_of(arguments, reasons=reasons)
    for value in other_values(arguments):
        reasons.extend(describe_code(value, content_if_known).reasons)
    return reasons


def _may_hold_objects(column: Any) -> bool:
    """Return whether a column may hold values that plain data do not show completely.

    Arrays of numbers and lists of text need not be looked at value by value.
    """
    column_type = type(column)
    if column_type in (np.ndarray, np.memmap):
        return bool(column.dtype.hasobject)
    if column_type in (list, tuple):
        return not {type(value) for value in column} <= _SIMPLE_TYPES
    return column_type not in _SIMPLE_TYPES
