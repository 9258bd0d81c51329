"""Chooses the formats of the source and the target of a conversion."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Mapping
from typing import Any, Final

from data_stack.exception import ConfigError
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.format import ColumnChoice, Format, WritableFormat
from data_stack.formats.place_splits import find_splits
from data_stack.formats.registry import (
    detect_format,
    format_named,
    format_of_file,
    known_suffixes,
    unknown_suffix_error,
    writable_formats,
)
from data_stack.io.location import Location, explain_stand_in
from data_stack.util.suggestions import did_you_mean

#: The format of a target whose name has no suffix of a file.
_DEFAULT_FORMAT: Final = "records"

#: Suffixes of files with data that Python does not know, or knows in some of its versions only.
_OTHER_SUFFIXES: Final = frozenset(
    (
        ".arrow",
        ".avro",
        ".db",
        ".duckdb",
        ".feather",
        ".ipc",
        ".json5",
        ".lmdb",
        ".mat",
        ".msgpack",
        ".orc",
        ".ods",
        ".pickle",
        ".pkl",
        ".rds",
        ".safetensors",
        ".sqlite",
        ".tfrecord",
        ".tfrecords",
        ".txt",
        ".xls",
        ".xlsx",
        ".yaml",
        ".yml",
        ".zarr",
        ".zst",
    )
)


def format_of_source(location: Location, name: str | None) -> Format:
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


def open_source(
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
    known_options = format_.list_options()
    for option in options:
        if option not in known_options:
            known = ", ".join(known_options) or "none"
            raise ConfigError(
                f"{location.full_name} is read as {format_.name}, which has no option "
                f"{option!r:.60}{did_you_mean(option, known_options)}; its options: {known}"
            )
    required = None
    if columns is not None:
        required = tuple(dict.fromkeys(columns.values()))
    with explain_stand_in(location):
        format_options = format_.options_class(**options)
        return format_.open_source(location, ColumnChoice(required), format_options)


def name_of_target_format(location: Location) -> str:
    """Return the format that the name of a target says: records, unless it has a file's suffix.

    In ``digits.v2`` the dot is part of the name; ``digits.zip`` and ``digits.parqet`` are no
    folders of records.

    Raises:
        ConfigError: no format is written into files of the suffix.
    """
    format_ = format_of_file(location.name)
    if isinstance(format_, WritableFormat):
        return format_.name
    suffix = os.path.splitext(location.name)[1].lower()
    if format_ is None and not suffix:
        return _DEFAULT_FORMAT

    # A format that is only read, a known suffix with a typo, or the suffix of another kind of file.
    suggestion = did_you_mean(suffix, known_suffixes()).strip()
    if format_ is None and not suggestion and not _is_suffix_of_files(suffix):
        return _DEFAULT_FORMAT
    advice = f"{suggestion} choose one by".strip()
    raise unknown_suffix_error(location, advice, "target_format", writable_formats())


def _is_suffix_of_files(suffix: str) -> bool:
    """Return whether Python knows a suffix as one of files, such as ``".zip"``."""
    # Without the files of the system, so that all machines know the same suffixes.
    types = mimetypes.MimeTypes(filenames=())
    # types_map has the unofficial types, then, at the index True, the official ones.
    _, official_types = types.types_map
    return suffix in official_types or suffix in types.encodings_map or suffix in _OTHER_SUFFIXES
