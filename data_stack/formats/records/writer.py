"""Writes record datasets."""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Any

from data_stack.codecs import Codecs, codec_of
from data_stack.codecs.codec import ColumnType
from data_stack.exception import ConfigError
from data_stack.formats.dataset_writer import DatasetWriter
from data_stack.formats.records.column_writer import ColumnWriter
from data_stack.formats.records.growing_target import GrowingTarget
from data_stack.formats.records.layout import (
    ENTRY_BYTES,
    MAX_RECORDS,
    REFS,
    SPEC,
    bag_name,
    check_columns,
    parse_spec,
    shard_names,
)
from data_stack.formats.records.published_target import PublishedTarget
from data_stack.formats.records.record_batch import RecordBatch
from data_stack.formats.records.sample_references import pack_references
from data_stack.formats.records.samples import iterate_samples
from data_stack.formats.records.target import Target
from data_stack.io.folder import folder_of
from data_stack.util.forks import call_in_forks
from data_stack.util.program_lines import warn_deprecated

#: Appended samples are written when they have about this many bytes.
_APPENDED_BYTES_AT_ONCE = 1 << 20

#: Samples that are given as columns are written in pieces of about this many bytes.
_EXTENDED_BYTES_AT_ONCE = 2 << 20

#: The first piece has this many samples; it shows how large the records are.
_SAMPLES_OF_FIRST_PIECE = 64

#: A piece has at most this many times as many samples as the one before.
_MAX_GROWTH_OF_PIECES = 16

#: The writer makes a checkpoint at this interval.
_CHECKPOINT_SECONDS = 30.0


