"""Converts a dataset into another format, and compares the result with its source."""

from __future__ import annotations

import contextlib
import mimetypes
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, DatasetFileCorruptError, DataStackError
from data_stack.formats.column_source import ColumnSource, source_of_iterator
from data_stack.formats.column_types import (
    as_python_values,
    plain_type,
    positions_to_infer_from,
    size_of_column,
)
from data_stack.formats.format import ColumnChoice, Format, WritableFormat
from data_stack.formats.place_splits import find_splits
from data_stack.formats.registry import (
    detect_format,
    format_named,
    format_of_file,
    known_suffixes,
    unknown_suffix_error,
    writable_format_named,
    writable_formats,
)
from data_stack.io.location import Location, location_of, naming_stand_in
from data_stack.io.progress import new_bar, shows_progress
from data_stack.io.storage_errors import storage_errors
from data_stack.util.group_rights import sync_folder
from data_stack.util.suggestions import did_you_mean
from data_stack.values.digests import column_digests

_Positions = npt.NDArray[np.intp]

#: The approximate size of a batch in memory.
_BATCH_BYTES: Final = 8 << 20

#: The maximum number of samples in a batch.
_MAX_IN_BATCH: Final = 4096

#: The format of a target whose name has no suffix of a file.
_DEFAULT_FORMAT: Final = "records"


@dataclass(frozen=True)
class ConversionReport:
    """The result of a conversion.

    Attributes:
        source: name of the source.
        target: name of the target.
        source_format: ``"records"`` …, or ``"iterator"``.
        target_format: ``"records"`` …
        columns: the type of each column, as in records.
        n_samples: number of samples.
        n_verified: number of samples that were read back and compared.
        seconds: duration of the conversion.
    """

    source: str
    target: str
    source_format: str
    target_format: str
    columns: Mapping[str, str]
    n_samples: int
    n_verified: int
    seconds: float


def convert(
    source: Any,
    target: Any,
    *,
    source_format: str | None = None,
    target_format: str | None = None,
    columns: str | Iterable[str] | Mapping[str, str] | None = None,
    shardlen: int | None = None,
    verify: bool = True,
    progress: bool | None = None,
    options: Mapping[str, Any] | None = None,
) -> ConversionReport:
    """Convert a dataset into another format.

    ::

        convert("train.h5", "train", columns="image=x,label=y")     # to records
        convert("train", "mongodb://host/database/train.tar")       # to one WebDataset shard, in a store
        convert(data_stack.load("mnist", "train"), "mnist.npz")

    JPEG, PNG and other media files are copied if the target stores files, and decoded if it stores
    arrays; nothing is encoded lossily. The target gets its name when it is complete and verified
    (in a store, shards and images appear one by one, and the list of them last). A conversion that
    fails or is interrupted leaves nothing behind. Nothing is overwritten.

    Args:
        source: an iterator, a path, the URL of a store followed by the name of the dataset, or
            ``(connector, name)``.
        target: a path, URL or ``(connector, name)``.
        source_format: the name of a format, such as ``"records"``, ``"hdf5"``, ``"parquet"`` or
            ``"csv"``; None to detect it by suffix and content. CSV and JSON lines are copied
            first, in bounded memory, into a temporary file of about their size.
        target_format: the name of a format that can be written; None to detect it by the suffix:
            records without the suffix of a kind of file.
        columns: ``"a,b"`` or ``["a", "b"]``, renamed by ``"new=old"`` or ``{"new": "old"}``;
            columns of tuples also by position, ``"image=0"``. None for all.
        shardlen: number of samples in a shard of records, Parquet or WebDataset; None for the
            format's default.
        verify: read all samples back, and compare their digests with the source's.
        progress: show progress bars; None to show them on a terminal and in a notebook.
        options: how to read a file or folder, as for :func:`data_stack.load`:
            ``{"delimiter": ";"}``.

    Raises:
        ConfigError: a format cannot be detected, the target cannot hold a column, or it exists
            already.
        DatasetFileCorruptError: the source is damaged, or verification found a difference.
        StorageError: the store failed.
    """
    started_at = time.perf_counter()
    location = location_of(target)
    chosen_columns = parse_columns(columns)
    if isinstance(source, DatasetIteratorIF):
        _check_no_file_arguments(source_format, options)
        column_source = source_of_iterator(source)
        source_format = "iterator"
    else:
        source_location = location_of(source)
        if source_location.full_name == location.full_name:
            raise ConfigError(f"source and target are both {location.full_name}")
        format_ = _format_of_source(source_location, source_format)
        column_source = _open_location(source_location, format_, chosen_columns, options or {})
        source_format = format_.name

    with column_source.resources:
        column_source = column_source.select_columns(chosen_columns)
        if target_format is None:
            target_format = _name_of_target_format(location)
        writable_format = writable_format_named(target_format)
        _check_shardlen(writable_format, shardlen)
        writable_format.check(column_source, location, shardlen)

        n_verified = 0
        is_folder = writable_format.writes_folder(location)
        with _publish(location, is_folder=is_folder) as attempt:
            _write(
                writable_format, column_source, attempt, location.name, shardlen, progress=progress
            )
            if verify:
                n_verified = _verify(writable_format, attempt, column_source, progress=progress)

        return ConversionReport(
            source=column_source.name,
            target=location.full_name,
            source_format=source_format,
            target_format=writable_format.name,
            columns={name: column.type for name, column in column_source.schema.items()},
            n_samples=len(column_source),
            n_verified=n_verified,
            seconds=time.perf_counter() - started_at,
        )


