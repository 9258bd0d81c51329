"""Opens the dataset of a reader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from data_stack.exception import ConfigError, ResourceNotFoundError
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.schema import match_names
from data_stack.formats.parquet.selecting import as_predicate
from data_stack.io.storage_connectors import CachedStorageConnector
from data_stack.io.storage_connectors.url import storage_connector_from_url
from data_stack.util.program_lines import warn_program
from data_stack_petastorm.fs_utils import FilesystemResolver
from data_stack_petastorm.ngram import NGram
from data_stack_petastorm.predicates import in_reduce
from data_stack_petastorm.reader.arguments import ReaderArguments
from data_stack_petastorm.reader.errors import NoFieldsError, ParquetFilesNotFoundError
from data_stack_petastorm.reader.field_choices import check_choices, is_field, pattern_of
from data_stack_petastorm.selectors import select_row_groups
from data_stack_petastorm.transform import TransformSpec

#: Schemes of URLs that are opened as file systems, so that no storage connector can cache them.
_FILE_SYSTEM_SCHEMES = ("hdfs", "viewfs")


@dataclass(frozen=True)
class OpenedDataset:
    """The dataset of a reader, opened with the fields that the reader needs.

    Attributes:
        dataset: the dataset. Its fields are those of the reader's rows, or, with a transform, those
            that the transform receives.
        names: the names of the fields in the order of a row.
        ngram: the n-gram of the reader; None for rows.
    """

    dataset: ParquetDataset
    names: list[str]
    ngram: NGram | None


def open_dataset(arguments: ReaderArguments, *, batched: bool) -> OpenedDataset:
    """Open the dataset with the fields, rows and row groups that the arguments select.

    Args:
        arguments: the arguments of the reader.
        batched: whether the predicate may be a function of DataFrames.

    Raises:
        ParquetFilesNotFoundError: there are no Parquet files.
        NoFieldsError: ``schema_fields`` matches nothing.
        ConfigError: an argument is out of range, or a field does not exist.
        DatasetFileCorruptError: a footer is damaged, or files have different columns.
    """
    location = _locate_files(arguments)
    spec = arguments.transform_spec
    if spec is not None and not isinstance(spec, TransformSpec):
        raise ConfigError(f"transform_spec must be a TransformSpec, got {spec!r:.80}")
    try:
        options = {
            "filters": _make_filter(arguments, batched=batched),
            "row_groups": _select_row_groups(arguments.rowgroup_selector, location),
            "filesystem": location.filesystem,
            "nulls": arguments.nulls or "none",
            "timestamp_unit": arguments.timestamp_unit,
        }
        if isinstance(arguments.schema_fields, NGram):
            return _open_for_ngram(location, arguments.schema_fields, spec, options)
        choices = check_choices(arguments.schema_fields)
        return _open_with_fields(location, choices, options)
    except ResourceNotFoundError as error:
        raise ParquetFilesNotFoundError(error.identifier, error.location) from error


# ---------------------------------------------------------------------- where the files are


@dataclass(frozen=True)
class _FileLocation:
    """Where the files of a dataset are.

    Attributes:
        files: the first argument of :class:`ParquetDataset`.
        filesystem: the file system in which ``files`` is a path; None: ``files`` is no path in a
            file system that the user passed.
    """

    files: Any
    filesystem: Any


def _locate_files(arguments: ReaderArguments) -> _FileLocation:
    """Return where the files are; with ``cache_type="local-disk"``, remote files behind a cache.

    Raises:
        ConfigError: the arguments of the cache are invalid, or no cache of these files is possible.
    """
    cache_type = arguments.cache_type
    if cache_type not in (None, "null", "local-disk"):
        raise ConfigError(
            f"Unknown cache_type: {cache_type!r:.40}; expected 'null' or 'local-disk'"
        )
    files = arguments.source
    filesystem = arguments.filesystem
    scheme = ""
    if isinstance(files, str) and "://" in files:
        scheme = urlsplit(files).scheme.lower()

    is_remote_url = scheme not in ("", "file")
    if filesystem is None and arguments.storage_options and is_remote_url:
        resolver = FilesystemResolver(files, storage_options=arguments.storage_options)
        filesystem = resolver.filesystem()

    if cache_type != "local-disk":
        return _FileLocation(files, filesystem)

    # Put a cache before a remote store.
    if arguments.cache_location is None:
        raise ConfigError("cache_type='local-disk' requires cache_location=")
    if filesystem is not None or scheme in _FILE_SYSTEM_SCHEMES:
        raise ConfigError(
            "cache_type='local-disk' only caches storage connectors (s3://, mongodb://, …), not "
            "file systems of fsspec or pyarrow: omit it, or pass the URL without filesystem= and "
            "storage_options="
        )
    if not is_remote_url:
        return _FileLocation(files, None)  # local files are as fast as a cache
    cached = CachedStorageConnector(
        storage_connector_from_url(files), arguments.cache_location, arguments.cache_size_limit
    )
    return _FileLocation(cached, None)


# ---------------------------------------------------------------------- which rows


def _make_filter(arguments: ReaderArguments, *, batched: bool) -> Any:
    """Return the predicate that ``predicate`` and ``filters`` make together; None for all rows."""
    predicates = []
    if arguments.predicate is not None:
        predicate = as_predicate(arguments.predicate)
        if batched:
            # Needs pandas, which a reader of rows does not.
            from data_stack_petastorm.frame_predicate import on_frames

            predicate = on_frames(predicate)
        predicates.append(predicate)
    if arguments.filters is not None:
        predicates.append(as_predicate(arguments.filters))
    if not predicates:
        return None
    return in_reduce(predicates, all)


def _select_row_groups(selector: Any, location: _FileLocation) -> Any:
    """Return the numbers of the row groups that a selector selects.

    A value that is not a selector is returned unchanged: :class:`ParquetDataset` takes numbers of
    row groups, and refuses other values.
    """
    if not hasattr(selector, "select_row_groups"):
        return selector
    files = find_files(location.files, filesystem=location.filesystem)
    return select_row_groups(Footers(files, lazily=True), selector)


# ---------------------------------------------------------------------- which fields


def _open_with_fields(
    location: _FileLocation, choices: list[Any], options: Mapping[str, Any]
) -> OpenedDataset:
    """Open the dataset with the chosen fields; all fields if ``choices`` is empty.

    A row first has the choices that are fields, then the fields that names and regular expressions
    match, as a schema view of Petastorm.

    Raises:
        NoFieldsError: no field matches.
        ConfigError: a field does not exist.
    """
    if not choices:
        dataset = ParquetDataset(location.files, **options)
        return OpenedDataset(dataset, list(dataset.schema.fields), None)

    patterns = [pattern_of(choice) for choice in choices]
    any_pattern = re.compile("|".join(patterns))
    try:
        dataset = ParquetDataset(location.files, [any_pattern], **options)
    except ConfigError as error:
        # Either no field matches, or another argument is invalid. Opening without the pattern
        # raises the error of the other argument.
        ParquetDataset(location.files, **options)
        raise NoFieldsError(
            f"No fields matching the criteria '{choices!r:.400}' were found in the dataset: {error}"
        ) from error

    names = list(dataset.schema.fields)
    names_of_fields = [choice.name for choice in choices if is_field(choice)]
    for name in names_of_fields:
        dataset.schema[name]  # raises if the field is unknown
    for choice, pattern in zip(choices, patterns, strict=True):
        if not any(re.fullmatch(pattern, name) for name in names):
            warn_program(
                f"{choice!r:.80} in schema_fields matches no field of the dataset and is ignored",
                package=__package__,
            )
    ordered_names = list(dict.fromkeys(names_of_fields + names))
    return OpenedDataset(dataset, ordered_names, None)


def _open_for_ngram(
    location: _FileLocation,
    ngram: NGram,
    spec: TransformSpec | None,
    options: Mapping[str, Any],
) -> OpenedDataset:
    """Open the dataset for n-grams.

    Without a transform, it is opened with all fields: an n-gram only reads those that it needs. A
    transform receives all fields that the dataset was opened with, so these are then only the
    fields of the n-gram.
    """
    dataset = ParquetDataset(location.files, **options)
    if spec is not None:
        names = _match_stored_fields(ngram, list(dataset.schema.fields))
        if names is not None:
            dataset = ParquetDataset(location.files, names, **options)
    return OpenedDataset(dataset, list(dataset.schema.fields), ngram)


def _match_stored_fields(ngram: NGram, stored_names: Sequence[str]) -> list[str] | None:
    """Return the names of an n-gram's fields and of its timestamp, each once.

    None is returned if some of them are not stored, because a transform makes them. Which stored
    fields the transform needs for them is unknown.
    """
    choices = ngram.get_field_names_at_all_timesteps()
    choices.append(ngram.timestamp_field)
    names: dict[str, None] = {}  # a dict keeps the order
    for choice in choices:
        try:
            matched = match_names(choice, stored_names)
        except ConfigError:
            return None
        names.update(dict.fromkeys(matched))
    return list(names)