class RecordWriter(DatasetWriter):
    """Writes samples as a record dataset in Granular's files, and a manifest beside them.

    The files are byte for byte Granular's, but for columns of images and videos, which are encoded
    with other settings.

    ::

        spec = {"image": "jpg", "x": ColumnType("array", "float32", (64,)), "label": "i64"}
        with RecordWriter("train", spec) as writer:
            for i in range(len(writer), n_samples):     # resumes an interrupted run
                writer.append({"image": image(i), "x": vector(i), "label": label(i)})

    In a folder, a writer resumes an interrupted dataset, also one of Granular: ``len(writer)``
    samples are complete, and the caller appends the rest. It appends to a finished dataset in the
    same way. In a store, and with sequences, the dataset is published by :meth:`close`, and a
    writer starts at the first sample.

    A ``with`` block that ends cleanly completes the dataset. If it raises, the process dies or the
    power fails, the samples that :meth:`flush` covered remain, and no others; the writer flushes
    every 30 seconds by itself.

    A writer belongs to one thread of one process: a forked child cannot use it.

    Args:
        target: folder, storage connector, or the PreparedResources that a dataset's
            ``preprocess()`` gets.
        spec: type of each column, or a :class:`ColumnType` with its dtype and shape too, which is
            written faster and refuses what does not fit. With a type such as ``"jpg[]"`` a column
            has any number of values a sample; the dataset is then written in the layout of Granular
            0.21, since later ones have no sequences.
        prefix: folder below ``target``.
        codecs: custom codecs by type, which take precedence over built-in ones.

    Raises:
        ConfigError: the spec is invalid, or a dataset is there that has other columns or cannot be
            appended to.
        StorageConflictError: another writer has the folder open.
        DatasetFileCorruptError: the dataset that is there is damaged.
        StorageError: the dataset cannot be written there.
    """

    #: The writer of each column, in the order of their names.
    _writers: dict[str, ColumnWriter]

    #: Encodes the value of a sample in each column: as one record, or as a list of records.
    _encoders: dict[str, Callable[[Any], Any]]

    #: The names of the columns of sequences.
    _sequences: set[str]

    #: The records of samples that are not written yet: for each sample, what :attr:`_encoders`
    #: returned for each column.
    _rows: list[list[Any]]

    #: The size of these records and of their entries in the indexes, in bytes.
    _row_bytes: int

    #: Where the records are written to.
    _target: Target

    #: Why nothing can be appended; empty if samples can be appended.
    _state: str

    def __init__(
        self,
        target: Any,
        spec: Mapping[str, str | ColumnType],
        *,
        prefix: str = "",
        codecs: Codecs | None = None,
    ) -> None:
        folder = folder_of(target, prefix)
        self._name = folder.name or "the root of the store"
        self._columns = check_columns(spec)
        self._sequences = set()
        self._writers = {}
        self._encoders = {}
        for name, column in self._columns.items():
            writer = ColumnWriter(name, column, codec_of(column.type, codecs), self._name)
            self._writers[name] = writer
            if column.is_sequence:
                self._sequences.add(name)
                self._encoders[name] = writer.encode_sequence
            else:
                self._encoders[name] = writer.encode
        self._rows = []
        self._row_bytes = 0
        if folder.path is not None and not self._sequences:
            self._target = GrowingTarget(folder, self._writers)
        else:
            self._target = PublishedTarget(folder, self._writers)
        self._checkpointed_at = time.monotonic()
        self._state = ""
        # A writer that is forgotten gives its files and its lock back, and publishes nothing.
        self._release = weakref.finalize(self, self._target.give_up)
        self._release.atexit = False
        call_in_forks(self._detach_in_child)

    # ------------------------------------------------------------------ what there is

    def __len__(self) -> int:
        """Return the number of samples, also of those that are not flushed yet."""
        return self._target.count + len(self._rows)

    @property
    def size(self) -> int:
        """The size of the records and their indexes in bytes."""
        n_bytes = self._row_bytes
        for writer in self._target.writers.values():
            n_bytes += writer.bag.size + writer.idx.size
        return n_bytes

    # ------------------------------------------------------------------ writing

    def append(self, sample: Mapping[str, Any], flush: bool = False) -> int:
        """Append a sample: a value for each column, a list of values for one of sequences.

        Args:
            sample: the values by name; they may be changed afterwards.
            flush: whether to :meth:`flush` it at once.

        Returns:
            Its position.

        Raises:
            ConfigError: a column is missing or unknown, a value is not what its column stores, or
                the writer is closed. Nothing of the sample was appended.
            StorageError: for instance the disk is full; ``len(writer)`` shows whether the sample
                was appended.
        """
        self._check_open()
        if self._row_bytes >= _APPENDED_BYTES_AT_ONCE:
            self._write()
        row: list[Any] = []
        name = ""
        try:
            for name, encode in self._encoders.items():
                row.append(encode(sample[name]))
            has_unknown_columns = len(sample) != len(row)
        except Exception as error:  # noqa: BLE001  # a codec may raise anything
            # The names are checked after an error only: nearly all samples have the right ones.
            self._check_names_of(sample)
            self._writers[name].refuse(error, len(self))
        if has_unknown_columns:
            self._check_names_of(sample)
        self._rows.append(row)
        for records in row:
            if type(records) is bytes:
                self._row_bytes += len(records) + ENTRY_BYTES
            else:
                self._row_bytes += sum(map(len, records)) + ENTRY_BYTES * len(records)
        if flush:
            self.flush()
        return len(self) - 1

    def extend(self, columns: Mapping[str, Any]) -> None:
        """Append many samples, given as columns.

        Arrays of numbers are written without touching their values one by one. What dtypes and
        shapes show is checked before anything is appended. If a codec refuses a value later, or the
        disk is full, ``len(writer)`` shows how many samples were appended.

        Args:
            columns: for each column an array of shape ``(n_samples, ...)``, or a sequence of
                ``n_samples`` values.

        Raises:
            ConfigError: as for :meth:`append`, or the columns differ in their length.
            StorageError: as for :meth:`append`.
        """
        self._check_open()
        n_samples = check_length(columns, self._columns, self._name)
        if self._sequences:
            values_by_column = [columns[name] for name in self._columns]
            for sample in iterate_samples(list(self._columns), values_by_column):
                self.append(sample)
            return
        prepared = {name: writer.prepare(columns[name]) for name, writer in self._writers.items()}
        self._write()
        start = 0
        n_at_once = _SAMPLES_OF_FIRST_PIECE
        while start < n_samples:
            stop = min(n_samples, start + n_at_once)
            number = len(self)
            batches = {}
            for name, (values, layout) in prepared.items():
                batches[name] = self._writers[name].encode_many(values[start:stop], layout, number)
            self._put(batches, stop - start)
            n_bytes = sum(memoryview(batch.data).nbytes for batch in batches.values())
            n_at_once = _choose_next_piece(n_at_once, stop - start, n_bytes)
            start = stop

    def flush(self) -> None:
        """Make all samples durable, and cover them by a manifest.

        They survive a power cut, and readers see and verify them.
        In a store, and with sequences, this does not make samples durable: only the complete
        dataset is published.

        Raises:
            StorageError: they could not be written. Open the dataset again to resume after the
                flushed samples.
            DatasetFileCorruptError: samples of an earlier writer are damaged.
        """
        self._check_open()
        self._write()
        self._checkpoint()

    def close(self) -> None:
        """Complete the dataset: make all files durable, and write the manifest last.

        Closing again does nothing.

        Raises:
            StorageError, DatasetFileCorruptError: as for :meth:`flush`; the writer is then still
                open.
        """
        if self._release.alive:
            self._check_open()
            self._write()
            self._target.finish()
            self._state = "closed"
            self._release()

    def abandon(self) -> None:
        """Flush, and leave the dataset so that a writer can resume it.

        In a store, nothing is published.
        """
        if self._release.alive:
            try:
                if not self._state:
                    self._write()
                    self._target.abandon()
            finally:
                self._state = "abandoned"
                self._release()

    # ------------------------------------------------------------------ records

    def _check_names_of(self, sample: Any) -> None:
        """Check that a sample to append has the names of the columns.

        Raises:
            ConfigError: a column is missing or unknown.
        """
        _check_names(sample, self._columns, f"sample {len(self)} of {self._name!r}")

    def _write(self) -> None:
        """Write the samples that were appended."""
        rows = self._rows
        if not rows:
            return
        batches = {}
        for number, (name, writer) in enumerate(self._writers.items()):
            records = [row[number] for row in rows]
            if name in self._sequences:
                records = list(itertools.chain.from_iterable(records))
            batches[name] = RecordBatch.join(records, writer.codec)
        if self._sequences:
            batches[REFS] = self._make_references(rows)
        self._rows = []
        self._row_bytes = 0
        self._put(batches, len(rows))

    def _put(self, batches: Mapping[str, RecordBatch], n_samples: int) -> None:
        """Write records of samples. After an error nothing can be appended any more."""
        if self._target.count + n_samples > MAX_RECORDS:
            raise ConfigError(
                f"a record dataset has at most {MAX_RECORDS} samples; "
                "write shards (ShardedRecordWriter)"
            )
        try:
            self._target.put(batches, n_samples)
        except BaseException as error:
            self._state = (
                f"broken by an error ({error!s:.200}). "
                "Open the dataset again to resume after the flushed samples"
            )
            raise
        if time.monotonic() - self._checkpointed_at > _CHECKPOINT_SECONDS:
            self._checkpoint()

    def _checkpoint(self) -> None:
        self._target.checkpoint()
        self._checkpointed_at = time.monotonic()

    def _make_references(self, rows: list[list[Any]]) -> RecordBatch:
        """Make the records that map the samples of ``rows`` to their records in each column."""
        firsts = {name: self._writers[name].written.n_records for name in self._sequences}
        packed = []
        for number, row in enumerate(rows, self._target.count):
            entries: list[int | tuple[int, int]] = []
            for name, records in zip(self._columns, row, strict=True):
                if name in firsts:
                    entries.append((firsts[name], len(records)))
                    firsts[name] += len(records)
                else:
                    entries.append(number)
            packed.append(pack_references(entries))
        return RecordBatch.join(packed)

    def _check_open(self) -> None:
        if self._state:
            raise ConfigError(f"cannot append to {self._name!r}: its writer is {self._state}")

    def _detach_in_child(self) -> None:
        """Detach a forked child: the samples and the lock belong to its parent."""
        if self._release.detach():
            self._state = "owned by the parent process of this fork"
            self._target.detach_in_child()


