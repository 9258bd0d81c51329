"""Writes record datasets."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, NoReturn

from data_stack.codecs import Codecs, codec_of
from data_stack.codecs.codec import Column
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.records.bag_writer import BagWriter, Piece
from data_stack.formats.records.column_buffer import (
    EncodingError,
    FixedColumn,
    Part,
    Parts,
    SequenceColumn,
    buffer_of,
)
from data_stack.formats.records.folder_target import FolderTarget, Target
from data_stack.formats.records.layout import MAX_RECORDS, REFS, checked_columns
from data_stack.formats.records.memory_blocks import MemoryBlocks
from data_stack.formats.records.references import packed_references
from data_stack.formats.records.store_target import StoreTarget
from data_stack.io.folder import Folder, folder_of
from data_stack.io.integrity import HashingThread

__all__ = ["RecordWriter", "checked_length"]

#: About so many bytes of a column are written at once; fewer where there are many columns.
_BUFFER_BYTES = 1 << 20
_ALL_BUFFERS_BYTES = 16 << 20
_LEAST_BUFFER_BYTES = 1 << 16
_MOST_OPEN = 1 << 13

_FINISHED = (
    "that of a finished dataset with sequences, whose index stands behind its records. Write further samples to another folder, "
    "such as the next shard"
)
_OPEN_WRITERS: weakref.WeakSet[RecordWriter] = weakref.WeakSet()


class RecordWriter:
    """Writes samples as a record dataset, byte for byte as Granular does, and a manifest beside them.

    ::

        with RecordWriter("train", {"image": "jpg", "x": Column("array", "float32", (64,)), "label": "i64"}) as writer:
            for i in range(len(writer), n_samples):     # goes on where an interrupted run stopped
                writer.append({"image": image(i), "x": vector(i), "label": label(i)})

    In a folder an interrupted dataset, Granular's too, is gone on with: ``len(writer)`` samples are complete, and the caller
    gives those behind. What some columns already hold of them must be the same, so that a run that was interrupted ends up with
    the very bytes of one that was not. A finished dataset is appended to likewise, unless it has sequences. In a store nothing is
    published before :meth:`close`, and a writer begins at the first sample.

    A ``with`` block that ends cleanly completes the dataset. One that raises leaves it to be gone on with, as does a process that
    dies; samples that were appended and not flushed (about 1 MiB of each column) are then lost if it was killed. What was flushed
    outlives the process; only what was closed, or is covered by a :meth:`checkpoint`, outlives a power cut.

    A writer belongs to one thread, and to the process that made it: a fork cannot use it.

    Args:
        target: folder, storage connector, or the PreparedResources that a dataset's ``preprocess()`` gets.
        spec: type of each column, or a :class:`Column` with its dtype and shape too, which is written faster and refuses what
            does not fit. With a type such as ``"jpg[]"`` a column has any number of values a sample; the dataset is then written
            in the layout of Granular 0.21, since later ones have no sequences.
        prefix: folder below ``target``.
        codecs: codecs of one's own, by type.
        on_overlap: what to do where an interrupted writer left some columns longer than others: ``"verify"`` to compare what is
            written next with it, ``"truncate"`` to cut it off, for codecs that give other bytes each time.

    Raises:
        ConfigError: the spec is none, or a dataset is there that has other columns or cannot be appended to.
        StorageConflictError: another writer has the folder open.
        DatasetFileCorruptError: what is there is damaged.
        StorageError: it cannot be written there.
    """

    def __init__(
        self,
        target: Any,
        spec: Mapping[str, str | Column],
        *,
        prefix: str = "",
        codecs: Codecs | None = None,
        on_overlap: Literal["verify", "truncate"] = "verify",
    ) -> None:
        self._open(folder_of(target, prefix), spec, codecs, on_overlap, replaces=False)

    @classmethod
    def _at(
        cls,
        folder: Folder,
        spec: Mapping[str, str | Column],
        codecs: Codecs | None,
        on_overlap: Literal["verify", "truncate"],
        *,
        replaces: bool,
    ) -> RecordWriter:
        writer = cls.__new__(cls)
        writer._open(folder, spec, codecs, on_overlap, replaces=replaces)
        return writer

    def _open(
        self, folder: Folder, spec: Mapping[str, str | Column], codecs: Codecs | None, on_overlap: str, *, replaces: bool
    ) -> None:
        if on_overlap not in ("verify", "truncate"):
            raise ConfigError(f'on_overlap is "verify" or "truncate", not {on_overlap!r:.80}')
        self._name = folder.name or "the root of the store"
        self._columns = checked_columns(spec)
        self._blocks = MemoryBlocks()
        self._buffers = {
            name: buffer_of(name, column, codec_of(column.type, codecs), self._blocks) for name, column in self._columns.items()
        }
        self._hashing = HashingThread()
        self._target: Target
        if folder.path is not None:
            self._target = FolderTarget(folder, self._columns, self._hashing, truncates=on_overlap == "truncate")
        else:
            self._target = StoreTarget(folder, self._columns, self._hashing, replaces=replaces)
        try:
            self._target.observe_found(self._buffers)
        except BaseException:
            self._target.release()
            raise
        self._bags: Mapping[str, BagWriter] = self._target.bags
        self._n_written = self._target.count
        self._n_sealed = self._n_open = 0
        self._prepare_buffers()
        #: Why nothing can be appended; empty if it can.
        self._state = _FINISHED if self._target.is_closed else ""
        self._is_released = False
        self._release = weakref.finalize(self, _release, self._target, self._hashing)
        self._release.atexit = False
        _OPEN_WRITERS.add(self)

    def _prepare_buffers(self) -> None:
        buffers = list(self._buffers.values())
        most = max(_LEAST_BUFFER_BYTES, min(_BUFFER_BYTES, _ALL_BUFFERS_BYTES // len(buffers)))
        fixed = [buffer.layout.record_bytes for buffer in buffers if isinstance(buffer, FixedColumn)]
        self._most_open = max(1, min([_MOST_OPEN, *(most // max(1, n_bytes) for n_bytes in fixed)]))
        self._most_bytes = most
        for buffer in buffers:
            buffer.open_slots(self._most_open)
        self._encoded = [buffer for buffer in buffers if not isinstance(buffer, FixedColumn)]
        self._has_sequences = any(isinstance(buffer, SequenceColumn) for buffer in buffers)
        self._stages: list[tuple[str, Callable[[Any, int], None]]] = [
            (name, buffer.stage) for name, buffer in self._buffers.items()
        ]
        self._n_columns = len(buffers)
        #: Whether what is written is compared with what is there, so that each sample is to be written at once.
        self._is_behind = any(bag.is_ahead for bag in self._bags.values())
        self._is_full = False

    # ------------------------------------------------------------------ what there is

    def __len__(self) -> int:
        """Number of samples, those included that are not flushed yet."""
        return self._n_written + self._n_sealed + self._n_open

    @property
    def spec(self) -> dict[str, str]:
        """Type of each column, sorted by name, as ``spec.json`` has it."""
        return {name: column.type for name, column in self._columns.items()}

    @property
    def schema(self) -> dict[str, Column]:
        """The columns as they were declared."""
        return dict(self._columns)

    @property
    def n_bytes(self) -> int:
        """Size of the records and their index."""
        self._seal()
        sealed = [piece for buffer in self._buffers.values() for piece in buffer.pieces()]
        written = sum(bag.n_bytes + 8 * bag.n_records for bag in self._bags.values())
        return written + sum(piece.n_bytes + 8 * piece.n_records for piece in sealed)

    @property
    def size(self) -> int:
        """Granular's name of :attr:`n_bytes`."""
        return self.n_bytes

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name!r}: {len(self):,} samples{', ' + self._state if self._state else ''}>"

    # ------------------------------------------------------------------ writing

    def append(self, sample: Mapping[str, Any], flush: bool = False) -> int:
        """Append a sample: a value for each column, a list of values for one of sequences.

        Args:
            sample: the values by name; they may be changed afterwards.
            flush: whether to write it at once.

        Returns:
            Its position.

        Raises:
            ConfigError: a column is missing or unknown, a value is not what its column stores, or the writer is closed. Nothing
                of the sample was appended.
            StorageError: there is no room, for instance. Nothing of it was appended.
        """
        if self._state:
            self._refuse()
        is_single = flush or self._is_behind
        if self._is_full or is_single:
            self._write()
        slot = self._n_open
        name = ""
        try:
            for name, stage in self._stages:
                stage(sample[name], slot)
            if len(sample) != self._n_columns:
                raise KeyError
        except Exception as error:  # noqa: BLE001  # whatever a codec raises for a value
            self._refuse_value(sample, name, len(self), error)
        self._n_open = slot + 1
        if is_single:
            self._write_last()
        elif slot + 1 >= self._most_open or any(buffer.open_bytes >= self._most_bytes for buffer in self._encoded):
            self._is_full = True
        return len(self) - 1

    def extend(self, columns: Mapping[str, Any]) -> None:
        """Append many samples, given as columns: arrays of shape ``(n, ...)`` or sequences of n values.

        Arrays of numbers are written without touching their values one by one. All is checked before anything is appended that
        dtypes and shapes tell; if a codec refuses a value later, or there is no room, ``len(writer)`` says how far it got.

        Raises:
            ConfigError: as for :meth:`append`, or the columns differ in their length.
            StorageError: as for :meth:`append`.
        """
        if self._state:
            self._refuse()
        n_samples = checked_length(columns, self._columns, self._name)
        if self._has_sequences:
            for values in zip(*(columns[name] for name in self._buffers), strict=True):
                self.append(dict(zip(self._buffers, values, strict=True)))
            return
        parts = {}
        for name, buffer in self._buffers.items():
            try:
                parts[name] = buffer.parts(columns[name])
            except Exception as error:  # noqa: BLE001  # as above
                self._refuse_column(name, error)
        most_values = min(each.most_values for each in parts.values())
        self._seal()
        start = 0
        while start < n_samples:
            if self._is_behind or max(buffer.sealed_bytes for buffer in self._buffers.values()) >= self._most_bytes // 2:
                self._write()
            start += self._add(parts, start, min(n_samples, start + most_values))
            if self._is_behind:
                self._write_last()

    def flush(self) -> None:
        """Give all samples to the operating system: from now on they outlive the process.

        Raises:
            StorageError: they could not be written; it can be tried again, once there is room.
        """
        if self._state:
            self._refuse()
        self._write()

    def checkpoint(self) -> None:
        """Make all samples durable, and cover them by a manifest: they outlive a power cut, and readers notice any damage.

        A dataset with sequences can only be read when it is closed; its samples are made durable all the same. In a store this
        does nothing, since it publishes what is complete.

        Raises:
            StorageError: as for :meth:`flush`.
            DatasetFileCorruptError: what an earlier writer left is damaged.
        """
        self.flush()
        self._target.checkpoint(self._buffers, self._n_written)

    def close(self) -> None:
        """Complete the dataset: all is durable, and the manifest is written last. Closing again does nothing.

        Raises:
            StorageError, DatasetFileCorruptError: as for :meth:`checkpoint`; the writer is then still open.
        """
        if self._is_released:
            return
        if not self._target.is_closed:
            self.flush()
            self._target.finish(self._buffers, self._n_written)
        self._leave("closed")

    def abandon(self) -> None:
        """Flush, and leave the dataset as it is, to be gone on with later. In a store nothing remains of it."""
        if not self._is_released:
            try:
                if not self._state:
                    self._write()
                    self._target.sync(self._n_written)
            finally:
                self._leave("abandoned")

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc_type is None:
            try:
                self.close()
            finally:
                self._leave("closed")
        else:
            with contextlib.suppress(Exception):  # what goes wrong already is what the caller shall see
                self.abandon()

    # ------------------------------------------------------------------ inside

    def _seal(self) -> None:
        """Put the open samples behind the pieces."""
        n_open = self._n_open
        if n_open:
            with self._in_one_step():
                for buffer in self._buffers.values():
                    buffer.seal(n_open)
                self._n_sealed, self._n_open, self._is_full = self._n_sealed + n_open, 0, False

    def _write(self) -> None:
        """Write what is pending. If that fails, all of it is pending still."""
        self._seal()
        if not self._n_sealed:
            return
        if len(self) > MAX_RECORDS:
            raise ConfigError(f"a record dataset has at most {MAX_RECORDS} samples; write shards (ShardedRecordWriter)")
        written: list[BagWriter] = []
        try:
            self._target.begin()
            for name, buffer in self._buffers.items():
                written.append(self._bags[name])
                self._bags[name].write(buffer.pieces())
            if self._has_sequences:
                written.append(self._bags[REFS])
                self._bags[REFS].write([self._references()])
        except BaseException as error:
            for bag in written:
                bag.take_back()
            if not all(bag.is_repeatable for bag in written):
                self._state = f"broken by an error ({error!s:.200})"
            raise
        with self._in_one_step():
            for bag in written:
                bag.advance()
            for buffer in self._buffers.values():
                buffer.clear()
            self._n_written, self._n_sealed = self._n_written + self._n_sealed, 0
            if self._is_behind:
                self._is_behind = any(bag.is_ahead for bag in self._bags.values())
        self._target.written(self._n_written)

    def _write_last(self) -> None:
        """Write the one sample, or stretch of samples, that is pending; if that fails it was never appended."""
        try:
            self._write()
        except BaseException:
            if not self._state:
                with self._in_one_step():
                    for buffer in self._buffers.values():
                        buffer.take_back()
                    self._n_sealed = 0
            raise

    def _add(self, parts: Mapping[str, Parts], start: int, stop: int) -> int:
        """Encode the samples from ``start`` on, and put them behind the pieces; gives how many these were."""
        base, encoded = len(self) - start, dict[str, Part]()
        # Those first that may stop earlier, since their records are large.
        for name in sorted(parts, key=lambda name: parts[name].are_rows):
            try:
                encoded[name] = part = parts[name].encoded(start, stop)
            except EncodingError as error:
                self._refuse_column(name, error.error, base + error.number)
            stop = start + part.n_records
        for name, part in encoded.items():
            if part.n_records > stop - start:
                encoded[name] = part.first(stop - start)
        with self._in_one_step():
            for name, part in encoded.items():
                self._buffers[name].add(part)
            self._n_sealed += stop - start
        return stop - start

    def _refuse_value(self, sample: Any, name: str, number: int, error: Exception) -> NoReturn:
        if not isinstance(sample, Mapping):
            raise ConfigError(
                f"sample {number} of {self._name!r} is {type(sample).__name__}, not a dict of its columns"
            ) from error
        _check_names(sample, self._columns, f"sample {number} of {self._name!r}")
        self._refuse_column(name, error, number, "Nothing of the sample was appended")

    def _refuse_column(self, name: str, error: Exception, number: int | None = None, consequence: str = "") -> NoReturn:
        if isinstance(error, (MissingDependencyError, MemoryError)):
            raise error
        where = f"column {name!r}" + ("" if number is None else f", sample {number},")
        raise ConfigError(
            f"{where} of {self._name!r} does not store that value: {error!s:.400}. "
            + (consequence or f"{len(self)} samples are appended")
        ) from error

    def _refuse(self) -> NoReturn:
        raise ConfigError(f"nothing can be appended to {self._name!r}: its writer is {self._state}")

    def _leave(self, state: str) -> None:
        if not self._is_released:
            self._is_released, self._state = True, state
            self._release()

    def _disown(self) -> None:
        """In a fork: neither the samples nor the lock are of this process."""
        if not self._is_released:
            self._is_released, self._state = True, "of another process, which this one was forked from"
            self._release.detach()
            self._target.disown()

    def _references(self) -> Piece:
        """Which records the samples have that are sealed."""
        firsts = {name: self._bags[name].n_records for name in self._buffers}
        counts = {name: buffer.counts() for name, buffer in self._buffers.items() if isinstance(buffer, SequenceColumn)}
        records = []
        for number in range(self._n_sealed):
            entries: list[int | tuple[int, int]] = []
            for name in self._buffers:
                if name in counts:
                    count = counts[name][number]
                    entries.append((firsts[name], count))
                    firsts[name] += count
                else:
                    entries.append(self._n_written + number)
            records.append(packed_references(entries))
        return Piece.of(records, self._blocks)

    @contextlib.contextmanager
    def _in_one_step(self) -> Iterator[None]:
        """What happens inside happens whole; whatever breaks it off, such as Ctrl-C, makes the writer unusable."""
        self._state = "broken off in the middle of a sample. Open the dataset anew: it goes on behind its last complete sample"
        yield
        self._state = ""