# ---------------------------------------------------------------------- arguments


def parse_columns(
    columns: str | Iterable[str] | Mapping[str, str] | None,
) -> dict[str, str] | None:
    """Parse ``"a,b=c"``, ``["a", "b=c"]`` or ``{"a": "a", "b": "c"}`` into old names by new names.

    Returns:
        None for None, which means all columns.

    Raises:
        ConfigError: the syntax is wrong, or a column is named twice.
    """
    if columns is None:
        return None
    if isinstance(columns, Mapping):
        return dict(columns)

    parts = columns.split(",") if isinstance(columns, str) else columns
    parsed: dict[str, str] = {}
    for part in parts:
        new_name, equals_sign, old_name = part.partition("=")
        lacks_old_name = bool(equals_sign) and not old_name
        if not new_name or lacks_old_name or new_name in parsed:
            raise ConfigError(f"columns must be a,b or new=old, each once, got {part!r:.80}")
        parsed[new_name] = old_name or new_name
    if not parsed:
        raise ConfigError("columns is empty; name at least one")
    return parsed


def _check_no_file_arguments(source_format: str | None, options: Mapping[str, Any] | None) -> None:
    """Check that nothing says how to read a file, as the source is an iterator."""
    if source_format is not None:
        raise ConfigError(
            "source_format= applies to files and folders; leave it out for an iterator"
        )
    if options:
        raise ConfigError("options= applies to files and folders; leave it out for an iterator")


def _check_shardlen(target_format: WritableFormat, shardlen: int | None) -> None:
    if shardlen is None:
        return
    if shardlen < 1:
        raise ConfigError(f"shardlen must be at least 1, got {shardlen}")
    if not target_format.has_shards:
        sharded = [name for name, format_ in writable_formats().items() if format_.has_shards]
        raise ConfigError(
            f"{target_format.name} has no shards; leave shardlen out, or choose "
            f"{' or '.join(sharded)}"
        )


# ---------------------------------------------------------------------- formats


def _format_of_source(location: Location, name: str | None) -> Format:
    """Return the format of a source, by its name or by its suffix and contents.

    Raises:
        ConfigError: there is no such format, none can be detected, or the folder has splits.
    """
    datasets = find_splits(location, name)
    splits = [split for split, files in datasets.items() if not files.is_place]
    if splits:
        raise ConfigError(
            f"{location.full_name} has the splits {', '.join(splits)}; convert each: pass "
            f"data_stack.load(path, split={splits[0]!r}), or in the shell PATH:{splits[0]}"
        )
    if name is not None:
        return format_named(name)
    return detect_format(location, "source_format")


def _open_location(
    location: Location,
    format_: Format,
    columns: Mapping[str, str] | None,
    options: Mapping[str, Any],
) -> ColumnSource:
    """Open a file or folder as columns.

    Args:
        location: the file or folder.
        format_: its format.
        columns: the columns that will be read, by their new names; None for all.
        options: how to read it.

    Raises:
        ConfigError: the format has no such option.
    """
    for option in options:
        if option not in format_.options:
            known = ", ".join(sorted(format_.options)) or "none"
            raise ConfigError(
                f"{location.full_name} is read as {format_.name}, which has no option "
                f"{option!r:.60}{did_you_mean(option, format_.options)}; its options: {known}"
            )
    required = None
    if columns is not None:
        required = tuple(dict.fromkeys(columns.values()))
    with naming_stand_in(location):
        return format_.open_source(location, ColumnChoice(required), **options)


