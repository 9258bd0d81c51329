"""Splits as TFDS and Hugging Face write them: ``"train[:10%]"``, ``"train+test"``, ``"all"``, ``["train", "test"]``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.layers.combined import CombinedDatasetIterator
from data_stack.dataset.iterator.layers.informed import InformedDatasetIterator
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.meta import MetaFactory
from data_stack.exception import UnknownSplitError
from data_stack.util.program_lines import warn_program
from data_stack.util.suggestions import did_you_mean

ALL = "all"
#: Of names, and ten characters for each.
_MAX_TERMS = 100
_BOUND = r"\s*([+-]?[0-9](?:_?[0-9]){0,17}(?:(?:\.[0-9]{1,9})?%)?)?\s*"
_TERM = re.compile(rf"([^\[\]+]*[^\[\]+\s])\s*(?:\[{_BOUND}:{_BOUND}\])?")
_EXAMPLES = '"train[:10%]", "train[-1000:]", "train[100:200]+test", "all", or a list of such'


def load_expression(
    load: Callable[[str | None], Any], split: Any, known: Callable[[], Collection[str] | None]
) -> Any:
    """Load the split of exactly this name, or else evaluate an expression.

    The parts of an expression are views and combinations of whole splits, so that recipes and lock files know them.

    Args:
        load: returns one split by its name, and for None a dict of all splits, or the only iterator.
        split: a name, an expression, a list of these, or None.
        known: returns the names of the splits; None if the dataset does not declare them.

    Raises:
        UnknownSplitError: an expression is malformed, or names an unknown split.
    """
    if isinstance(split, (list, tuple)):
        if not all(isinstance(each, str) for each in split) or not 0 < len(split) <= _MAX_TERMS:
            raise UnknownSplitError(
                f"a list of splits is one to {_MAX_TERMS} names or expressions, got {split!r:.80}"
            )
        return [load_expression(load, each, known) for each in split]
    if not isinstance(split, str) or not (split == ALL or re.search(r"[\[\]+]", split)):
        return load(split)
    names = known()
    if (names is not None and split in names) or (names is None and "[" not in split):
        return load(split)
    terms = _parse(split, names)
    if names:  # all are looked up before the first is loaded
        for name, _, _ in terms:
            if name != ALL and name not in names:
                raise UnknownSplitError(
                    f"unknown split {name!r:.80}{did_you_mean(name, names)} in {split!r}; {_list(names)}"
                )
    needed = dict.fromkeys(name for name, _, _ in terms)
    whole = {
        name: load(None if name == ALL and name not in (names or ()) else name) for name in needed
    }
    whole = {
        name: _joined(list(found.values())) if isinstance(found, dict) else found
        for name, found in whole.items()
    }
    return _tagged(
        _joined([_sliced(whole[name], start, stop) for name, start, stop in terms]), split
    )


def _parse(split: str, names: Collection[str] | None) -> list[tuple[str, str | None, str | None]]:
    """Names with the bounds of their slices."""
    texts = re.split(r"\+(?![^\[]*\])", split)  # a plus inside of brackets is a sign
    found = (
        [_TERM.fullmatch(text.strip()) for text in texts]
        if max(len(split) / 10, len(texts)) <= _MAX_TERMS
        else [None]
    )
    terms = [(match[1], match[2], match[3]) for match in found if match]
    shares = [
        float(bound[:-1])
        for _, *bounds in terms
        for bound in bounds
        if bound and bound.endswith("%")
    ]
    if None in found or any(abs(share) > 100 for share in shares):
        problem = f"is malformed or longer than {_MAX_TERMS} names. Write it as {_EXAMPLES}; {_list(names)}"
        raise UnknownSplitError(f"split {split!r:.80} {problem}")
    return terms


def _sliced(iterator: Any, start: str | None, stop: str | None) -> Any:
    """A slice as of a list, where percentages are rounded to the nearest sample, halves to the even one, as TFDS and HF do."""
    if start is None and stop is None:
        return iterator
    n_samples = len(iterator)
    first = _position(start, n_samples) if start else None
    end = _position(stop, n_samples) if stop else None
    chosen = range(n_samples)[slice(first, end)]
    is_percentage = any(bound and bound.endswith("%") for bound in (start, stop))
    if n_samples and not len(chosen) and is_percentage and start != stop:
        warn_program(
            f"the part [{start or ''}:{stop or ''}] of {n_samples:,} samples is empty; name positions, such as [:1]"
        )
    return as_iterator(iterator)._stack_layer(DatasetIteratorView, indices=slice(first, end))


def _position(bound: str, n_samples: int) -> int:
    number = float(bound.rstrip("%"))
    distance = round(abs(number) * n_samples / 100.0) if bound.endswith("%") else int(abs(number))
    # also if the percentage rounds to zero: the last 1 % of 20 samples is empty, not all of them
    return max(n_samples - distance, 0) if number < 0 else distance


def _joined(parts: list[Any]) -> Any:
    return (
        parts[0]
        if len(parts) == 1
        else as_iterator(parts[0])._stack_layer(CombinedDatasetIterator, *parts[1:])
    )


def _tagged(iterator: Any, split: str) -> Any:
    """With the expression as the tag of its meta, if it has one."""
    if not isinstance(iterator, InformedDatasetIterator):
        return iterator
    meta = iterator.dataset_meta
    identifier = meta.identifier and f"{meta.dataset_name or meta.identifier}/{split}"
    tagged = replace(MetaFactory.copy_dataset_meta(meta), dataset_tag=split, identifier=identifier)
    return InformedDatasetIterator(iterator._dataset_iterator, tagged, origin=iterator._origin)


def _list(names: Collection[str] | None) -> str:
    return f"the splits are: {', '.join(names)}" if names else "the dataset has no splits by name"
