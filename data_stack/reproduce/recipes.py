"""The way back from a recipe to the stack of iterators that it describes."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pkgutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from data_stack import exception
from data_stack.codecs.plain_data import from_plain, shorten
from data_stack.dataset.iterator import DatasetIteratorIF, InformedDatasetIteratorIF, layers
from data_stack.dataset.iterator.layer import LAYERS
from data_stack.dataset.meta import DatasetMeta, DatasetMetaIF, IteratorMeta
from data_stack.dataset.recipes.fingerprint import (
    describe_with_content,
    fingerprint,
    samples_content,
)
from data_stack.dataset.recipes.function_names import NAMED
from data_stack.dataset.recipes.nodes import DATASET, PLACE, describe_node
from data_stack.dataset.recipes.recipe import RECIPE_VERSION, node_digests, recipe
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DataStackError,
    MissingDependencyError,
    RecipeError,
)
from data_stack.repository.dataset_names import PlaceName, is_place
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.encoders import encoder_from_state
from data_stack.repository.places import Place
from data_stack.repository.repository import DatasetRepository, default_repository
from data_stack.util.untrusted_text import describe_format, distinct_fields, parse_json

_NODE_FIELDS = {"layer", "of", "arguments"}
_ORIGIN_FIELDS = {"name", "version", "split", "config", "resources", "samples"}
_PLACE_FIELDS = {"path", "split", "options", "samples"}


# Errors of the environment, and those that name their node already.
_ENVIRONMENT: tuple[type[DataStackError], ...] = (
    DatasetFileCorruptError,
    MissingDependencyError,
    exception.PluginError,
)
_ENVIRONMENT += (
    exception.PreparationError,
    exception.RetrievalError,
    exception.StorageError,
    RecipeError,
)

_ABSENT: Any = object()

_UNAVAILABLE = (
    "of the recipe's nodes cannot be made from it. Give the iterator that each was, as sources=[…]:"
)
_NOT_ALLOWED = (
    "the recipe calls functions that are not allowed. If you trust them, pass functions={…}"
)

_ADVICE = "Samples differ: prepare the dataset as it was then, from its store or the code of then, or make the recipe again"


def import_layers() -> dict[str, type[DatasetIteratorIF]]:
    """All layers; imports the modules that register some, those of optional packages where these are installed."""
    import data_stack.dataset.splits.parts
    import data_stack.formats.stored_cache

    for module in pkgutil.iter_modules(layers.__path__, f"{layers.__name__}."):
        importlib.import_module(module.name)
    with contextlib.suppress(MissingDependencyError):
        import data_stack.formats.text_tables.reading  # noqa: F401  # it registers its layer
    return LAYERS


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

    A recipe is data, also a stranger's. It can name datasets, which are loaded as by
    ``data_stack.load``, files and folders of this machine, whose samples must have the fingerprint
    that the recipe gives, and functions, which are called only if they are allowed here. It can
    still ask for more work than you have time for.

    Args:
        recipe: returned by :meth:`~data_stack.DatasetIteratorIF.recipe`, or its JSON text.
        storage: where datasets, and caches in a store, are kept: a connector, a path or a URL; None
            for the default store.
        sources: iterators that stand for what no recipe can make, such as an iterator of your own
            class or large arrays: each takes the place of the nodes that are equal to the last one
            of its own recipe. Of several alike, the first is for the first such node, and so on.
        functions: functions that the recipe may call, by the name that it calls them, e.g.
            ``{"package.module:name": name}``.
        repository: knows the datasets; None for the default one.

    Raises:
        RecipeError: the recipe is damaged or of another version, names a layer, function, dataset
            or version that is not there, a function that is not allowed, or something that has to
            be given as one of ``sources``. It names the node.
        ConfigError: an argument has another type.
        RetrievalError, PreparationError, StorageError, PluginError, MissingDependencyError: a
            dataset could not be loaded.
    """
    nodes = _nodes_of(recipe)
    given = _match_sources(nodes, sources)
    reader = _Reader(storage, dict(functions or {}))
    values: dict[int, dict[str, Any]] = {}
    needed = {len(nodes) - 1}
    for node in reversed(nodes):  # a node comes after what it is stacked on
        if (
            node.number in needed - given.keys()
            and (arguments := reader.arguments_of(node)) is not None
        ):
            values[node.number] = arguments
            needed.update(node.of)
    reader.check_that_nothing_is_missing()
    made: dict[int, Any] = dict(given)
    for node in nodes:
        if node.number in values and node.layer == DATASET:
            made[node.number] = _load(
                node, values[node.number], repository or default_repository(), storage
            )
        elif node.number in values and node.layer == PLACE:
            made[node.number] = _open_place(node, values[node.number])
        elif node.number in values:
            made[node.number] = _stack_layer(
                node, [made[number] for number in node.of], values[node.number]
            )
    return made[len(nodes) - 1]  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- the form of a recipe


