"""Splits as TFDS and Hugging Face write them: ``"train[:10%]"``, ``"train+test"``, ``"all"``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.layers.combined import CombinedDatasetIterator
from data_stack.dataset.iterator.layers.informed import InformedDatasetIterator
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.meta import MetaFactory
from data_stack.exception import UnknownSplitError
from data_stack.util.program_lines import warn_program
from data_stack.util.suggestions import did_you_mean

#: The expression that stands for all splits, one after the other.
ALL = "all"

#: The names in an expression, and the expressions in a list.
_MAX_TERMS = 100

#: The characters of an expression: ten for each of its names.
_MAX_CHARACTERS = 10 * _MAX_TERMS

#: A position or a percentage; the digits are limited, as int() and float() take long of many.
_BOUND = r"\s*([+-]?[0-9](?:_?[0-9]){0,17}(?:(?:\.[0-9]{1,9})?%)?)?\s*"
_TERM = re.compile(rf"([^\[\]+]*[^\[\]+\s])\s*(?:\[{_BOUND}:{_BOUND}\])?")
#: A plus between terms; inside of brackets, a plus is a sign.
_PLUS = re.compile(r"\+(?![^\[]*\])")
_EXAMPLES = '"train[:10%]", "train[-1000:]", "train[100:200]+test", "all", or a list of such'


@dataclass(frozen=True, slots=True)
class Term:
    """One of the parts that an expression adds.

    Attributes:
        split: the name of a split, or ``"all"``.
        start: the first sample, as written: ``"100"``, ``"-1000"`` or ``"10%"``; None for the
            beginning.
        stop: the sample after the last one, written as ``start``; None for the end.
    """

    split: str
    start: str | None
    stop: str | None

    @property
    def is_whole(self) -> bool:
        """Whether the term is a split without bounds."""
        return self.start is None and self.stop is None

    @property
    def has_percentage(self) -> bool:
        """Whether a bound is a percentage."""
        return any(bound is not None and bound.endswith("%") for bound in (self.start, self.stop))


def load_expression(
    load: Callable[[str | None], Any],
    split: Any,
    list_names: Callable[[], Collection[str] | None],
) -> Any:
    """Load the split of exactly this name, or else evaluate an expression.

    The parts of an expression are views and combinations of whole splits, so that recipes and lock
    files know them.

    Args:
        load: returns one split by its name, and for None a dict of all splits, or the only
            iterator.
        split: a name, an expression, a list of these, or None.
        list_names: returns the names of the splits; None if the dataset does not declare them. It
            is called for expressions only.

    Raises:
        UnknownSplitError: an expression is malformed, or names an unknown split.
    """
    if isinstance(split, (list, tuple)):
        _check_list(split)
        return [load_expression(load, expression, list_names) for expression in split]
    if not isinstance(split, str) or not _may_be_expression(split):
        return load(split)

    names = list_names()
    if names is None:
        # The dataset may have a split that is named "all" or "a+b"; no split has brackets.
        is_name = "[" not in split
    else:
        is_name = split in names
    if is_name:
        return load(split)

    terms = parse_expression(split, names)
    if names:
        _check_names(terms, names, split)
    return _evaluate(terms, load, names or (), split)


def list_whole_splits(split: Any, names: Sequence[str]) -> list[str]:
    """Return the splits that an expression or a list needs, each once.

    Args:
        split: a name, an expression, a list of these, or None.
        names: the names of the splits.

    Returns:
        The names, in the order of ``names``; none for None, which needs no names.

    Raises:
        UnknownSplitError: an expression is malformed.
    """
    needed = set[str]()
    if isinstance(split, (list, tuple)):
        for expression in split:
            needed.update(list_whole_splits(expression, names))
    elif split in names:
        needed.add(split)
    elif isinstance(split, str) and names and _may_be_expression(split):
        for term in parse_expression(split, names):
            if term.split == ALL and ALL not in names:
                needed.update(names)
            else:
                needed.add(term.split)
    return [name for name in names if name in needed]


def _check_list(expressions: Sequence[Any]) -> None:
    are_texts = all(isinstance(expression, str) for expression in expressions)
    if not are_texts or not 0 < len(expressions) <= _MAX_TERMS:
        raise UnknownSplitError(
            f"a list of splits is one to {_MAX_TERMS} names or expressions, got {expressions!r:.80}"
        )


def _may_be_expression(split: str) -> bool:
    return split == ALL or re.search(r"[\[\]+]", split) is not None


def parse_expression(split: str, names: Collection[str] | None) -> list[Term]:
    """Parse ``"train[:10%]+test"``.

    Args:
        split: the expression.
        names: the names of the splits, for the error.

    Raises:
        UnknownSplitError: the expression is malformed or too long.
    """
    terms = []
    texts = _PLUS.split(split)
    is_malformed = len(split) > _MAX_CHARACTERS or len(texts) > _MAX_TERMS
    if not is_malformed:
        for text in texts:
            match = _TERM.fullmatch(text.strip())
            if match is None or _is_beyond_all(match[2]) or _is_beyond_all(match[3]):
                is_malformed = True
                break
            terms.append(Term(match[1], match[2], match[3]))
    if is_malformed:
        raise UnknownSplitError(
            f"split {split!r:.80} is malformed or longer than {_MAX_TERMS} names. "
            f"Write it as {_EXAMPLES}; {_describe_names(names)}"
        )
    return terms


def _is_beyond_all(bound: str | None) -> bool:
    """Return whether a bound is a percentage of more than 100."""
    return bound is not None and bound.endswith("%") and abs(float(bound[:-1])) > 100


def _check_names(terms: Sequence[Term], names: Collection[str], split: str) -> None:
    """Check all names of an expression before the first split is loaded."""
    for term in terms:
        if term.split != ALL and term.split not in names:
            raise UnknownSplitError(
                f"unknown split {term.split!r:.80}{did_you_mean(term.split, names)} in {split!r}; "
                f"{_describe_names(names)}"
            )


def _evaluate(
    terms: Sequence[Term],
    load: Callable[[str | None], Any],
    names: Collection[str],
    expression: str,
) -> Any:
    """Return the samples of all terms, one after the other; each split is loaded once."""
    whole_splits: dict[str, Any] = {}
    for term in terms:
        if term.split not in whole_splits:
            stands_for_all = term.split == ALL and ALL not in names
            if stands_for_all:
                loaded = load(None)
            else:
                loaded = load(term.split)
            if isinstance(loaded, dict):
                loaded = _combine(list(loaded.values()))
            whole_splits[term.split] = loaded
    parts = [_take_part(whole_splits[term.split], term) for term in terms]
    return _with_tag(_combine(parts), expression)


def _take_part(iterator: Any, term: Term) -> Any:
    """Return the samples between the bounds of a term, as those of a list."""
    if term.is_whole:
        return iterator
    n_samples = len(iterator)
    start = None
    if term.start is not None:
        start = position_of(term.start, n_samples)
    stop = None
    if term.stop is not None:
        stop = position_of(term.stop, n_samples)
    indices = slice(start, stop)
    is_empty = len(range(n_samples)[indices]) == 0
    if is_empty and n_samples and term.has_percentage and term.start != term.stop:
        warn_program(
            f"the part [{term.start or ''}:{term.stop or ''}] of {n_samples:,} samples is empty; "
            f"name positions, such as [:1]"
        )
    return as_iterator(iterator)._stack_layer(DatasetIteratorView, indices=indices)


def position_of(bound: str, n_samples: int) -> int:
    """Return the position of a bound such as ``"100"``, ``"-1000"`` or ``"10%"``.

    Percentages are rounded to the nearest sample, halves to the even one, as TFDS and Hugging Face
    round them. A negative bound counts from the end.
    """
    number = float(bound.rstrip("%"))
    if bound.endswith("%"):
        distance = round(abs(number) * n_samples / 100.0)
    else:
        distance = int(abs(number))
    if number < 0:
        # A position from the start, as a slice takes -0 for the start: "[-1%:]" of 20 samples,
        # which rounds to no sample, would have all of them.
        return max(n_samples - distance, 0)
    return distance


def _combine(parts: list[Any]) -> Any:
    """Return the samples of some iterators, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return as_iterator(parts[0])._stack_layer(CombinedDatasetIterator, *parts[1:])


def _with_tag(iterator: Any, expression: str) -> Any:
    """Return an iterator whose meta has the expression as its tag.

    An iterator without meta is returned as it is.
    """
    if not isinstance(iterator, InformedDatasetIterator):
        return iterator
    meta = iterator.dataset_meta
    identifier = meta.identifier
    if identifier:
        identifier = f"{meta.dataset_name or identifier}/{expression}"
    tagged = replace(
        MetaFactory.copy_dataset_meta(meta), dataset_tag=expression, identifier=identifier
    )
    return InformedDatasetIterator(iterator._dataset_iterator, tagged, origin=iterator._origin)


def _describe_names(names: Collection[str] | None) -> str:
    if names:
        return f"the splits are: {', '.join(names)}"
    return "the dataset has no splits by name"
