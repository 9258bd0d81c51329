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
    """The dataset of a reader.

    Attributes:
        dataset: has the fields of the reader's rows, or those that its transform receives.
        names: the names of these fields in the order of a row.
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
    source = _open_source(arguments)
    spec = arguments.transform_spec
    if spec is not None and not isinstance(spec, TransformSpec):
        raise ConfigError(f"transform_spec must be a TransformSpec, got {spec!r:.80}")
    try:
        options = {
            "filters": _make_filter(arguments, batched=batched),
            "row_groups": _select_row_groups(arguments.rowgroup_selector, source),
            "filesystem": source.filesystem,
            "nulls": arguments.nulls or "none",
            "timestamp_unit": arguments.timestamp_unit,
        }
        if isinstance(arguments.schema_fields, NGram):
            return _open_for_ngram(source, arguments.schema_fields, spec, options)
        return _open_with_fields(source, check_choices(arguments.schema_fields), options)
    except ResourceNotFoundError as error:
        raise ParquetFilesNotFoundError(error.identifier, error.location) from error


# ---------------------------------------------------------------------- where the files are


@dataclass(frozen=True)
class _Source:
    """Where the files of a dataset are.

    Attributes:
        files: what :class:`ParquetDataset` opens.
        filesystem: the file system in which ``files`` is a path; None for others.
    """

    files: Any
    filesystem: Any


def _open_source(arguments: ReaderArguments) -> _Source:
    """Return where the files are, behind a cache if one is wanted.

    Raises:
        ConfigError: the arguments of the cache are invalid, or it cannot cache this source.
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
        return _Source(files, filesystem)
    if arguments.cache_location is None:
        raise ConfigError("cache_type='local-disk' requires cache_location=")
    if filesystem is not None or scheme in _FILE_SYSTEM_SCHEMES:
        raise ConfigError(
            "cache_type='local-disk' only caches storage connectors (s3://, mongodb://, …), not "
            "file systems of fsspec or pyarrow: omit it, or pass the URL without filesystem= and "
            "storage_options="
        )
    if not is_remote_url:
        return _Source(files, None)  # local files are as fast as a cache
    cached = CachedStorageConnector(
        storage_connector_from_url(files), arguments.cache_location, arguments.cache_size_limit
    )
    return _Source(cached, None)


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


def _select_row_groups(selector: Any, source: _Source) -> Any:
    """Return the numbers of the row groups of a selector.

    What is not a selector is returned as it is: :class:`ParquetDataset` takes numbers, and refuses
    others.
    """
    if not hasattr(selector, "select_row_groups"):
        return selector
    files = find_files(source.files, filesystem=source.filesystem)
    return select_row_groups(Footers(files, lazily=True), selector)


# ---------------------------------------------------------------------- which fields


def _open_with_fields(
    source: _Source, choices: list[Any], options: Mapping[str, Any]
) -> OpenedDataset:
    """Open the dataset with chosen fields, in the order of a schema view.

    These are first the choices that are fields, then the fields that others match.

    Raises:
        NoFieldsError: nothing matches.
        ConfigError: a field does not exist.
    """
    if not choices:
        dataset = ParquetDataset(source.files, **options)
        return OpenedDataset(dataset, list(dataset.schema.fields), None)

    patterns = [pattern_of(choice) for choice in choices]
    any_pattern = re.compile("|".join(patterns))
    try:
        dataset = ParquetDataset(source.files, [any_pattern], **options)
    except ConfigError as error:
        # If the reason is another argument, this raises its error.
        ParquetDataset(source.files, **options)
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
    ordered_names = list(dict.fromkeys([*names_of_fields, *names]))
    return OpenedDataset(dataset, ordered_names, None)


def _open_for_ngram(
    source: _Source, ngram: NGram, spec: TransformSpec | None, options: Mapping[str, Any]
) -> OpenedDataset:
    """Open the dataset for n-grams.

    Without a transform, each n-gram reads the fields that it needs. A transform receives all fields
    of the dataset, so only those of the n-gram are opened.
    """
    dataset = ParquetDataset(source.files, **options)
    if spec is not None:
        columns = _stored_fields(ngram, list(dataset.schema.fields))
        if columns is not None:
            dataset = ParquetDataset(source.files, columns, **options)
    return OpenedDataset(dataset, list(dataset.schema.fields), ngram)


def _stored_fields(ngram: NGram, names: Sequence[str]) -> list[str] | None:
    """Return the stored fields of an n-gram; None if the transform makes some of its fields."""
    fields: dict[str, None] = {}
    for choice in [*ngram.get_field_names_at_all_timesteps(), ngram.timestamp_field]:
        try:
            fields.update(dict.fromkeys(match_names(choice, names)))
        except ConfigError:
            return None
    return list(fields)
