"""Describes one layer of a stack."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from data_stack.codecs.plain_data import shorten
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.show.markup import readable

#: The arguments of a layer are cut after this number of characters.
_MAX_ARGUMENT_CHARACTERS = 120


class ExplainedLayer(NamedTuple):
    """One iterator of a stack.

    An :class:`InformedDatasetIterator` is described with the iterator that it wraps.

    Attributes:
        number: the number of the iterator, from 1; an iterator comes before those below it.
        layer: the name of the layer in recipes, such as ``"view"``, or the name of the class.
        arguments: the arguments of the constructor, shortened; defaults are left out.
        n_samples: the number of samples; None if unknown.
        stacked_on: the numbers of the iterators below this one, in order.
        dataset: name, version and split of the loaded dataset, or name and tag in the meta; None
            without any.
        license: the license of the loaded dataset; None if unknown.
        is_origin: whether a repository loaded these samples.
        notes: what the layer draws at random, and what it costs.
    """

    number: int
    layer: str
    arguments: str
    n_samples: int | None
    stacked_on: tuple[int, ...]
    dataset: str | None
    license: str | None
    is_origin: bool
    notes: tuple[str, ...]


def explain_layer(
    layer: Any,
    number: int,
    stacked_on: tuple[int, ...],
    *,
    meta: Any,
    origin: Mapping[str, Any] | None,
) -> ExplainedLayer:
    """Describe a layer without reading samples.

    Args:
        layer: an iterator, or a sequence.
        number: the number of the layer.
        stacked_on: the numbers of the layers below.
        meta: what is known of the samples; None if nothing is.
        origin: what a repository noted of the dataset that it loaded; None for other layers.
    """
    is_stacked = bool(stacked_on)
    arguments: dict[str, Any] = {}
    if is_stacked and is_layer_of_ours(layer):
        arguments = layer._arguments()
    license_name = (origin or {}).get("license")
    return ExplainedLayer(
        number=number,
        layer=str(layer._layer_name) if is_layer_of_ours(layer) else type(layer).__name__,
        arguments=_text_of_arguments(layer, arguments),
        n_samples=_find_length(layer),
        stacked_on=stacked_on,
        dataset=_name_of_dataset(meta, origin),
        license=str(license_name) if license_name else None,
        is_origin=origin is not None,
        notes=tuple(_list_notes(layer, arguments, is_stacked=is_stacked)),
    )


def is_layer_of_ours(layer: Any) -> bool:
    """Return whether the class of an iterator is a layer of ours.

    A subclass of a client does not count: it may not have called our constructor.
    """
    return isinstance(layer, DatasetIteratorIF) and "_layer_name" in vars(type(layer))


def _find_length(layer: Any) -> int | None:
    """Return the number of samples; None if it is unknown."""
    # The length may be computed by foreign code.
    with contextlib.suppress(Exception):
        return len(layer)
    return None


def _name_of_dataset(meta: Any, origin: Mapping[str, Any] | None) -> str | None:
    """Return name, version and split of a loaded dataset, or else name and tag in the meta."""
    if origin is None:
        parts = [getattr(meta, "dataset_name", None), getattr(meta, "dataset_tag", None)]
    else:
        names = [str(origin[key]) for key in ("name", "version") if origin.get(key)]
        parts = [" ".join(names), origin.get("split")]
    return ", ".join(readable(part) for part in parts if part) or None


def _text_of_arguments(layer: Any, arguments: Mapping[str, Any]) -> str:
    """Return the arguments that are not the defaults."""
    if not arguments:
        return ""
    parameters = inspect.signature(type(layer).__init__).parameters
    texts = []
    for name, value in arguments.items():
        is_default = name in parameters and value is parameters[name].default
        if not is_default:
            texts.append(f"{name}={_short_text(value)}")
    return readable(", ".join(texts), _MAX_ARGUMENT_CHARACTERS)


def _short_text(value: Any) -> str:
    """Return a value in a few words, a function by its name."""
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return name
    if isinstance(value, functools.partial):
        return f"partial({_short_text(value.func)})"
    if type(value).__module__ in ("builtins", "numpy"):
        return shorten(value)
    return type(value).__name__


def _list_notes(layer: Any, arguments: Mapping[str, Any], *, is_stacked: bool) -> list[str]:
    """Return what a user should know of a layer: its source, its randomness, its cost."""
    notes = []
    if not is_stacked:
        details = getattr(layer, "_repr_details", "")
        if details:
            notes.append(details.strip())
    elif is_layer_of_ours(layer) and layer._draw is not None:
        notes.append("random: at_epoch changes it")
    if callable(arguments.get("function")):
        argument = "batch" if arguments.get("batched") else "sample"
        notes.append(f"calls a Python function for each {argument}")
    return notes
