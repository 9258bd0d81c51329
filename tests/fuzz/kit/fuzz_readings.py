"""Reads a damaged dataset in every way, and holds what comes out against what may."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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
from data_stack.formats.records import RecordWriter

MOST_SECONDS = 5.0
"""What one reading may take of a processor."""
_MOST_SAMPLES = 24
_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("array", "jpg", "mp4", "npy", "png", "webm", "webp", "zstd(array)"), (np.ndarray,)),
    **dict.fromkeys(("i64", "int", "u64"), (int,)),
    **dict.fromkeys(("flac", "wav"), (tuple,)),
    "bytes": (bytes,),
    "utf8": (str,),
}
# A manifest that lies may claim records that are larger than a request may be.
_DAMAGE = (DatasetFileCorruptError, ResourceNotFoundError, StorageError, RequestLimitError)


class Violation(Exception):
    """A promise was broken."""


class Attempt:
    """A value, or the error of ours in its place."""

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
        if seconds > MOST_SECONDS:
            raise Violation(f"{seconds:.1f} s for one reading")


def _check_error(error: DataStackError) -> None:
    """An error of ours says something, survives pickling, and hides no lack of memory."""
    if not str(error):
        raise Violation(f"{type(error).__name__} says nothing")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            raise Violation("a lack of memory behind an error of ours") from error
        cause = cause.__cause__


def same(found: Any, expected: Any) -> bool:
    """Whether two values are the same, their types and NaNs included."""
    if isinstance(expected, np.ndarray):
        return (
            isinstance(found, np.ndarray)
            and found.dtype == expected.dtype
            and found.shape == expected.shape
            and (
                found.tobytes() == expected.tobytes() if not found.dtype.hasobject else all(map(same, found.flat, expected.flat))
            )
        )
    if isinstance(expected, (list, tuple)):
        return type(found) is type(expected) and len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, dict):
        return isinstance(found, dict) and list(found) == list(expected) and all(map(same, found.values(), expected.values()))
    if isinstance(expected, float):
        return isinstance(found, float) and (found == expected or (found != found and expected != expected))
    return type(found) is type(expected) and bool(found == expected)


def alike(found: Any, value: Any) -> bool:
    """Whether an entry of a column is a value, as far as stacking leaves it what it was."""
    if isinstance(value, (bool, int, str, bytes)):
        return bool(found == value) or (isinstance(found, (np.floating, float)) and float(found) == float(value))
    if (
        isinstance(value, np.ndarray)
        and not value.dtype.hasobject
        and isinstance(found, np.ndarray)
        and found.dtype == value.dtype
    ):
        return same(found, value)
    return True


class Reading:
    """One mutant, read in every way.

    Args:
        source: where it lies.
        promise: see :class:`Mutant`.
        is_damaged: likewise.
        truth: what was written.
        chance: chooses ways and options.
    """

    def __init__(
        self, source: Any, promise: str, is_damaged: bool, truth: Sequence[Mapping[str, Any]], chance: random.Random
    ) -> None:
        self._source, self._promise, self._is_damaged = source, promise, is_damaged
        self._truth, self._chance = truth, chance
        self.n_errors = self.n_values = 0

    def run(self) -> None:
        """Read it.

        Raises:
            Violation: it broke a promise; or whatever else came out of it that is no error of ours.
        """
        options: dict[str, Any] = {"mapped": self._chance.random() < 0.7}
        opened = self._try(lambda: records.open(self._source, **options))
        if opened.error is not None:
            self._check_opening(opened.error)
            return
        with opened.value as reader:
            self._read(reader)

    def _try(self, action: Callable[[], Any]) -> Attempt:
        attempt = Attempt(action)
        if attempt.error is None:
            self.n_values += 1
        else:
            self.n_errors += 1
        return attempt

    def _check_opening(self, error: DataStackError) -> None:
        if self._promise == "truth":
            if not self._is_damaged:
                raise Violation("what is whole cannot be opened") from error
            if not isinstance(error, _DAMAGE):
                raise Violation("damage is another kind of error") from error
        elif not isinstance(error, (*_DAMAGE, ConfigError)):
            raise Violation("this is no error for what cannot be opened") from error

    def _read(self, reader: Any) -> None:
        length = len(reader)
        if self._promise == "truth" and length != len(self._truth):
            raise Violation(f"{length} samples, of {len(self._truth)}")
        positions = list(range(length)) if length <= _MOST_SAMPLES else [0, 1, length // 2, length - 1]
        singles: dict[int, Attempt] = {}
        for position in self._chance.sample(positions, len(positions)):
            singles[position] = single = self._try(lambda position=position: reader[position])  # type: ignore[misc]
            self._check_sample(reader, position, single)
        chosen = [self._chance.choice(positions) for _ in range(5)] if positions else []
        listed = self._try(lambda: reader.__getitems__(chosen))
        self._check_agreement("__getitems__", listed, [singles[i] for i in chosen])
        if listed.error is None:
            for found, position in zip(listed.value, chosen, strict=True):
                self._check_same("__getitems__", found, singles[position], position)
        self._read_in_turn(reader, singles, positions, length)
        self._read_columns(reader, singles, chosen, positions, length)
        self._verify(reader, singles, length)

    def _check_sample(self, reader: Any, position: int, single: Attempt) -> None:
        if single.error is not None:
            self._check_damage(single.error)
            return
        if self._promise == "truth":
            if not same(single.value, self._truth[position]):
                raise Violation(f"sample {position} is {single.value!r:.300}, not {self._truth[position]!r:.300}")
        elif list(single.value) != list(reader.spec):
            raise Violation(f"a sample has {list(single.value)}, not {list(reader.spec)}")
        else:
            for name, kind in reader.spec.items():
                value = single.value[name]
                values = value if kind.endswith("[]") else [value]
                wanted = _TYPES.get(kind.removesuffix("[]"), (object,))
                if not isinstance(values, list) or not all(isinstance(each, wanted) for each in values):
                    raise Violation(f"column {name!r} of type {kind!r} has {value!r:.300}")

    def _check_damage(self, error: DataStackError) -> None:
        if self._promise == "truth" and not self._is_damaged:
            raise Violation("what is whole cannot be read") from error
        if not isinstance(error, _DAMAGE):
            raise Violation("damage is another kind of error") from error

    def _check_agreement(self, way: str, attempt: Attempt, singles: Sequence[Attempt]) -> None:
        """What fails for a sample fails for several with it, and only then; a stranger's manifest may say what it likes."""
        if attempt.error is not None:
            self._check_damage(attempt.error)
        if (
            self._promise != "lies"
            and singles
            and (attempt.error is not None) != any(single.error is not None for single in singles)
        ):
            raise Violation(f"{way}: {attempt.error!r}; one by one: {[single.error for single in singles]}")

    def _check_same(self, way: str, found: Any, single: Attempt, position: int) -> None:
        if single.error is None and self._promise != "lies" and not same(found, single.value):
            raise Violation(f"{way}: sample {position} is {found!r:.300}, but {single.value!r:.300} by itself")

    def _read_in_turn(self, reader: Any, singles: Mapping[int, Attempt], positions: Sequence[int], length: int) -> None:
        turn = iter(reader)
        for position in range(min(length, _MOST_SAMPLES)):
            found = self._try(lambda: next(turn))
            if found.error is not None:
                self._check_damage(found.error)
                if self._promise != "lies" and position in singles and singles[position].error is None:
                    raise Violation(f"iteration fails at {position}, which can be read") from found.error
                return
            if position in singles:
                if self._promise != "lies" and singles[position].error is not None:
                    raise Violation(f"iteration has sample {position}, which cannot be read") from singles[position].error
                self._check_same("iteration", found.value, singles[position], position)
        if length <= _MOST_SAMPLES and next(turn, None) is not None:
            raise Violation("iteration goes on after the last sample")

    def _read_columns(
        self, reader: Any, singles: Mapping[int, Attempt], chosen: list[int], positions: Sequence[int], length: int
    ) -> None:
        batch = self._try(lambda: reader.read_batch(chosen))
        self._check_agreement("read_batch", batch, [singles[i] for i in chosen])
        parts = [] if batch.error is not None else [(name, column, chosen) for name, column in batch.value.items()]
        for name in reader.spec:
            indices = None if length <= _MOST_SAMPLES and self._chance.random() < 0.5 else chosen
            column = self._try(lambda name=name, indices=indices: reader.read_column(name, indices))  # type: ignore[misc]
            if column.error is None:
                parts.append((name, column.value, list(positions) if indices is None else chosen))
            else:
                self._check_damage(column.error)
                if self._promise != "lies" and singles and all(single.error is None for single in singles.values()):
                    raise Violation(f"read_column({name!r}) fails, though all samples can be read") from column.error
        for name, values, indices in parts:
            if len(values) != len(indices):
                raise Violation(f"{len(values)} values of {name!r} for {len(indices)} samples")
            for value, position in zip(values, indices, strict=True):
                expected = self._truth[position] if self._promise == "truth" else singles[position].value
                if expected is not None and self._promise != "lies" and not alike(value, expected[name]):
                    raise Violation(f"{name!r} of sample {position} is {value!r:.300} in a column, but {expected[name]!r:.300}")

    def _verify(self, reader: Any, singles: Mapping[int, Attempt], length: int) -> None:
        if length > 1 << 20:
            return  # it is what the stranger said; there is no shorter way
        verified = self._try(reader.verify)
        if verified.error is not None:
            self._check_damage(verified.error)
        elif self._promise == "truth" and self._is_damaged:
            raise Violation("verify() finds no damage")
        elif self._promise != "lies" and any(single.error is not None for single in singles.values()):
            raise Violation("verify() finds no damage, but a sample cannot be read")


def go_on_writing(folder: Path, spec: Any, truth: Sequence[Mapping[str, Any]], promise: str) -> str:
    """Go on with a damaged dataset as after a crash, and read what it is then.

    Returns:
        ``"refused"`` or ``"finished"``.

    Raises:
        Violation: it was finished, and cannot be read.
    """

    def write() -> int:
        with RecordWriter(folder, spec) as writer:
            n_found = len(writer)
            for sample in itertools.islice(truth, n_found, None):
                writer.append(sample)
        return n_found

    written = Attempt(write)
    if written.error is not None:
        return "refused"
    read = Attempt(lambda: _read_all(folder))
    if read.error is not None:
        # Whoever has nothing to write leaves what is there as it was.
        if promise == "truth" and written.value < len(truth):
            raise Violation("a writer finished what cannot be read") from read.error
    elif promise == "truth" and not same(read.value, [*truth]):
        raise Violation(f"{read.value!r:.300}, not {truth!r:.300}")
    return "finished"


def _read_all(folder: Path) -> list[Any]:
    with records.open(folder) as reader:
        reader.verify()
        return list(reader)
