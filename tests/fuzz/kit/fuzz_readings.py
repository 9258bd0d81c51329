"""Reads a damaged dataset in every way, and compares the results with the truth and with one
another.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DataStackError,
    RequestLimitError,
    ResourceNotFoundError,
    StorageError,
)
from data_stack.formats import records

MAX_SECONDS = 5.0
"""Processor time of one reading."""
_MAX_SAMPLES = 24
_TYPES: Mapping[str, type] = {
    **dict.fromkeys(
        ("array", "jpg", "mp4", "npy", "png", "webm", "webp", "zstd(array)"), np.ndarray
    ),
    **dict.fromkeys(("i64", "int", "u64"), int),
    **dict.fromkeys(("flac", "wav"), tuple),
    "bytes": bytes,
    "utf8": str,
}
# A manifest that lies may claim records that are larger than a request may be.
_DAMAGE = (DatasetFileCorruptError, ResourceNotFoundError, StorageError, RequestLimitError)


class Violation(Exception):
    """A promise was broken."""


class Attempt:
    """A value, or an error of ours."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self.value: Any = None
        self.error: DataStackError | None = None
        started = time.process_time()
        try:
            self.value = action()
        except DataStackError as error:
            self.error = error
            _check_error(error)
        seconds = time.process_time() - started
        if seconds > MAX_SECONDS:
            raise Violation(f"{seconds:.1f} s for one reading")


def _check_error(error: DataStackError) -> None:
    """An error of ours has a message and hides no lack of memory."""
    if not str(error):
        raise Violation(f"{type(error).__name__} has no message")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            raise Violation("a lack of memory behind an error of ours") from error
        cause = cause.__cause__


def same(found: Any, expected: Any) -> bool:
    """Whether two values are the same, types and NaNs included."""
    if isinstance(expected, np.ndarray):
        if not (
            isinstance(found, np.ndarray)
            and found.dtype == expected.dtype
            and found.shape == expected.shape
        ):
            return False
        return (
            all(map(same, found.flat, expected.flat))
            if found.dtype.hasobject
            else found.tobytes() == expected.tobytes()
        )
    if isinstance(expected, (list, tuple)):
        return (
            type(found) is type(expected)
            and len(found) == len(expected)
            and all(map(same, found, expected))
        )
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and list(found) == list(expected)
            and all(map(same, found.values(), expected.values()))
        )
    return type(found) is type(expected) and bool(
        found == expected or (found != found and expected != expected)
    )


def alike(found: Any, value: Any) -> bool:
    """Whether an entry of a column equals a value, where stacking does not convert it."""
    if isinstance(value, (bool, int, str, bytes)):
        return bool(found == value) or (
            isinstance(found, (np.floating, float)) and float(found) == float(value)
        )
    is_plain = isinstance(value, np.ndarray) and not value.dtype.hasobject
    return (
        not is_plain
        or not isinstance(found, np.ndarray)
        or found.dtype != value.dtype
        or same(found, value)
    )


def read_every_way(
    reader: Any, n: int, names: Iterable[str], exact: Collection[str] | None
) -> tuple[list[Attempt], list[Attempt]]:
    """Read the first ``n`` samples one by one, together, in turn, as a batch and by column.

    Args:
        reader: the dataset.
        n: how many samples.
        names: of the columns.
        exact: the ways that fail if, and only if, a single sample fails; None: compare nothing.

    Returns:
        The attempts one by one, and all others.
    """
    positions = list(range(n))
    singles = [Attempt(lambda i=i: reader[i]) for i in positions]  # type: ignore[misc]
    values, fails = (
        [single.value for single in singles],
        any(single.error is not None for single in singles),
    )
    ways = {
        "__getitems__": Attempt(lambda: reader.__getitems__(positions)),
        "iteration": Attempt(lambda: list(itertools.islice(reader, n))),
        "read_batch": Attempt(lambda: reader.read_batch(positions)),
    }
    columns = {
        name: Attempt(lambda name=name: reader.read_column(name, positions))  # type: ignore[misc]
        for name in names
    }
    for way, found in (
        (*ways.items(), *(("read_column", column) for column in columns.values()))
        if exact is not None
        else ()
    ):
        # Reading no samples opens files, too, and may find them damaged.
        if exact is not None and found.error is not None and n and not fails and way in exact:
            raise Violation(f"{way} fails, but each sample can be read") from found.error
        if found.error is None and fails and way != "read_column":
            raise Violation(
                f"{way} succeeds, but a sample cannot be read: {[single.error for single in singles]}"
            )
        if (
            found.error is None
            and way in ("__getitems__", "iteration")
            and not same(found.value, values)
        ):
            raise Violation(f"{way}: {found.value!r:.300}, but {values!r:.300} one by one")
    batch = ways["read_batch"].value if isinstance(ways["read_batch"].value, dict) else {}
    stacked = [
        *batch.items(),
        *((name, column.value) for name, column in columns.items() if column.error is None),
    ]
    for name, column in stacked if exact is not None else ():
        if len(column) != n:
            raise Violation(f"{len(column)} values of {name!r} for {n} samples")
        for value, sample in zip(column, values, strict=True):
            if sample is not None and not alike(value, sample[name]):
                raise Violation(
                    f"{name!r} is {value!r:.300} in a column, but {sample[name]!r:.300}"
                )
    return singles, [*ways.values(), *columns.values()]