def checked_length(given: Mapping[str, Any], columns: Collection[str], name: str) -> int:
    """The one length that all columns have which are given to be appended to the dataset ``name``.

    Raises:
        ConfigError: one is missing, unknown or no column, or they differ in their length.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"extend() takes a dict with the values of each column, not {type(given).__name__}")
    _check_names(given, columns, f"what is given to {name!r}")
    lengths = {}
    for column in columns:
        values = given[column]
        if isinstance(values, (str, bytes, bytearray)) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0:
            raise ConfigError(
                f"column {column!r} of {name!r} takes an array of shape (n, ...) or a list of n values, not {values!r:.80}"
            )
        lengths[column] = len(values)
    if len(set(lengths.values())) != 1:
        raise ConfigError(f"the columns for {name!r} differ in their length: {lengths}. Nothing was appended")
    return lengths[column]


def _check_names(given: Mapping[str, Any], columns: Collection[str], what: str) -> None:
    missing, unknown = set(columns) - given.keys(), given.keys() - set(columns)
    if missing or unknown:
        problems = [
            f"{word} {', '.join(sorted(map(repr, names)))}" for word, names in (("lacks", missing), ("has", unknown)) if names
        ]
        raise ConfigError(
            f"{what} {' and '.join(problems)}; the dataset has the columns {', '.join(map(repr, columns))}. Nothing was appended"
        )


def _release(target: Target, hashing: HashingThread) -> None:
    target.release()
    hashing.stop()


def _disown_all() -> None:
    for writer in list(_OPEN_WRITERS):
        writer._disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
