"""Converts a dataset into another format."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError
from data_stack.formats.column_source import ColumnSource, source_of_iterator
from data_stack.formats.conversion.column_names import parse_columns
from data_stack.formats.conversion.format_choice import (
    format_of_source,
    name_of_target_format,
    open_source,
)
from data_stack.formats.conversion.publication import publish
from data_stack.formats.conversion.verification import compare_with_source
from data_stack.formats.conversion.writing import write
from data_stack.formats.format import WritableFormat
from data_stack.formats.registry import writable_format_named, writable_formats
from data_stack.io.location import location_of
from data_stack.util.logger import logger


@dataclass(frozen=True)
class ConversionReport:
    """The result of a conversion.

    Attributes:
        source: the name of the source.
        target: the name of the target.
        source_format: ``"records"`` or another name of a format, or ``"iterator"``.
        target_format: the name of a format.
        columns: the type of each column, as in records.
        n_samples: the number of samples.
        n_verified: the number of samples that were read back and compared.
        seconds: the duration of the conversion.
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

        convert("train.h5", "train", columns="image=x,label=y")  # to records
        # to one shard of a WebDataset, in a store
        convert("train", "mongodb://host/database/train.tar")
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
        shardlen: the number of samples in a shard of records, Parquet or WebDataset; None for the
            format's default.
        verify: whether to read all samples back, and compare their digests with the source's.
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
        name_of_source_format = "iterator"
    else:
        source_location = location_of(source)
        if source_location.full_name == location.full_name:
            raise ConfigError(f"source and target are both {location.full_name}")
        format_ = format_of_source(source_location, source_format)
        column_source = open_source(source_location, format_, chosen_columns, options or {})
        name_of_source_format = format_.name

    with column_source.resources:
        column_source = column_source.select_columns(chosen_columns)
        writable_format = writable_format_named(target_format or name_of_target_format(location))
        _check_shardlen(writable_format, shardlen)
        writable_format.check(column_source, location, shardlen)
        if not writable_format.keeps_class_names:
            _warn_of_lost_class_names(column_source, location.full_name, writable_format.name)

        n_verified = 0
        is_folder = writable_format.writes_folder(location)
        with publish(location, is_folder=is_folder) as attempt:
            write(
                writable_format, column_source, attempt, location.name, shardlen, progress=progress
            )
            if verify:
                n_verified = compare_with_source(
                    writable_format, attempt, column_source, progress=progress
                )

        return ConversionReport(
            source=column_source.name,
            target=location.full_name,
            source_format=name_of_source_format,
            target_format=writable_format.name,
            columns={name: column.type for name, column in column_source.schema.items()},
            n_samples=len(column_source),
            n_verified=n_verified,
            seconds=time.perf_counter() - started_at,
        )


def _warn_of_lost_class_names(source: ColumnSource, target: str, format_name: str) -> None:
    """Log the columns whose classes have names that the target does not store."""
    for column_name, names in source.class_names.items():
        if column_name in source.schema:
            logger.warning(
                "%s keeps the numbers of the %d classes of column %r, not their names, which the "
                "format %s does not store; Arrow and Parquet files do.",
                target,
                len(names),
                column_name,
                format_name,
            )


def _check_no_file_arguments(source_format: str | None, options: Mapping[str, Any] | None) -> None:
    """Check that nothing says how to read a file, as the source is an iterator."""
    if source_format is not None:
        raise ConfigError(
            "source_format= applies to files and folders; leave it out for an iterator"
        )
    if options:
        raise ConfigError("options= applies to files and folders; leave it out for an iterator")


def _check_shardlen(target_format: WritableFormat, shardlen: int | None) -> None:
    """Check the number of samples in a shard.

    Raises:
        ConfigError: it is less than 1, or the format has no shards.
    """
    if shardlen is None:
        return
    if shardlen < 1:
        raise ConfigError(f"shardlen must be at least 1, got {shardlen}")
    if not target_format.has_shards:
        with_shards = [name for name, format_ in writable_formats().items() if format_.has_shards]
        raise ConfigError(
            f"{target_format.name} has no shards; leave shardlen out, or choose "
            f"{' or '.join(with_shards)}"
        )
