"""Stacks of iterators as plain data: their recipe, or its fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from data_stack.codecs.plain_data import canonical_json, json_digest
from data_stack.dataset.iterator.access import SampleAccess, access_to
from data_stack.dataset.iterator.blocks import estimate_bytes
from data_stack.dataset.iterator.contract import (
    AdaptedIterator,
    DatasetIteratorIF,
    InformedDatasetIteratorIF,
    as_iterator,
)
from data_stack.dataset.iterator.layer import walk_stack
from data_stack.dataset.iterator.layers.in_memory import InMemoryDatasetIterator
from data_stack.dataset.recipes.code_description import describe_code
from data_stack.dataset.recipes.identity import column_of_numbers
from data_stack.dataset.recipes.recipe_values import (
    class_name,
    content_if_known,
    content_of,
    other_values,
    probe,
    write,
)
from data_stack.exception import ResourceChangedError, ResourceNotFoundError

RECIPE_VERSION = 2

MAX_EMBEDDED_BYTES = 1 << 20
"""Largest data of a source that a recipe contains; larger data are named by their SHA-256."""

# Fingerprints are kept with splits and caches: a change of what they are taken of is a change of this number.
_FINGERPRINT_VERSION = 3

DATASET = "dataset"
"""The layer of a dataset that a repository loads by name."""

TABLE_FILE = "table_file"
"""The layer of a table that was read from a file."""

PLACE = "place"
"""The layer of a file or folder of this machine that ``data_stack.load`` opened by its path."""

# The layer of samples in memory.
_SEQUENCE = "sequence"

# Layers that do not change samples.
_TRANSPARENT = ("informed", "in_memory", "cached", "stored_cache")

#: The layer of samples in memory, with the source from which they were read.
_IN_MEMORY = "in_memory"

# Types that may be used as an iterator, and hold only samples.
_PLAIN_SAMPLES = (list, tuple, np.ndarray)

# Values that are what they are.
_SIMPLE: frozenset[type] = frozenset({type(None), bool, int, float, str, bytes})


class Layer(NamedTuple):
    """An iterator as a node of a recipe; ``name`` is None where its class is not of data_stack."""

    iterator: Any
    name: str | None
    of: list[Any]
    arguments: Mapping[str, Any]


def recipe(iterator: DatasetIteratorIF) -> dict[str, Any]:
    """Plain JSON data that names a stack exactly, see ``docs/stacking.md``."""
    nodes: list[dict[str, Any]] = []
    why_not: list[str] = []
    numbers: dict[int, int] = {}
    known: dict[str, int] = {}
    for layer in _layers_below(iterator, by_place=True):
        reasons: list[str] = []
        of = [numbers[id(each)] for each in layer.of]
        node = {"layer": layer.name, "of": of, "arguments": _write_arguments(layer, reasons)}
        key = canonical_json(node)
        # what is known by a few of its samples may look alike and differ
        if reasons or key not in known:
            known[key] = len(nodes)
            why_not += [
                f"node {len(nodes)} ({layer.name or 'not of data_stack'}): {reason}"
                for reason in reasons
            ]
            nodes.append(node)
        numbers[id(layer.iterator)] = known[key]
    return {
        "data_stack_recipe": RECIPE_VERSION,
        "nodes": nodes,
        "reproducible": not why_not,
        "why_not": why_not,
    }


def _write_arguments(layer: Layer, why_not: list[str]) -> dict[str, Any]:
    n_bytes = (
        0 if layer.of or layer.name is None else sum(map(estimate_bytes, layer.arguments.values()))
    )
    if layer.name is not None and n_bytes <= MAX_EMBEDDED_BYTES:
        of_samples = layer.name == _SEQUENCE
        return {
            name: write(value, why_not, of_samples=of_samples)
            for name, value in layer.arguments.items()
        }
    contents = {
        name: _argument_content(layer.name, name, value) for name, value in layer.arguments.items()
    }
    if layer.name is None:
        why_not.append(
            f"from_recipe cannot make {layer.arguments['class']}; open a file or folder by "
            "data_stack.load(path), which a recipe can name, or pass such an iterator to "
            "from_recipe as one of sources=[…]"
        )
        return contents
    why_not.append(
        f"the recipe has only the SHA-256 of about {n_bytes:,} bytes of data; pass the iterator as one of sources=[…]"
    )
    return {
        name: {"digest": {"sha256": json_digest(content)}} for name, content in contents.items()
    }


def fingerprint(iterator: DatasetIteratorIF, *, of_samples: bool = True) -> str:
    """SHA-256 of all that decides the samples of a stack.

    Args:
        iterator: the stack.
        of_samples: False leaves out sources, unless a repository loaded them, and large arguments, so that nothing is read.
    """
    digests: dict[int, str] = {}
    layers = _layers_below(iterator, probed=of_samples, from_memory=of_samples)
    for layer in layers:
        of = [digests[id(each)] for each in layer.of]
        if layer.name in _TRANSPARENT and len(of) == 1:
            known: str | None = of[0]
        elif layer.name == _IN_MEMORY:
            known = _fingerprint_in_memory(layer.iterator)
        else:
            known = _fingerprint_left_behind(layer.iterator)
        if known is None:
            if layer.name == TABLE_FILE:  # the same wherever the file lies
                layer = _describe_source(layer.iterator, probed=of_samples)
            is_small = layer.of or layer.name == DATASET
            given = [
                each
                for each in layer.arguments.items()
                if of_samples or (is_small and estimate_bytes(each[1]) <= MAX_EMBEDDED_BYTES)
            ]
            arguments = {
                key: _argument_content(layer.name, key, value)
                for key, value in given
                if key != "view_tags"
            }
            known = json_digest(
                {
                    "fingerprint": _FINGERPRINT_VERSION,
                    "layer": layer.name,
                    "of": of,
                    "arguments": arguments,
                }
            )
        digests[id(layer.iterator)] = known
    return digests[id(layers[-1].iterator)]


def code_digest(iterator: DatasetIteratorIF) -> str | None:
    """SHA-256 of the code of the functions that a stack calls, and of all that they use; None if none.

    A fingerprint holds names of functions, and is the same in all versions of Python. This digest changes when a function of the
    program, or one that it calls, is edited, and with the version of Python; it is for caches, which can be made again. See
    :mod:`data_stack.dataset.recipes.code_description`.
    """
    digests = []
    for layer in _layers_below(iterator, probed=False):
        for value in other_values(_collect_arguments(layer)):
            digest = describe_code(value, content_if_known).digest
            if digest is not None:
                digests.append(digest)
    return hashlib.sha256("".join(digests).encode("ascii")).hexdigest() if digests else None


def instability_reason(iterator: DatasetIteratorIF) -> str | None:
    """Why a fingerprint may miss a change of the samples, or be valid only in this process; None if neither.

    Reads no sample, but for lists in memory.
    """
    for layer in _layers_below(iterator, probed=False):
        reasons: list[Any] = []
        if layer.name == DATASET:
            content_of(layer.arguments["config"], reasons=reasons)
            if not _is_known_by_resources(layer.iterator._origin):
                opened = _open_by_factory(layer.iterator)
                other = (
                    f"its factory returned {class_name(layer.iterator)}, which is not of data_stack"
                )
                reasons.append(other if opened is None else instability_reason(opened))
        elif layer.name is None and not _has_content_fingerprint(layer.iterator):
            reasons = ["its class is not of data_stack, so only you know when its samples change"]
        elif _fingerprint_left_behind(layer.iterator) is not None:
            reasons = ["it comes from another process and has left there what it was read from"]
        elif layer.name == "sequence":
            columns = layer.arguments.get("dataset_sequences", ())
            content_of(
                [column for column in columns if _may_hold_objects(column)],
                of_samples=True,
                reasons=reasons,
            )
        elif layer.name is None and (kept := _samples_in_memory(layer.iterator)) is not None:
            content_of(
                [sample for sample in kept if _may_hold_objects(sample)],
                of_samples=True,
                reasons=reasons,
            )
        else:
            arguments = _collect_arguments(layer)
            content_of(arguments, reasons=reasons)
            for value in other_values(arguments):
                reasons += describe_code(value, content_if_known).reasons
        for reason in filter(None, reasons):
            return f"{layer.name or class_name(layer.iterator)}: {reason}"
    return None


def _fingerprint_in_memory(iterator: InMemoryDatasetIterator) -> str:
    """The fingerprint of samples in memory that were read from a source: that of the source as it was then.

    If the source has changed, or is gone, the samples are their own source.
    """
    if iterator._kept_fingerprint is None:
        known = None
        if not iterator.has_changed_sources():
            (source,) = iterator._stack_on()
            with suppress(ResourceChangedError, ResourceNotFoundError):
                known = fingerprint(source)
        if known is None:
            described = _describe_source(iterator, probed=True)
            arguments = {
                key: _argument_content(None, key, value)
                for key, value in described.arguments.items()
            }
            known = json_digest(
                {
                    "fingerprint": _FINGERPRINT_VERSION,
                    "layer": None,
                    "of": [],
                    "arguments": arguments,
                }
            )
        iterator._kept_fingerprint = known
    return iterator._kept_fingerprint


def _may_hold_objects(column: Any) -> bool:
    """Whether values of a column may be of a kind that nothing is known of: not in an array of numbers, nor in a list of text."""
    if type(column) in (np.ndarray, np.memmap):
        return bool(column.dtype.hasobject)
    if type(column) in (list, tuple):
        return not set(map(type, column)) <= _SIMPLE
    return type(column) not in _SIMPLE


def _samples_in_memory(iterator: Any) -> Sequence[Any] | None:
    """The samples of an iterator that keeps them in a list; None of any other."""
    if isinstance(iterator, InMemoryDatasetIterator):
        return iterator._kept_samples
    samples = iterator.adapted_samples if isinstance(iterator, AdaptedIterator) else iterator
    return samples if type(samples) in _PLAIN_SAMPLES else None


def _fingerprint_left_behind(iterator: Any) -> str | None:
    """Of samples in memory, the fingerprint of the source that was not pickled with them."""
    return iterator._known_fingerprint if isinstance(iterator, InMemoryDatasetIterator) else None


def _collect_arguments(layer: Layer) -> Mapping[str, Any]:
    """The arguments of a layer, or of a source with a content fingerprint; without samples."""
    if layer.name == "sequence":
        return {}
    is_source = (
        layer.name is None
        and isinstance(layer.iterator, DatasetIteratorIF)
        and _has_content_fingerprint(layer.iterator)
    )
    return layer.iterator._arguments() if is_source else layer.arguments


def node_digests(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each node of a recipe a SHA-256 of it and all that it is stacked on.

    Raises:
        TypeError, ValueError, RecursionError: that is not JSON data.
    """
    digests: list[str] = []
    for node in nodes:
        arguments = node["arguments"]
        if node["layer"] == PLACE:  # the same wherever the files lie
            arguments = {"samples": arguments.get("samples")}
        content = {
            "layer": node["layer"],
            "of": [digests[number] for number in node["of"]],
            "arguments": arguments,
        }
        digests.append(json_digest(content))
    return digests