def _name_of_target_format(location: Location) -> str:
    """Return the format that the name of a target says: records, unless it has a file's suffix.

    In ``digits.v2`` the dot is part of the name; ``digits.zip`` and ``digits.parqet`` are no
    folders of records.

    Raises:
        ConfigError: no format is written into files of the suffix.
    """
    known = format_of_file(location.name)
    if isinstance(known, WritableFormat):
        return known.name
    suffix = os.path.splitext(location.name)[1].lower()
    suggestion = did_you_mean(suffix, known_suffixes()).strip() if suffix else ""
    if known is None and not suggestion and not _is_suffix_of_files(suffix):
        return _DEFAULT_FORMAT
    advice = f"{suggestion} choose one by".strip()
    raise unknown_suffix_error(location, advice, "target_format", writable_formats())


def _is_suffix_of_files(suffix: str) -> bool:
    """Return whether Python knows a suffix as one of files, such as ``".zip"``."""
    if not suffix:
        return False
    # Without the files of the system, so that all machines know the same suffixes.
    types = mimetypes.MimeTypes(filenames=())
    is_strict = True
    return suffix in types.types_map[is_strict] or suffix in types.encodings_map


# ---------------------------------------------------------------------- writing


@contextlib.contextmanager
def _publish(location: Location, *, is_folder: bool) -> Iterator[Location]:
    """Make a place to write a dataset, which is published when the block ends cleanly.

    A block that raises removes what it wrote. A local folder has a temporary name until it is
    complete. A file appears when it is complete; in a store, the last file of a dataset marks it as
    complete.

    Args:
        location: the final place of the dataset.
        is_folder: whether the dataset is a folder.

    Raises:
        ConfigError: the target exists already, or another process is writing it.
    """
    if location.is_file() or location.is_folder():
        raise ConfigError(
            f"{location.full_name} exists already; remove it, or choose another target"
        )
    if location.path is None or not is_folder:
        with _removed_if_failed(location):
            yield location
        return

    path = location.path
    attempt = Location(location.folder, f".{location.name}.part")
    with location.folder.lease(f"{attempt.name}.lock") as lease:
        if not lease.acquire():
            raise ConfigError(f"{location.full_name} is being written by another process")
        # The files of a killed conversion may lie here.
        _remove(attempt)
        with _removed_if_failed(attempt):
            yield attempt
            with storage_errors("make", str(path)):
                os.rename(path.with_name(attempt.name), path)
                sync_folder(str(path.parent))


@contextlib.contextmanager
def _removed_if_failed(location: Location) -> Iterator[None]:
    """Remove a dataset if the block raises."""
    try:
        yield
    except BaseException:
        # A store may be unable to remove it; the first error is the one to raise.
        with contextlib.suppress(DataStackError, OSError):
            _remove(location)
        raise


def _remove(location: Location) -> None:
    """Remove the files of a dataset, if there are any."""
    if location.path is not None and location.path.is_dir():
        with storage_errors("remove", location.path):
            shutil.rmtree(location.path)
        return
    if location.is_file():
        location.folder.delete(location.name)
    folder = location.as_folder()
    for name in folder.list_files():
        folder.delete(name)


def _write(
    target_format: WritableFormat,
    source: ColumnSource,
    location: Location,
    name: str,
    shardlen: int | None,
    *,
    progress: bool | None,
) -> None:
    """Write all samples of a source.

    Args:
        target_format: the format to write.
        source: the samples.
        location: where to write.
        name: the final name of the dataset.
        shardlen: the number of samples in a shard; None for the format's default.
        progress: as for :func:`convert`.
    """
    # Images, sound and videos are copied as the bytes of their files, if the target stores files.
    stored = source.stored_names if target_format.keeps_files else []
    with _bar("converting", source, progress) as bar:
        with target_format.writer(location, source, name=name, shardlen=shardlen) as write_batch:
            for positions in _batches_of_positions(source, stored):
                write_batch(source.read(positions, source.schema, stored))
                bar.update(len(positions))


