"""Makes the stack of iterators that a recipe describes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.recipes.nodes import DATASET, PLACE
from data_stack.repository.default_storage import Storage
from data_stack.repository.repository import DatasetRepository, default_repository
from data_stack.reproduce.recipe_arguments import RecipeArguments
from data_stack.reproduce.recipe_iterators import load_dataset, open_place, stack_layer
from data_stack.reproduce.recipe_nodes import RecipeNode, read_nodes
from data_stack.reproduce.recipe_sources import match_sources


def from_recipe(
    recipe: Mapping[str, Any] | str | bytes,
    *,
    storage: Storage | None = None,
    sources: Iterable[Any] = (),
    functions: Mapping[str, Callable[..., Any]] | None = None,
    repository: DatasetRepository | None = None,
) -> DatasetIteratorIF:
    """Make the stack of iterators that a recipe describes.

    ::

        recipe = train.shuffle(seed=1).take(1000).recipe()        # plain JSON data
        again = data_stack.from_recipe(recipe)                    # on another machine, next year

    A recipe may come from a stranger: it is data, and runs no code of its own. It can name
    datasets, which are loaded as by ``data_stack.load``. It can name files and folders of this
    machine, whose samples must have the fingerprint that the recipe gives. It can name functions,
    which are called only if ``functions`` allows them. It can still ask for more work than you have
    time for.

    Args:
        recipe: returned by :meth:`~data_stack.DatasetIteratorIF.recipe`, or its JSON text.
        storage: where datasets, and caches in a store, are kept: a connector, a path or a URL; None
            for the default store.
        sources: iterators that stand for what no recipe can make, such as an iterator of your own
            class or large arrays. Each takes the place of the nodes that are equal to the last node
            of its own recipe. Sources with equal last nodes are used in their order: the first one
            for the first such node, and so on.
        functions: functions that the recipe may call, by their names in the recipe, such as
            ``{"package.module:name": name}``.
        repository: finds the datasets; None for the default repository.

    Raises:
        RecipeError: the recipe is damaged or of another version; it names a layer, function,
            dataset or version that does not exist here, or a function that is not allowed; or
            something must be passed as one of ``sources``. The error names the node.
        ConfigError: an argument has another type.
        RetrievalError, PreparationError, StorageError, PluginError, MissingDependencyError: a
            dataset could not be loaded.
    """
    nodes = read_nodes(recipe)
    source_of_node = match_sources(nodes, sources)
    reader = RecipeArguments(storage, dict(functions or {}))
    arguments_of_node = _read_arguments(nodes, source_of_node, reader)
    # Before anything is loaded, one error names all that is missing.
    reader.check_that_nothing_is_missing()

    iterators: dict[int, Any] = dict(source_of_node)
    for node in nodes:
        if node.number not in arguments_of_node:
            continue
        arguments = arguments_of_node[node.number]
        if node.layer == DATASET:
            iterator = load_dataset(node, arguments, repository or default_repository(), storage)
        elif node.layer == PLACE:
            iterator = open_place(node, arguments)
        else:
            below = [iterators[number] for number in node.of]
            iterator = stack_layer(node, below, arguments)
        iterators[node.number] = iterator
    top: DatasetIteratorIF = iterators[len(nodes) - 1]
    return top


def _read_arguments(
    nodes: Sequence[RecipeNode], given: Collection[int], reader: RecipeArguments
) -> dict[int, dict[str, Any]]:
    """Read the arguments of the nodes that are needed, by the number of the node.

    The last node is needed, and so is each node that a needed node is stacked on. Nodes that the
    caller has ``given`` as sources are not made, nor are the nodes that only these are stacked on.
    """
    arguments_of_node: dict[int, dict[str, Any]] = {}
    needed = {len(nodes) - 1}
    # A node comes after those that it is stacked on.
    for node in reversed(nodes):
        if node.number not in needed or node.number in given:
            continue
        arguments = reader.read(node)
        if arguments is not None:
            arguments_of_node[node.number] = arguments
            needed.update(node.of)
    return arguments_of_node