def _argument_content(layer: str | None, key: str, value: Any) -> Any:
    if layer == _SEQUENCE or (
        layer is None and key == "samples"
    ):  # these may be tuples or lists, or dicts with an order
        content = content_of(value, of_samples=True)
        return content if layer is not None else {"sha256": json_digest(content)}
    # which of both was given makes no difference to a layer; the order of a dict may, as that of a split's ratios does
    return content_of(list(value) if isinstance(value, tuple) else value)


def _layers_below(
    top: Any, *, probed: bool = True, by_place: bool = False, from_memory: bool = False
) -> list[Layer]:
    """``top`` and all iterators below it, each once and after those it is stacked on.

    Args:
        top: any iterator, or what is used as one.
        probed: whether the content of sources is looked at.
        by_place: whether what was opened by its path is described by that path.
        from_memory: whether samples in memory end the stack: what they were read from may have changed.

    Raises:
        ConfigError: something is stacked on itself.
    """
    found: dict[int, Layer] = {}

    def below(iterator: Any) -> list[Any]:
        if from_memory and isinstance(iterator, InMemoryDatasetIterator) and iterator._stack_on():
            layer = found[id(iterator)] = Layer(iterator, _IN_MEMORY, [], {})
            return layer.of
        layer = found[id(iterator)] = describe_layer(iterator, probed, by_place)
        return layer.of

    return [found[id(iterator)] for iterator, _ in walk_stack(top, below)]