def write_manifest(source: Any, *, prefix: str = "") -> int:
    """Write the manifest of a dataset in a local folder, or of each of its shards.

    The manifest covers all complete samples. Samples that an earlier manifest covers are compared
    with it. An incomplete sample at the end, from an interrupted writer, is removed.

    Args:
        source: the folder, see :func:`~data_stack.io.folder.folder_of`.
        prefix: folder below ``source``.

    Returns:
        The number of samples.

    Raises:
        ConfigError: the dataset is in a store, has the layout of Granular 0.21 and earlier, or does
            not exist.
        DatasetFileCorruptError: samples that the earlier manifest covers are damaged.
        StorageConflictError: a writer has it open.
    """
    folder = folder_of(source, prefix)
    if folder.has_file(SPEC):
        datasets = [folder]
    else:
        datasets = [folder.subfolder(name) for name in shard_names(folder)]
    has_references = any(dataset.has_file(bag_name(REFS)) for dataset in datasets)
    if folder.path is None or not datasets or has_references:
        raise ConfigError(
            f"cannot write a manifest for {folder.name!r}: expected records or shards in a local "
            f"folder, without {REFS}.bag"
        )
    n_samples = 0
    for dataset in datasets:
        types = parse_spec(dataset.read(SPEC), dataset.full_name(SPEC))
        # No codec needs to be installed, as nothing is encoded.
        codecs = dict.fromkeys(types.values())
        with RecordWriter(dataset, types, codecs=codecs) as writer:
            n_samples += len(writer)
    return n_samples


