"""Makes the arguments of a recipe's nodes from plain data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from data_stack.codecs.plain_data import from_plain, shorten
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.dataset.recipes.function_names import NAMED
from data_stack.exception import ConfigError, RecipeError
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.encoders import encoder_from_state
from data_stack.reproduce.recipe_nodes import RecipeNode, refuse

#: Takes the place of a value that the caller must pass; it is never given to a layer.
_ABSENT: Any = object()

#: The largest number of nodes or functions that an error lists.
_MAX_LISTED = 20

#: An error shows at most this many characters of the name of a value.
_MAX_NAME_CHARACTERS = 300


class RecipeArguments:
    """Makes the arguments of nodes, and notes what the caller must pass.

    A recipe may be a stranger's: only functions that the caller allows are called, and no store is
    opened but that of the caller.

    Args:
        storage: where datasets and caches are kept; None for the default store.
        functions: the functions that the recipe may call, by name.
    """

    _storage: Storage | None
    _functions: Mapping[str, Callable[..., Any]]

    #: The nodes that cannot be made from the recipe, a line each.
    _unavailable_nodes: list[str]

    #: The functions that are not allowed, a line each by name.
    _refused_functions: dict[str, str]

    #: The node whose arguments are read.
    _node: RecipeNode

    #: Why an argument of this node cannot be made.
    _reasons: list[str]

    #: Makes the values that plain JSON data cannot be, by the key that marks them.
    _makers: Mapping[str, Callable[[Any], Any]]

    def __init__(
        self, storage: Storage | None, functions: Mapping[str, Callable[..., Any]]
    ) -> None:
        self._storage = storage
        self._functions = functions
        self._unavailable_nodes = []
        self._refused_functions = {}
        self._reasons = []
        self._makers = {
            "dataset_meta": self._make_meta,
            "digest": self._note_digest,
            "encoder": encoder_from_state,
            "function": self._find_function,
            "partial": self._make_partial,
            "storage": self._make_storage_connector,
            "tensor": self._make_tensor,
            "unknown": self._note_object,
            "unnamed": self._note_unnamed_function,
        }

    def read(self, node: RecipeNode) -> dict[str, Any] | None:
        """Return the arguments of a node as values.

        None: an argument, or the iterator itself, cannot be made from a recipe. The reason is
        noted for :meth:`check_that_nothing_is_missing`.

        Raises:
            RecipeError: an argument is malformed.
        """
        if node.layer is None:
            class_name = node.arguments.get("class")
            n_samples = shorten(node.arguments.get("n_samples"))
            self._unavailable_nodes.append(
                f"node {node.number}: an iterator of {class_name!s:.300} with {n_samples} samples"
            )
            return None
        self._node = node
        self._reasons = []
        arguments: dict[str, Any] = {}
        try:
            for name, plain in node.arguments.items():
                arguments[name] = self._make_value(plain)
        except RecursionError as error:
            refuse(node, "nested too deeply", error)
        except ConfigError as error:
            refuse(node, str(error), error)
        if self._reasons:
            self._unavailable_nodes.append(
                f"node {node.number} ({node.layer}): {'; '.join(self._reasons)}"
            )
            return None
        return arguments

    def check_that_nothing_is_missing(self) -> None:
        """Check that all nodes that were read can be made.

        Raises:
            RecipeError: the caller must pass something; it says what.
        """
        if self._unavailable_nodes:
            problem = (
                f"{len(self._unavailable_nodes)} of the recipe's nodes cannot be made from it. "
                f"Give the iterator that each was, as sources=[…]:"
            )
            raise RecipeError("\n  ".join([problem, *self._unavailable_nodes[:_MAX_LISTED]]))
        if self._refused_functions:
            problem = (
                "the recipe calls functions that are not allowed. "
                "If you trust them, pass functions={…}"
            )
            lines = list(self._refused_functions.values())
            raise RecipeError("\n  ".join([problem, *lines[:_MAX_LISTED]]))

    def _make_value(self, plain: Any) -> Any:
        return from_plain(plain, self._makers)

    # ------------------------------------------------------------------ functions

    def _find_function(self, content: Any) -> Any:
        """Return a function by ``"module:name"``, or by the name of a named function."""
        is_named = isinstance(content, dict) and content.keys() == {"name"}
        name = content["name"] if is_named else content
        if not isinstance(name, str):
            raise ConfigError(f"a function is named as 'module:name', this is {shorten(content)}")
        function = self._functions.get(name)
        if function is None and is_named:
            function = NAMED.get(name)
        if function is not None:
            return function
        line = f"node {self._node.number} ({self._node.layer}): {shorten(name)}"
        if is_named:
            line += "; or import the module that names it by @data_stack.named_function"
        self._refused_functions.setdefault(name, line)
        return _ABSENT

    def _make_partial(self, content: Any) -> Any:
        if not _is_partial(content):
            raise ConfigError(
                f"a partial function has a function, a list of arguments, and keywords, "
                f"this is {shorten(content)}"
            )
        function = self._make_value(content["function"])
        arguments = [self._make_value(plain) for plain in content["arguments"]]
        keywords: dict[str, Any] = {}
        for name, plain in content["keywords"].items():
            keywords[name] = self._make_value(plain)
        if function is _ABSENT:
            return _ABSENT
        if not callable(function):
            raise ConfigError(f"only a function can be partial, not {shorten(function)}")
        return functools.partial(function, *arguments, **keywords)

    # ------------------------------------------------------------------ other values

    def _make_storage_connector(self, content: Any) -> Any:
        if content is not None:
            raise ConfigError(
                f"a recipe must not name a store, but this one names {shorten(content)}"
            )
        return as_storage_connector(self._storage)

    def _make_tensor(self, content: Any) -> Any:
        has_fields = isinstance(content, dict) and content.keys() == {"dtype", "values"}
        if not has_fields or not isinstance(content["dtype"], str):
            raise ConfigError(f"a tensor has a dtype and values, this is {shorten(content)}")
        # It imports torch, which few recipes need.
        from data_stack.formats import torch_tensors

        try:
            values = self._make_value(content["values"])
            return torch_tensors.tensor_of(values, content["dtype"])
        except (TypeError, ValueError) as error:
            raise ConfigError(f"no tensor of dtype {shorten(content['dtype'])}: {error}") from error

    def _make_meta(self, content: Any) -> DatasetMeta:
        positions: dict[str, Any] = {}
        facts: dict[str, Any] = {}
        try:
            for name, plain in content.items():
                group = positions if name.endswith("_pos") else facts
                group[name] = self._make_value(plain)
            return DatasetMeta(IteratorMeta(**positions), **facts)
        except (TypeError, AttributeError) as error:
            raise ConfigError(f"no meta of a dataset: {error}") from error

    # ------------------------------------------------------------------ values that no recipe holds

    def _note_digest(self, content: Any) -> Any:
        return self._note("data with the SHA-256", content, "sha256")

    def _note_object(self, content: Any) -> Any:
        return self._note("an object of", content, "class")

    def _note_unnamed_function(self, content: Any) -> Any:
        return self._note("function", content, "function")

    def _note(self, kind: str, content: Any, field: str) -> Any:
        """Note a value that cannot be made again, and return the mark that takes its place.

        Args:
            kind: what the value is, for the error.
            content: the description of the value in the recipe.
            field: the field of ``content`` that names the value.
        """
        name = content.get(field) if isinstance(content, dict) else content
        if isinstance(name, str) and name.isprintable():
            text = name[:_MAX_NAME_CHARACTERS]
        else:
            text = shorten(name)
        self._reasons.append(f"{kind} {text}")
        return _ABSENT


def _is_partial(content: Any) -> bool:
    """Return whether plain data has the parts of a partial function."""
    if not isinstance(content, dict) or "function" not in content:
        return False
    has_arguments = isinstance(content.get("arguments"), list)
    return has_arguments and isinstance(content.get("keywords"), dict)