def note_place(
    iterator: DatasetIteratorIF, path: str, split: str | None, options: Mapping[str, Any]
) -> None:
    """Note on an iterator where its samples were opened, so that its recipe can name the place.

    Args:
        iterator: what was opened.
        path: of a file or folder of this machine.
        split: of the folder; None if it has no splits.
        options: with which :func:`data_stack.load` opened it.
    """
    place: Any = iterator
    place._opened_at = {"path": path, "split": split, "options": dict(options)}


def _describe_place(iterator: Any) -> Layer | None:
    """Describe an iterator by the path at which it was opened; None if it was not opened by a path."""
    # a client's wrapper may forward attributes; the place of what it wraps is not its own
    opened_at = getattr(iterator, "__dict__", {}).get("_opened_at")
    if opened_at is None:
        return None
    return Layer(iterator, PLACE, [], {**opened_at, "samples": fingerprint(iterator)})


def describe_layer(iterator: Any, probed: bool = True, by_place: bool = False) -> Layer:
    """Describe an iterator as a node of a recipe.

    Args:
        iterator: any, or what is used as one.
        probed: whether the content of a source is looked at: digests of files, or some samples of a class that is not of
            data_stack.
        by_place: whether what was opened by its path is described by that path and a fingerprint.
    """
    place = _describe_place(iterator) if by_place else None
    if place is not None:
        return place
    # a client's wrapper may forward attributes; the origin of what it wraps is not its own
    origin = (
        getattr(iterator, "__dict__", {}).get("_origin")
        if isinstance(iterator, InformedDatasetIteratorIF)
        else None
    )
    if isinstance(origin, Mapping):
        arguments = {
            key: origin.get(key) for key in ("name", "version", "split", "config", "resources")
        }
        # options are known by their names, so that their order says nothing
        arguments["config"] = dict(
            sorted((arguments["config"] or {}).items(), key=lambda option: str(option[0]))
        )
        if probed:
            arguments["samples"] = (
                None if _is_known_by_resources(origin) else samples_content(iterator)
            )
        return Layer(iterator, DATASET, [], arguments)
    below = list(iterator._stack_on() or ()) if isinstance(iterator, DatasetIteratorIF) else []
    name = (
        iterator._layer_name
        if isinstance(iterator, DatasetIteratorIF) and "_layer_name" in vars(type(iterator))
        else None
    )
    if name == TABLE_FILE and iterator._read_from is not None:
        return Layer(iterator, name, [], iterator._read_from)
    # samples in memory without a source are one
    if name in (None, TABLE_FILE) or (type(iterator) is InMemoryDatasetIterator and not below):
        return _describe_source(iterator, probed, below)
    arguments = iterator._arguments()
    if name == "sequence":
        columns = arguments["dataset_sequences"]
        arguments["dataset_sequences"] = [
            column if (numbers := column_of_numbers(column)) is None else numbers
            for column in columns
        ]
    return Layer(
        iterator,
        name,
        below,
        {"dataset_meta": arguments["dataset_meta"]} if name == "informed" else arguments,
    )