def seal(source: Any, *, prefix: str = "") -> int:
    """Write the manifest of a dataset; deprecated alias of :func:`write_manifest`."""
    warn_deprecated(
        "records.seal()",
        instead="records.write_manifest()",
        since="0.2",
        removed_in="1.0",
    )
    return write_manifest(source, prefix=prefix)


def _choose_next_piece(n_at_once: int, n_written: int, n_bytes: int) -> int:
    """Return how many samples to write next, so that they have about the wanted size.

    Args:
        n_at_once: the number of samples that were to be written last.
        n_written: the number of samples that were written last.
        n_bytes: the size of their records in bytes.
    """
    n_wanted = n_written * _EXTENDED_BYTES_AT_ONCE // max(1, n_bytes)
    return max(1, min(_MAX_GROWTH_OF_PIECES * n_at_once, n_wanted))


def check_length(given: Mapping[str, Any], columns: Collection[str], name: str) -> int:
    """Check columns to append to the dataset ``name``, and return their length.

    Raises:
        ConfigError: a column is missing or unknown, is not an array or list, or their lengths
            differ.
    """
    _check_names(given, columns, f"what is given to {name!r}")
    lengths = {}
    for column in columns:
        values = given[column]
        is_text = isinstance(values, (str, bytes, bytearray))
        is_scalar = not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0
        if is_text or is_scalar:
            raise ConfigError(
                f"column {column!r} of {name!r} takes an array or a list of n values, "
                f"not {values!r:.80}"
            )
        lengths[column] = len(values)
    distinct_lengths = set(lengths.values())
    if len(distinct_lengths) != 1:
        raise ConfigError(
            f"the columns for {name!r} differ in length: {lengths}. Nothing was appended"
        )
    return distinct_lengths.pop()


def _check_names(given: Any, columns: Collection[str], what: str) -> None:
    """Check that a sample, or columns of samples, have the names of the dataset's columns.

    Raises:
        ConfigError: a column is missing or unknown; the message begins with ``what``.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"{what} is {type(given).__name__}, not a dict of its columns")
    if given.keys() != set(columns):
        raise ConfigError(
            f"{what} has the columns {list(given)}, not {list(columns)}. Nothing was appended"
        )