class _Node(NamedTuple):
    number: int
    layer: Any
    of: Any
    arguments: Any


def _refuse(node: _Node, reason: str, cause: BaseException | None = None) -> NoReturn:
    raise RecipeError(reason, node.number, node.layer) from cause


def _nodes_of(recipe: Any) -> list[_Node]:
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
            f"its 'data_stack_recipe' {describe_format(version, RECIPE_VERSION)}. iterator.recipe() makes recipes"
        )
    nodes = recipe.get("nodes")
    if not isinstance(nodes, list) or not nodes:
        raise RecipeError(
            f"the nodes of a recipe are a list that is not empty; these are {shorten(nodes)}"
        )
    return [_check_node(number, node) for number, node in enumerate(nodes)]


def _check_node(number: int, fields: Any) -> _Node:
    if not isinstance(fields, dict) or fields.keys() != _NODE_FIELDS:
        raise RecipeError(
            f"a node has the fields {_list(_NODE_FIELDS)}; this is {shorten(fields)}", number
        )
    node = _Node(number, **fields)
    if node.layer not in (None, DATASET, PLACE) and not (
        isinstance(node.layer, str) and node.layer in import_layers()
    ):
        raise RecipeError(
            f"this version of data_stack has no layer {shorten(node.layer)}",
            number,
            str(node.layer),
        )
    if not isinstance(node.of, list) or not all(
        type(below) is int and 0 <= below < number for below in node.of
    ):
        _refuse(
            node,
            f"a node is stacked on nodes before it, by their numbers; this is {shorten(node.of)}",
        )
    if not isinstance(node.arguments, dict) or not all(
        type(name) is str for name in node.arguments
    ):
        _refuse(
            node,
            f"the arguments are an object, with texts as keys; these are {shorten(node.arguments)}",
        )
    return node


def _list(names: Iterable[Any]) -> str:
    return ", ".join(sorted(map(shorten, names))) or "none"


# ---------------------------------------------------------------------- sources and functions of the caller


