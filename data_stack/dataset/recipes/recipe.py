"""Stacks of iterators as plain JSON data: their recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from data_stack.codecs.plain_data import canonical_json, json_digest
from data_stack.dataset.iterator.blocks import estimate_bytes
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.recipes.fingerprint import (
    MAX_EMBEDDED_BYTES,
    argument_content,
    describe_with_content,
    fingerprint,
)
from data_stack.dataset.recipes.nodes import PLACE, SEQUENCE, Node, nodes_below, place_of
from data_stack.dataset.recipes.written_values import write

RECIPE_VERSION = 2
"""The version of the form of recipes that :func:`recipe` writes."""


def recipe(iterator: DatasetIteratorIF) -> dict[str, Any]:
    """Describe a stack as plain JSON data that names it exactly.

    The form is described in ``docs/reference/recipes.md``.
    """
    nodes: list[dict[str, Any]] = []
    why_not: list[str] = []
    # The numbers of the nodes: by the ids of the iterators, and by the content of the nodes.
    number_by_id: dict[int, int] = {}
    number_by_content: dict[str, int] = {}

    for node in nodes_below(iterator, _describe_by_place):
        reasons: list[str] = []
        fields = {
            "layer": node.layer,
            "of": [number_by_id[id(below)] for below in node.below],
            "arguments": _write_arguments(node, reasons),
        }
        content = canonical_json(fields)
        # Equal nodes are written once. Where the content is not known completely, nodes may differ
        # though they look equal, so each of them is written.
        if reasons or content not in number_by_content:
            number = len(nodes)
            number_by_content[content] = number
            nodes.append(fields)
            layer_name = node.layer or "not of data_stack"
            why_not.extend(f"node {number} ({layer_name}): {reason}" for reason in reasons)
        number_by_id[id(node.iterator)] = number_by_content[content]

    return {
        "data_stack_recipe": RECIPE_VERSION,
        "nodes": nodes,
        "reproducible": not why_not,
        "why_not": why_not,
    }


def node_digests(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return for each node of a recipe a SHA-256 of the node and all that it is stacked on.

    Raises:
        TypeError, ValueError, RecursionError: the nodes are not JSON data.
    """
    digests: list[str] = []
    for node in nodes:
        arguments = node["arguments"]
        if node["layer"] == PLACE:
            # The samples are the same wherever the files lie.
            arguments = {"samples": arguments.get("samples")}
        content = {
            "layer": node["layer"],
            "of": [digests[number] for number in node["of"]],
            "arguments": arguments,
        }
        digests.append(json_digest(content))
    return digests


def _describe_by_place(iterator: Any) -> Node:
    """Describe an iterator; one that was opened by a path is described by this path."""
    place = place_of(iterator)
    if place is not None:
        return Node(iterator, PLACE, [], {**place, "samples": fingerprint(iterator)})
    return describe_with_content(iterator)


def _write_arguments(node: Node, why_not: list[str]) -> dict[str, Any]:
    """Write the arguments of a node as plain data.

    Args:
        node: the node.
        why_not: receives a sentence for each reason why the node cannot be made again.
    """
    if node.layer is None:
        why_not.append(
            f"from_recipe cannot make {node.arguments['class']}; open a file or folder by "
            "data_stack.load(path), which a recipe can name, or pass such an iterator to "
            "from_recipe as one of sources=[…]"
        )
        return _argument_contents(node)

    # The data of a source are written into the recipe if they are small.
    is_source = not node.below
    if is_source:
        n_bytes = sum(estimate_bytes(value) for value in node.arguments.values())
        if n_bytes > MAX_EMBEDDED_BYTES:
            why_not.append(
                f"the recipe has only the SHA-256 of about {n_bytes:,} bytes of data; "
                "pass the iterator as one of sources=[…]"
            )
            return {
                name: {"digest": {"sha256": json_digest(content)}}
                for name, content in _argument_contents(node).items()
            }

    holds_samples = node.layer == SEQUENCE
    return {
        name: write(value, why_not, of_samples=holds_samples)
        for name, value in node.arguments.items()
    }


def _argument_contents(node: Node) -> dict[str, Any]:
    return {
        name: argument_content(node.layer, name, value) for name, value in node.arguments.items()
    }
