"""Makes the iterator that a node of a recipe describes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from data_stack.codecs.plain_data import shorten
from data_stack.dataset.iterator import InformedDatasetIteratorIF
from data_stack.dataset.meta import DatasetMetaIF
from data_stack.dataset.recipes.fingerprint import (
    describe_with_content,
    fingerprint,
    samples_content,
)
from data_stack.dataset.recipes.nodes import describe_node
from data_stack.exception import (
    DatasetFileCorruptError,
    DataStackError,
    MissingDependencyError,
    PluginError,
    PreparationError,
    RecipeError,
    RetrievalError,
    StorageError,
)
from data_stack.repository.dataset_names import PlaceName, is_place
from data_stack.repository.default_storage import Storage
from data_stack.repository.places import Place
from data_stack.repository.repository import DatasetRepository
from data_stack.reproduce.recipe_layers import import_layers
from data_stack.reproduce.recipe_nodes import RecipeNode, list_names, refuse

_DATASET_ARGUMENTS = {"name", "version", "split", "config", "resources", "samples"}
_PLACE_ARGUMENTS = {"path", "split", "options", "samples"}

#: Errors of the environment, and those that name their node already. They pass through.
_PASSING_ERRORS: tuple[type[DataStackError], ...] = (
    DatasetFileCorruptError,
    MissingDependencyError,
    PluginError,
    PreparationError,
    RecipeError,
    RetrievalError,
    StorageError,
)

_ADVICE = (
    "Samples differ: prepare the dataset as it was then, from its store or the code of then, "
    "or make the recipe again"
)


# ---------------------------------------------------------------------- a dataset


def load_dataset(
    node: RecipeNode,
    arguments: Mapping[str, Any],
    repository: DatasetRepository,
    storage: Storage | None,
) -> Any:
    """Load the dataset that a node names, and compare it with the recipe.

    Args:
        node: the node.
        arguments: the arguments of the node, as values.
        repository: knows the dataset.
        storage: where the dataset is kept.

    Raises:
        RecipeError: the dataset cannot be loaded, or its resources or samples differ.
    """
    _check_arguments_of_dataset(node, arguments)
    name = arguments["name"]
    version = arguments["version"]
    split = arguments["split"]
    try:
        dataset: Any = repository.resolve(_versioned_name(name, version), storage)
        if dataset.version != version:
            refuse(
                node,
                f"the recipe has dataset {name!r} without version; "
                f"version {dataset.version} is installed. {_ADVICE}",
            )
        if split is None and dataset.splits:
            refuse(
                node,
                f"dataset {name!r} has the splits {list_names(dataset.splits)}, "
                f"but the recipe names none of them",
            )
        loaded = dataset.load(split, **arguments["config"])
        _check_resources(node, loaded, name, arguments["resources"])
    except _PASSING_ERRORS:
        raise
    except Exception as error:  # noqa: BLE001  # any factory may raise anything
        refuse(node, f"dataset {name!r} cannot be loaded: {_reason_of(error)}", error)
    samples = arguments["samples"]
    if samples is not None:
        loaded_samples = samples_content(loaded)
        if loaded_samples != samples:
            refuse(
                node,
                f"the samples of dataset {name!r} have the fingerprint {loaded_samples}, "
                f"in the recipe {shorten(samples)}. {_ADVICE}",
            )
    return loaded


def _check_arguments_of_dataset(node: RecipeNode, arguments: Mapping[str, Any]) -> None:
    if not _is_dataset(node, arguments):
        refuse(
            node,
            f"a dataset has the arguments {list_names(_DATASET_ARGUMENTS)}, a name (a path or URL "
            f"comes in sources=), resources or a fingerprint; this has {shorten(arguments)}",
        )


def _is_dataset(node: RecipeNode, arguments: Mapping[str, Any]) -> bool:
    if arguments.keys() != _DATASET_ARGUMENTS or node.of:
        return False
    name = arguments["name"]
    # A recipe of a stranger must not make this program open a path or URL.
    if not isinstance(name, str) or is_place(_versioned_name(name, arguments["version"])):
        return False
    has_fingerprint = isinstance(arguments["samples"], str)
    has_resources = arguments["samples"] is None and bool(arguments["resources"])
    return has_fingerprint or has_resources


def _versioned_name(name: str, version: Any) -> str:
    return name if version is None else f"{name}@{version}"


def _check_resources(node: RecipeNode, loaded: Any, name: str, expected_resources: Any) -> None:
    """Check that the prepared resources have the digests of the recipe, if it has any."""
    if expected_resources is None:
        return
    resources = describe_node(loaded).arguments.get("resources") or {}
    for identifier in sorted({**expected_resources, **resources}):
        expected_sha256 = expected_resources.get(identifier)
        sha256 = resources.get(identifier)
        if sha256 != expected_sha256:
            refuse(
                node,
                f"resource {identifier!r:.200} of dataset {name!r} has SHA-256 {sha256}, "
                f"in the recipe it has {expected_sha256}. {_ADVICE}",
            )


# ---------------------------------------------------------------------- a file or folder


def open_place(node: RecipeNode, arguments: Mapping[str, Any]) -> Any:
    """Open the samples of the file or folder that a node names by its path.

    Args:
        node: the node.
        arguments: the arguments of the node, as values.

    Raises:
        RecipeError: there is no such file or folder here, or its samples differ.
    """
    if not _is_place_node(node, arguments):
        refuse(
            node,
            f"a place has the arguments {list_names(_PLACE_ARGUMENTS)}: a path, a split or null, "
            f"and options; this has {shorten(arguments)}",
        )
    path: str = arguments["path"]
    # A recipe of a stranger must not make this program open a URL, or a device.
    if "://" in path:
        refuse(node, f"a place is a path of this machine, not a URL: {shorten(path)}")
    if not os.path.isfile(path) and not os.path.isdir(path):
        refuse(
            node, f"there is no file or folder {shorten(path)}; pass the data as one of sources=[…]"
        )
    try:
        opened = Place.at(PlaceName.parse(path)).load(arguments["split"], **arguments["options"])
    except _PASSING_ERRORS:
        raise
    except Exception as error:  # noqa: BLE001  # options may be of any type
        refuse(node, f"{shorten(path)} cannot be opened: {_reason_of(error)}", error)
    if isinstance(opened, dict):
        refuse(
            node,
            f"{shorten(path)} has the splits {list_names(opened)}, but the recipe names none",
        )
    samples = fingerprint(opened)
    if samples != arguments["samples"]:
        refuse(
            node,
            f"the samples of {shorten(path)} have the fingerprint {samples}, in the recipe "
            f"{shorten(arguments['samples'])}. The files differ from those of the recipe: restore "
            f"them, or make the recipe again",
        )
    return opened


def _is_place_node(node: RecipeNode, arguments: Mapping[str, Any]) -> bool:
    if arguments.keys() != _PLACE_ARGUMENTS or node.of:
        return False
    has_split = arguments["split"] is None or isinstance(arguments["split"], str)
    has_options = isinstance(arguments["options"], Mapping)
    return isinstance(arguments["path"], str) and has_split and has_options


# ---------------------------------------------------------------------- a layer


def stack_layer(node: RecipeNode, below: list[Any], arguments: dict[str, Any]) -> Any:
    """Stack the layer that a node names on the iterators below it.

    Args:
        node: the node.
        below: the iterators of the nodes that it is stacked on.
        arguments: the arguments of the node, as values.

    Raises:
        RecipeError: the layer cannot be made of these arguments, or on these iterators.
    """
    layer_class: Any = import_layers()[str(node.layer)]
    # Its other arguments are the origin of a dataset, which only the loading of a dataset may set.
    if node.layer == "informed" and arguments.keys() != {"dataset_meta"}:
        refuse(node, f"it has the argument 'dataset_meta' alone, not {list_names(arguments)}")
    try:
        layer = layer_class._from_arguments(below, arguments)
        meta = layer.dataset_meta if isinstance(layer, InformedDatasetIteratorIF) else None
        description = describe_with_content(layer)
    except _PASSING_ERRORS:
        raise
    except Exception as error:  # noqa: BLE001  # constructors may raise anything
        refuse(node, f"it cannot be made of its arguments: {_reason_of(error)}", error)
    if meta is not None and not isinstance(meta, DatasetMetaIF):
        refuse(node, f"its meta is {shorten(meta)}")
    unknown_arguments = arguments.keys() - description.arguments.keys()
    if unknown_arguments:
        refuse(
            node,
            f"it has no arguments {list_names(unknown_arguments)}; "
            f"it has {list_names(description.arguments)}",
        )
    if not _are_same(description.below, below):
        refuse(node, f"it cannot be stacked on {len(below)} iterators")
    return layer


def _are_same(iterators: Any, others: list[Any]) -> bool:
    """Return whether two lists hold the same objects."""
    if len(iterators) != len(others):
        return False
    return all(one is other for one, other in zip(iterators, others, strict=True))


def _reason_of(error: Exception) -> str:
    if isinstance(error, DataStackError):
        return str(error)
    return f"{type(error).__name__}: {error!s:.300}"