def _bar(description: str, source: ColumnSource, progress: bool | None) -> Any:
    return new_bar(
        desc=description,
        total=len(source),
        unit=" samples",
        disable=not shows_progress(progress),
    )


def _batches_of_positions(
    source: ColumnSource, stored: Collection[str] = ()
) -> Iterator[_Positions]:
    """Return all positions of a source, in batches of a few MiB.

    The number of samples in a batch is estimated from the size of some samples.

    Args:
        source: the samples.
        stored: the columns that will be read as the bytes of their files.
    """
    n_samples = len(source)
    if n_samples == 0:
        return
    positions = positions_to_infer_from(n_samples)
    columns = source.read(positions, source.schema, stored)
    n_bytes = sum(size_of_column(column) for column in columns.values())
    bytes_per_sample = max(1, n_bytes / len(positions))
    n_in_batch = int(_BATCH_BYTES / bytes_per_sample)
    n_in_batch = max(1, min(n_in_batch, _MAX_IN_BATCH))
    for start in range(0, n_samples, n_in_batch):
        stop = min(start + n_in_batch, n_samples)
        yield np.arange(start, stop, dtype=np.intp)


# ---------------------------------------------------------------------- verifying


def _verify(
    target_format: WritableFormat,
    location: Location,
    source: ColumnSource,
    *,
    progress: bool | None,
) -> int:
    """Read all samples of a result back, and compare them with the source.

    Returns:
        The number of samples that were compared.

    Raises:
        DatasetFileCorruptError: the result differs from the source.
        ConfigError: it differs, because readers of the format take values for other ones.
    """
    try:
        return _compare_all(target_format, location, source, progress=progress)
    except DatasetFileCorruptError as error:
        if not target_format.infers_types:
            raise
        raise ConfigError(
            f"{target_format.name} cannot hold the values, as readers infer their types: {error}"
        ) from error


def _compare_all(
    target_format: WritableFormat,
    location: Location,
    source: ColumnSource,
    *,
    progress: bool | None,
) -> int:
    """Compare all samples of a result with the source, and return their number."""
    result = target_format.open_source(location)
    with result.resources:
        # Some formats have no columns without samples.
        if len(source) == 0 and len(result) == 0:
            return 0
        result = _with_columns_of_source(target_format, result, source)
        stored = _columns_stored_alike(source, result)
        with _bar("verifying", source, progress) as bar:
            for positions in _batches_of_positions(source):
                _compare(source, result, positions, stored)
                bar.update(len(positions))
    return len(source)


def _with_columns_of_source(
    target_format: WritableFormat, result: ColumnSource, source: ColumnSource
) -> ColumnSource:
    """Return a result with the columns of its source, in the same order.

    Raises:
        DatasetFileCorruptError: it has other columns, or another number of samples.
    """
    names_in_result = {name: name for name in source.schema}
    if not target_format.keeps_names:
        names_in_result = dict(zip(source.schema, result.schema, strict=True))
    lost = set(names_in_result.values()) - set(result.keys)
    added = set(result.schema) - set(names_in_result.values())
    if lost or added or len(result) != len(source):
        raise DatasetFileCorruptError(
            f"the conversion failed, report this: {source.name} became "
            f"{', '.join(result.schema)}, {len(result):,} samples"
        )
    return result.select_columns(names_in_result)


def _columns_stored_alike(source: ColumnSource, result: ColumnSource) -> list[str]:
    """Return the columns of media files of one type, which are compared as bytes."""
    stored_in_both = set(source.stored_names).intersection(result.stored_names)
    return [name for name in stored_in_both if result.schema[name].type == source.schema[name].type]


def _compare(
    source: ColumnSource, result: ColumnSource, positions: _Positions, stored: Collection[str]
) -> None:
    """Compare some samples.

    Raises:
        DatasetFileCorruptError: a value differs; the message names the column and the sample.
    """
    expected = source.read(positions, source.schema, stored)
    actual = result.read(positions, source.schema, stored)
    for name, column in source.schema.items():
        if plain_type(column.type) == "json":
            actual[name] = as_python_values(actual[name])
        differing = column_digests(expected[name]) != column_digests(actual[name])
        is_different = differing.any(axis=1)
        if is_different.any():
            position = positions[is_different.argmax()]
            raise DatasetFileCorruptError(
                f"column {name!r} of sample {position} differs in the result; leave it out"
            )
