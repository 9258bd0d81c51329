"""The layouts of record datasets: which files they have, and what ``spec.json`` says.

All three layouts keep records end to end, and the offset at which each ends as a little-endian
uint64 in an index.

- *bag + idx*, Granular 0.22 and later: records in ``x.bag``, index in ``x.idx``.
- *bag*, Granular 0.20 and 0.21: the index follows the records, and its last entry is the offset
  where the index begins. ``refs.bag`` maps samples to records: a msgpack list with one entry for
  each column in the order of their names, the number of a record, or ``[first, count]`` (``[]`` for
  none) for a column of sequences.
- *bag with leading zero*, Granular up to 0.19: the same, with a 0 before the first entry; a bag
  whose first record is empty needs it.

Source: Granular 0.21.2 and 0.24.2, https://github.com/danijar/granular
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from data_stack.codecs.codec import ColumnType
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    UnsupportedStorageOperationError,
)
from data_stack.io.folder import Folder
from data_stack.util.untrusted_text import parse_json
from data_stack.values.stacking import SampleForm

#: The file that names the columns and their types.
SPEC = "spec.json"

#: The name of the bag that maps samples to records, which no column can have.
REFS = "refs"

#: The size of an entry in an index in bytes.
ENTRY_BYTES = 8

#: The maximum number of records of a column, as Granular asserts.
MAX_RECORDS = 2**32 - 1

#: The maximum size of ``spec.json``, which names each column and its type.
_MAX_SPEC_BYTES = 16 << 20

#: The maximum length of a column's name, which becomes the name of a file.
_MAX_NAME_LENGTH = 200

#: How names of columns, and types, begin.
_BEGIN_OF_NAME = re.compile(r"[a-z_]", re.ASCII)

#: The name of the folder of a shard, which may still have too many leading zeros.
_SHARD = re.compile(r"[0-9]{6,}", re.ASCII)


def bag_name(column: str) -> str:
    """Return the name of the file of a column's records."""
    return f"{column}.bag"


def idx_name(column: str) -> str:
    """Return the name of the file of a column's index, where it has a file of its own."""
    return f"{column}.idx"


def shard_name(number: int) -> str:
    """Return the name of the folder of a shard."""
    return f"{number:06d}"


def shard_names(folder: Folder) -> list[str]:
    """Return the names of the shards in a folder, in order; other files are ignored.

    Raises:
        DatasetFileCorruptError: a shard is missing.
    """
    try:
        names_there = {name for name in folder.list_names() if _is_shard_name(name)}
    except UnsupportedStorageOperationError:
        names_there = _probe_shards(folder)
    names = [shard_name(number) for number in range(len(names_there))]
    missing_names = sorted(set(names) - names_there)
    if missing_names:
        raise DatasetFileCorruptError(
            f"shard {missing_names[0]} of {folder.name!r} is missing, "
            f"but there is {max(names_there)}; restore it"
        )
    return names


def _is_shard_name(name: str) -> bool:
    return _SHARD.fullmatch(name) is not None and shard_name(int(name)) == name


def _probe_shards(folder: Folder) -> set[str]:
    """Return the names of the shards in a store that cannot list its resources.

    Such a store still knows whether a resource exists.
    """
    names = set()
    for number in itertools.count():
        name = shard_name(number)
        if not folder.subfolder(name).has_file(SPEC):
            break
        names.add(name)
    return names


def check_columns(spec: Mapping[str, str | ColumnType]) -> dict[str, ColumnType]:
    """Return a writer's spec with each column as a ColumnType, sorted by name as Granular does.

    Raises:
        ConfigError: the spec is empty, or a name or type is invalid.
    """
    if not spec or not hasattr(spec, "items"):
        raise ConfigError(
            "a record dataset needs a spec such as {'image': 'jpg', 'label': 'i64'}, "
            f"got {spec!r:.80}"
        )
    columns = {}
    for name, declared in sorted(spec.items(), key=lambda item: str(item[0])):
        problem = _problem_of_name(name)
        if problem is not None:
            raise ConfigError(f"a column cannot be called {name!r:.80}: {problem}")
        column = declared if isinstance(declared, ColumnType) else ColumnType(declared)
        if not _BEGIN_OF_NAME.match(str(column.type)):
            raise ConfigError(
                f"column {name!r} needs a type such as 'i64', or a ColumnType, got {declared!r:.80}"
            )
        columns[name] = column
    return columns


def spec_json(columns: Mapping[str, ColumnType]) -> bytes:
    """Return ``spec.json``, byte for byte as Granular writes it."""
    types = {name: columns[name].type for name in sorted(columns)}
    return json.dumps(types).encode("utf-8")


def parse_spec(data: bytes, what: str) -> dict[str, str]:
    """Parse ``spec.json``.

    Args:
        data: the content of ``spec.json``.
        what: what the message of an error begins with.

    Returns:
        The types of the columns by name, sorted.

    Raises:
        DatasetFileCorruptError: ``data`` is not a spec.
    """
    try:
        spec = parse_json(data, max_bytes=_MAX_SPEC_BYTES)
    except ValueError as error:
        raise DatasetFileCorruptError(
            f"{what} is damaged: it is not JSON ({str(error)[:200]})"
        ) from error
    is_mapping = isinstance(spec, dict) and bool(spec)
    if not is_mapping or not all(isinstance(kind, str) for kind in spec.values()):
        raise DatasetFileCorruptError(
            f"{what} is damaged: it does not map names of columns to types"
        )
    for name, column_type in spec.items():
        problem = _problem_of_name(name)
        if problem is None and not _BEGIN_OF_NAME.match(column_type):
            problem = "type"
        if problem is not None:
            raise DatasetFileCorruptError(
                f"{what} is damaged: invalid column {name!r:.80}: {column_type!r:.80} ({problem})"
            )
    return dict(sorted(spec.items()))


def _problem_of_name(name: object) -> str | None:
    """Return why a column cannot have a name; None if it can.

    The name becomes the name of a file, so it must not lead out of the folder.
    """
    if not isinstance(name, str) or not _BEGIN_OF_NAME.match(name):
        return "a name begins with a lower-case letter or an underscore"
    if name == REFS:
        return "this is the name of the index of sequences"
    if len(name) > _MAX_NAME_LENGTH or not name.isprintable() or "/" in name:
        return (
            f"a name becomes a file: it has at most {_MAX_NAME_LENGTH} printable characters, "
            "and no '/'"
        )
    return None


def list_column_names(names: Any) -> list[str]:
    """Return names of columns as a list.

    Raises:
        ConfigError: ``names`` is not a list of names, is empty, or has a name twice.
    """
    name_list = []
    if not isinstance(names, (str, bytes)) and hasattr(names, "__iter__"):
        name_list = list(names)
    are_texts = all(isinstance(name, str) for name in name_list)
    if not name_list or not are_texts or len(set(name_list)) != len(name_list):
        raise ConfigError(
            f"columns must be a list of different names, at least one, got {names!r:.80}"
        )
    return name_list


def check_column_exists(name: object, known: Collection[str]) -> None:
    """Check that a column is one of those that are read.

    Raises:
        ConfigError: it is not.
    """
    if name not in known:
        description = SampleForm("dict", tuple(known)).describe(name)
        raise ConfigError(f"samples have no column {name!r:.80}: {description}")
