"""Reads the nodes of a recipe, and checks their form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

from data_stack.codecs.plain_data import shorten
from data_stack.dataset.recipes.nodes import DATASET, PLACE
from data_stack.dataset.recipes.recipe import RECIPE_VERSION
from data_stack.exception import ConfigError, RecipeError
from data_stack.reproduce.recipe_layers import import_layers
from data_stack.util.untrusted_text import describe_format, distinct_fields, parse_json

_FIELDS = {"layer", "of", "arguments"}


class RecipeNode(NamedTuple):
    """One iterator of a recipe.

    Attributes:
        number: its position in the recipe.
        layer: the name of its class, ``"dataset"``, ``"place"``, or None for an iterator that no
            recipe can make.
        of: the numbers of the nodes that it is stacked on, which come before it.
        arguments: plain data by name.
    """

    number: int
    layer: str | None
    of: list[int]
    arguments: dict[str, Any]


def refuse(node: RecipeNode, reason: str, cause: BaseException | None = None) -> NoReturn:
    """Raise a RecipeError that names the node."""
    raise RecipeError(reason, node.number, node.layer) from cause


def list_names(names: Iterable[Any]) -> str:
    """Return names for a message, sorted; they may be of any type."""
    return ", ".join(sorted(shorten(name) for name in names)) or "none"


def read_nodes(recipe: Any) -> list[RecipeNode]:
    """Return the nodes of a recipe, or of its JSON text.

    Raises:
        RecipeError: the recipe is damaged or of another version, or a node is malformed.
        ConfigError: ``recipe`` is neither a dict nor text.
    """
    if isinstance(recipe, (str, bytes, bytearray)):
        try:
            recipe = parse_json(recipe, object_pairs_hook=distinct_fields)
        except ValueError as error:
            raise RecipeError(f"the recipe is not valid JSON: {error!s:.200}") from error
    elif not isinstance(recipe, Mapping):
        raise ConfigError(f"a recipe is a dict, or its JSON text, not a {type(recipe).__name__}")
    version = recipe.get("data_stack_recipe") if isinstance(recipe, Mapping) else None
    if type(version) is not int or version != RECIPE_VERSION:
        raise RecipeError(
            f"its 'data_stack_recipe' {describe_format(version, RECIPE_VERSION)}. "
            f"iterator.recipe() makes recipes"
        )
    nodes = recipe.get("nodes")
    if not isinstance(nodes, list) or not nodes:
        raise RecipeError(
            f"the nodes of a recipe are a list that is not empty; these are {shorten(nodes)}"
        )
    return [_read_node(number, fields) for number, fields in enumerate(nodes)]


def _read_node(number: int, fields: Any) -> RecipeNode:
    if not isinstance(fields, dict) or fields.keys() != _FIELDS:
        raise RecipeError(
            f"a node has the fields {list_names(_FIELDS)}; this is {shorten(fields)}", number
        )
    layer = fields["layer"]
    if not _is_known_layer(layer):
        raise RecipeError(
            f"this version of data_stack has no layer {shorten(layer)}", number, str(layer)
        )
    node = RecipeNode(number, layer, fields["of"], fields["arguments"])
    if not _are_numbers_below(node.of, number):
        refuse(
            node,
            f"a node is stacked on nodes before it, by their numbers; this is {shorten(node.of)}",
        )
    if not _has_text_keys(node.arguments):
        refuse(
            node,
            f"the arguments are an object, with texts as keys; these are {shorten(node.arguments)}",
        )
    return node


def _is_known_layer(layer: Any) -> bool:
    if layer in (None, DATASET, PLACE):
        return True
    return isinstance(layer, str) and layer in import_layers()


def _are_numbers_below(numbers: Any, limit: int) -> bool:
    if not isinstance(numbers, list):
        return False
    # A bool is an int, but no number of a node.
    return all(type(number) is int and 0 <= number < limit for number in numbers)


def _has_text_keys(arguments: Any) -> bool:
    return isinstance(arguments, dict) and all(type(name) is str for name in arguments)