def _describe_source(iterator: Any, probed: bool, below: Sequence[Any] = ()) -> Layer:
    """Describe an iterator by its content."""
    samples = iterator.adapted_samples if isinstance(iterator, AdaptedIterator) else iterator
    known: dict[str, Any] = {"class": class_name(samples)}
    if probed and type(samples) in _PLAIN_SAMPLES:
        known.update(n_samples=len(samples), samples=samples)
    elif probed and _has_content_fingerprint(iterator):
        known.update(
            n_samples=len(iterator),
            **iterator._arguments(),
            content=access_to(iterator).content_fingerprint(),
        )
    elif probed:
        known.update(probe(samples))
    return Layer(iterator, None, list(below), known)


def samples_content(iterator: Any) -> str:
    """The fingerprint of the iterator that the factory of a dataset opened."""
    opened = _open_by_factory(iterator)
    # without an iterator of ours, the dataset is a factory's own object
    return (
        json_digest({"class": class_name(iterator), **probe(iterator)})
        if opened is None
        else fingerprint(opened)
    )


def _open_by_factory(iterator: Any) -> DatasetIteratorIF | None:
    """The iterator that a factory opened; None where that is the loaded dataset itself."""
    is_ours = iterator._layer_name == "informed" and "_layer_name" in vars(type(iterator))
    return as_iterator(iterator._dataset_iterator) if is_ours else None


def _is_known_by_resources(origin: Mapping[str, Any]) -> bool:
    """Whether the digests of the prepared resources decide the samples: installed code opens them."""
    return origin.get("resources") is not None and origin.get("distribution") is not None


def _has_content_fingerprint(iterator: Any) -> bool:
    """Whether a source knows digests of its content."""
    samples = iterator.adapted_samples if isinstance(iterator, AdaptedIterator) else iterator
    if samples is not iterator or not isinstance(iterator, DatasetIteratorIF):
        return type(samples) in _PLAIN_SAMPLES
    return type(access_to(iterator)).content_fingerprint is not SampleAccess.content_fingerprint


def list_origins(iterator: DatasetIteratorIF) -> tuple[list[Mapping[str, Any]], int]:
    """What a repository noted of the datasets in a stack, and how many of the stack's sources it did not load."""
    origins, n_others = [], 0
    for layer in _layers_below(iterator, probed=False):
        if layer.name == DATASET:
            origins.append(layer.iterator._origin)
        else:
            n_others += not layer.of
    return origins, n_others