def _match_sources(nodes: Sequence[_Node], sources: Any) -> dict[int, Any]:
    """For the numbers of nodes that sources stand for, the source."""
    if isinstance(sources, DatasetIteratorIF) or not isinstance(sources, Iterable):
        raise ConfigError(
            f"sources are a list of iterators, got {shorten(sources)}; for one write sources=[iterator]"
        )
    distinct = list({id(source): source for source in sources}.values())
    if not distinct:
        return {}
    alike = defaultdict[str, list[Any]](list)
    for number, source in enumerate(distinct):
        if not isinstance(source, DatasetIteratorIF):
            raise ConfigError(f"sources are iterators; number {number} is {shorten(source)}")
        alike[node_digests(recipe(source)["nodes"])[-1]].append(source)
    try:
        digests = node_digests([node._asdict() for node in nodes])
    except (TypeError, ValueError, RecursionError) as error:
        raise RecipeError(f"invalid JSON data: {error!s:.200}") from error
    given: dict[int, Any] = {}
    for digest, alike_sources in alike.items():
        numbers = [number for number, other in enumerate(digests) if other == digest]
        if not numbers or len(alike_sources) not in (1, len(numbers)):
            problem = f"{len(alike_sources)} sources look like {alike_sources[0]!r:.80}, but {len(numbers)} nodes equal its last"
            raise RecipeError(
                f"{problem}; pass one source for all such nodes, or one for each in their order"
            )
        given.update(
            zip(numbers, alike_sources * (len(numbers) // len(alike_sources)), strict=True)
        )
    return given


# ---------------------------------------------------------------------- the arguments of a node


class _Reader:
    """Makes values of plain data, and notes what the caller must pass."""

    def __init__(
        self, storage: Storage | None, functions: Mapping[str, Callable[..., Any]]
    ) -> None:
        self._storage, self._functions = storage, functions
        self._unavailable, self._reasons = list[str](), list[str]()
        self._not_allowed: dict[str, str] = {}
        self._special: dict[str, Callable[[Any], Any]] = {
            "dataset_meta": self._meta,
            "digest": self._without("data with the SHA-256", "sha256"),
            "encoder": encoder_from_state,
            "function": self._function,
            "partial": self._partial,
            "storage": self._storage_connector,
            "tensor": self._tensor,
            "unknown": self._without("an object of", "class"),
            "unnamed": self._without("function", "function"),
        }

    def arguments_of(self, node: _Node) -> dict[str, Any] | None:
        """The arguments as values; None if one of them, or the class itself, cannot be restored from a recipe."""
        if node.layer is None:
            kind, n_samples = node.arguments.get("class"), shorten(node.arguments.get("n_samples"))
            self._unavailable.append(
                f"node {node.number}: an iterator of {kind!s:.300} with {n_samples} samples"
            )
            return None
        self._reasons, self._node = [], node
        try:
            arguments = {name: self._value(plain) for name, plain in node.arguments.items()}
        except (ConfigError, RecursionError) as error:
            _refuse(
                node,
                "nested too deeply" if isinstance(error, RecursionError) else str(error),
                error,
            )
        if self._reasons:
            self._unavailable.append(
                f"node {node.number} ({node.layer}): {'; '.join(self._reasons)}"
            )
            return None
        return arguments

    def check_that_nothing_is_missing(self) -> None:
        """Raise RecipeError if the caller must pass something."""
        problem, missing = f"{len(self._unavailable)} {_UNAVAILABLE}", self._unavailable
        if not missing:
            problem, missing = _NOT_ALLOWED, list(self._not_allowed.values())
        if missing:
            raise RecipeError(problem + "".join(f"\n  {line}" for line in missing[:20]))

    def _value(self, plain: Any) -> Any:
        return from_plain(plain, self._special)

    def _function(self, content: Any) -> Any:
        is_named = isinstance(content, dict) and content.keys() == {"name"}
        name = content["name"] if is_named else content
        if not isinstance(name, str):
            raise ConfigError(f"a function is named as 'module:name', this is {shorten(content)}")
        found = self._functions.get(name, NAMED.get(name) if is_named else None)
        if found is not None:
            return found
        hint = (
            "; or import the module that names it by @data_stack.named_function" if is_named else ""
        )
        self._not_allowed.setdefault(
            name, f"node {self._node.number} ({self._node.layer}): {shorten(name)}{hint}"
        )
        return _ABSENT

    def _partial(self, content: Any) -> Any:
        fields = content if isinstance(content, dict) else {}
        arguments, keywords = fields.get("arguments"), fields.get("keywords")
        if (
            not isinstance(arguments, list)
            or not isinstance(keywords, dict)
            or "function" not in fields
        ):
            raise ConfigError(
                f"a partial function has a function, a list of arguments, and keywords, this is {shorten(content)}"
            )
        function, values = (
            self._value(content["function"]),
            [self._value(each) for each in arguments],
        )
        named = {name: self._value(each) for name, each in keywords.items()}
        if function is not _ABSENT and not callable(function):
            raise ConfigError(f"only a function can be partial, not {shorten(function)}")
        return _ABSENT if function is _ABSENT else functools.partial(function, *values, **named)

    def _storage_connector(self, content: Any) -> Any:
        if content is None:
            return as_storage_connector(self._storage)
        raise ConfigError(f"a recipe must not name a store, but this one names {shorten(content)}")

    def _tensor(self, content: Any) -> Any:
        if (
            not isinstance(content, dict)
            or content.keys() != {"dtype", "values"}
            or not isinstance(content["dtype"], str)
        ):
            raise ConfigError(f"a tensor has a dtype and values, this is {shorten(content)}")
        from data_stack.formats import torch_tensors  # imports torch, which few recipes need

        try:
            return torch_tensors.tensor_of(self._value(content["values"]), content["dtype"])
        except (TypeError, ValueError) as error:
            raise ConfigError(f"no tensor of dtype {shorten(content['dtype'])}: {error}") from error

    def _meta(self, content: Any) -> DatasetMeta:
        try:
            values = {name: self._value(plain) for name, plain in content.items()}
            layout = IteratorMeta(
                **{name: values.pop(name) for name in list(values) if name.endswith("_pos")}
            )
            return DatasetMeta(layout, **values)
        except (TypeError, AttributeError) as error:
            raise ConfigError(f"no meta of a dataset: {error}") from error

    def _without(self, what: str, field: str) -> Callable[[Any], Any]:
        """A maker that notes that a value cannot be made again."""

        def note(content: Any) -> Any:
            name = content.get(field) if isinstance(content, dict) else content
            self._reasons.append(
                f"{what} {name[:300] if isinstance(name, str) and name.isprintable() else shorten(name)}"
            )
            return _ABSENT

        return note


# ---------------------------------------------------------------------- nodes as iterators


def _load(
    node: _Node, origin: Mapping[str, Any], repository: DatasetRepository, storage: Storage | None
) -> Any:
    """The dataset that a node names."""
    name, version, split, resources, samples = map(
        origin.get, ("name", "version", "split", "resources", "samples")
    )
    versioned = str(name) if version is None else f"{name}@{version}"
    is_named = (
        origin.keys() == _ORIGIN_FIELDS
        and not node.of
        and isinstance(name, str)
        and not is_place(versioned)
    )
    if not is_named or not (isinstance(samples, str) or (samples is None and resources)):
        need = f"the arguments {_list(_ORIGIN_FIELDS)}, a name (a path or URL comes in sources=), resources or a fingerprint"
        _refuse(node, f"a dataset has {need}; this has {shorten(origin)}")
    try:
        dataset: Any = repository.resolve(versioned, storage)
        if dataset.version != version:
            _refuse(
                node,
                f"the recipe has dataset {name!r} without version; version {dataset.version} is installed. {_ADVICE}",
            )
        if split is None and dataset.splits:
            _refuse(
                node,
                f"dataset {name!r} has the splits {_list(dataset.splits)}, but the recipe names none of them",
            )
        loaded = dataset.load(split, **origin["config"])
        found = describe_node(loaded).arguments.get("resources") or {}
        then = found if resources is None else resources
        differing = sorted(key for key in {**then, **found} if then.get(key) != found.get(key))
    except _ENVIRONMENT:
        raise
    except Exception as error:  # noqa: BLE001  # any factory may raise anything
        _refuse(node, f"dataset {name!r} cannot be loaded: {_reason(error)}", error)
    if differing:
        shown = (
            f"has SHA-256 {found.get(differing[0])}, in the recipe it has {then.get(differing[0])}"
        )
        _refuse(node, f"resource {differing[0]!r:.200} of dataset {name!r} {shown}. {_ADVICE}")
    if samples is not None and (now := samples_content(loaded)) != samples:
        _refuse(
            node,
            f"the samples of dataset {name!r} have the fingerprint {now}, in the recipe {shorten(samples)}. {_ADVICE}",
        )
    return loaded


def _open_place(node: _Node, arguments: Mapping[str, Any]) -> Any:
    """The samples of the file or folder that a node names by its path."""
    path: Any = arguments.get("path")
    split: Any = arguments.get("split")
    options: Any = arguments.get("options")
    is_complete = (
        arguments.keys() == _PLACE_FIELDS
        and not node.of
        and isinstance(path, str)
        and isinstance(split, (str, type(None)))
        and isinstance(options, Mapping)
    )
    if not is_complete:
        need = f"the arguments {_list(_PLACE_FIELDS)}: a path, a split or null, and options"
        _refuse(node, f"a place has {need}; this has {shorten(arguments)}")
    if "://" in path:
        _refuse(node, f"a place is a path of this machine, not a URL: {shorten(path)}")
    if not os.path.isfile(path) and not os.path.isdir(path):
        _refuse(
            node, f"there is no file or folder {shorten(path)}; pass the data as one of sources=[…]"
        )
    try:
        opened = Place.at(PlaceName.parse(path)).load(split, **options)
    except _ENVIRONMENT:
        raise
    except Exception as error:  # noqa: BLE001  # options may be of any type
        _refuse(node, f"{shorten(path)} cannot be opened: {_reason(error)}", error)
    if isinstance(opened, dict):
        _refuse(node, f"{shorten(path)} has the splits {_list(opened)}, but the recipe names none")
    samples = fingerprint(opened)
    if samples != arguments["samples"]:
        _refuse(
            node,
            f"the samples of {shorten(path)} have the fingerprint {samples}, in the recipe "
            f"{shorten(arguments['samples'])}. The files differ from those of the recipe: restore "
            "them, or make the recipe again",
        )
    return opened


def _stack_layer(node: _Node, below: list[Any], arguments: dict[str, Any]) -> Any:
    """The layer that a node names on what lies below it."""
    layer = import_layers()[str(node.layer)]
    if node.layer == "informed" and arguments.keys() != {
        "dataset_meta"
    }:  # an origin is put there by who has loaded it
        _refuse(node, f"it has the argument 'dataset_meta' alone, not {_list(arguments)}")
    try:
        made = layer._from_arguments(below, arguments)
        meta = made.dataset_meta if isinstance(made, InformedDatasetIteratorIF) else None
        description = describe_with_content(made)
    except _ENVIRONMENT:
        raise
    except Exception as error:  # noqa: BLE001  # constructors may raise anything
        _refuse(node, f"it cannot be made of its arguments: {_reason(error)}", error)
    if meta is not None and not isinstance(meta, DatasetMetaIF):
        _refuse(node, f"its meta is {shorten(meta)}")
    if unknown := arguments.keys() - description.arguments.keys():
        _refuse(
            node, f"it has no arguments {_list(unknown)}; it has {_list(description.arguments)}"
        )
    if len(description.below) != len(below) or any(
        one is not other for one, other in zip(description.below, below, strict=True)
    ):
        _refuse(node, f"it cannot be stacked on {len(below)} iterators")
    return made


def _reason(error: Exception) -> str:
    return (
        str(error)
        if isinstance(error, DataStackError)
        else f"{type(error).__name__}: {error!s:.300}"
    )