def read_records(
    source: Any,
    promise: str,
    is_damaged: bool,
    truth: Sequence[Mapping[str, Any]],
    chance: random.Random,
) -> list[Attempt]:
    """Read a damaged dataset of records.

    Args:
        source: where it lies.
        promise: see :class:`Mutant`.
        is_damaged: likewise.
        truth: the samples that were written.
        chance: chooses options.

    Raises:
        Violation: it broke a promise; all other errors but ours are faults too.
    """
    options: dict[str, Any] = {"mapped": chance.random() < 0.7}
    opened = Attempt(lambda: records.open(source, **options))
    if opened.error is not None:
        if not isinstance(opened.error, _DAMAGE if promise == "truth" else (*_DAMAGE, ConfigError)):
            raise Violation("this is not an error of opening damaged files") from opened.error
        _check_damage(opened, promise, is_damaged)
        return [opened]
    with opened.value as reader:
        length = len(reader)
        n_appended = max(0, length - len(truth)) if promise == "truth" else 0
        # Records behind those of the manifest, as Granular appends them, are read without
        # checksums; the reader warns of them.
        if promise == "truth" and (
            length < len(truth) or (n_appended and getattr(reader, "manifest", None) is not None)
        ):
            raise Violation(f"{length} samples, of {len(truth)}")
        exact = (
            None
            if promise == "lies"
            else ("__getitems__", "iteration", "read_batch", "read_column")
        )
        singles, others = read_every_way(reader, min(length, _MAX_SAMPLES), reader.spec, exact)
        far = (
            []
            if length <= _MAX_SAMPLES
            else [
                Attempt(lambda i=i: reader[i])  # type: ignore[misc]
                for i in (length // 2, length - 1)
            ]
        )
        for position, single in enumerate([*singles, *far]):
            is_true = promise == "truth" and position < len(truth)
            _check_damage(single, promise if is_true or not n_appended else "anything", is_damaged)
            if single.error is None and is_true and not same(single.value, truth[position]):
                raise Violation(
                    f"sample {position} is {single.value!r:.300}, not {truth[position]!r:.300}"
                )
            if single.error is None and not is_true:
                _check_types(reader.spec, single.value)
        together = "anything" if n_appended else promise
        for attempt in others:
            _check_damage(attempt, together, is_damaged)
        verified = [Attempt(reader.verify)] if length <= 1 << 20 else []  # else it takes too long
        for each in verified:
            _check_damage(each, together, is_damaged)
            if each.error is None and promise == "truth" and is_damaged:
                raise Violation("verify() finds no damage")
            if (
                each.error is None
                and promise != "lies"
                and any(single.error is not None for single in singles)
            ):
                raise Violation("verify() finds no damage, but a sample cannot be read")
        return [opened, *singles, *far, *others, *verified]


def _check_damage(attempt: Attempt, promise: str, is_damaged: bool) -> None:
    if attempt.error is None:
        return
    if promise == "truth" and not is_damaged:
        raise Violation("undamaged files cannot be read") from attempt.error
    if not isinstance(attempt.error, (*_DAMAGE, ConfigError) if promise != "truth" else _DAMAGE):
        raise Violation("this is not an error of damage") from attempt.error


def _check_types(spec: Mapping[str, str], sample: Mapping[str, Any]) -> None:
    if list(sample) != list(spec):
        raise Violation(f"a sample has {list(sample)}, not {list(spec)}")
    for name, kind in spec.items():
        values = sample[name] if kind.endswith("[]") else [sample[name]]
        wanted = _TYPES.get(kind.removesuffix("[]"), object)
        if not isinstance(values, list) or not all(isinstance(each, wanted) for each in values):
            raise Violation(f"column {name!r} of type {kind!r} has {sample[name]!r:.300}")
