"""Reads the metadata of images: ``metadata.jsonl`` and ``metadata.csv``."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.csv_file import CSVFile
from data_stack.io.folder import Folder
from data_stack.util.request_limit import check_request
from data_stack.util.untrusted_text import distinct_fields, parse_json, place_in_line
from data_stack.values.text_numbers import numbers_of, parse_exact_float

#: The column of the metadata that holds the path of the image.
FILE_NAME_COLUMN: Final = "file_name"

#: The maximum size of the metadata.
_MAX_BYTES: Final = 1 << 30

#: What a value of a column takes in memory at least.
_CELL_BYTES: Final = 8


def read_image_metadata(
    folder: Folder, name: str, images: Sequence[str], kinds: Mapping[str, type]
) -> dict[str, list[Any]]:
    """Read the metadata of all images of a folder.

    Args:
        folder: the folder.
        name: the name of the file with the metadata.
        images: the paths of all images in the folder.
        kinds: the type of some columns of a CSV file: ``int``, ``float`` or ``str``.

    Returns:
        The values of each column; the column :data:`FILE_NAME_COLUMN` has the paths of the images.

    Raises:
        DatasetFileCorruptError: the file is damaged, or does not match the images.
    """
    full_name = folder.full_name(name)
    with folder.open(name) as resource:
        data = resource.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise DatasetFileCorruptError(f"{full_name} has more than {_MAX_BYTES:,} bytes")
    if name.endswith(".jsonl"):
        columns = _parse_json_lines(data, full_name)
    else:
        columns = _parse_csv(data, full_name, kinds)

    if FILE_NAME_COLUMN not in columns:
        raise DatasetFileCorruptError(
            f"{full_name} has no column {FILE_NAME_COLUMN!r}, which names the images; "
            f"it has {', '.join(columns):.200}; rename the column of their paths"
        )
    paths = columns[FILE_NAME_COLUMN]
    existing_paths = set(images)
    for row, path in enumerate(paths):
        if not isinstance(path, str) or path not in existing_paths:
            raise DatasetFileCorruptError(
                f"{full_name}, row {row}: image {path!r:.200} does not exist"
            )
    unlisted_paths = existing_paths.difference(paths)
    if unlisted_paths:
        raise DatasetFileCorruptError(
            f"{full_name} has no row for {min(unlisted_paths)!r}; add it, or leave out the "
            f"metadata by ImageFolderIterator(folder, metadata=False)"
        )
    if "image" in columns:
        raise DatasetFileCorruptError(
            f"{full_name} has a column 'image', a name that is reserved for the images"
        )
    return columns


def _parse_json_lines(data: bytes, full_name: str) -> dict[str, list[Any]]:
    """Return the columns of JSON lines, with None where a line lacks a key."""
    rows = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            row = parse_json(
                line,
                max_bytes=None,
                object_pairs_hook=distinct_fields,
                parse_float=parse_exact_float,
            )
        except ValueError as error:
            place, reason = place_in_line(error)
            raise DatasetFileCorruptError(
                f"{full_name}, line {number}{place}: invalid JSON: {reason:.200}"
            ) from error
        if not isinstance(row, dict):
            raise DatasetFileCorruptError(
                f"{full_name}, line {number}: expected an object with a {FILE_NAME_COLUMN!r}"
            )
        rows.append(row)

    # A dict, as it keeps the order of the keys.
    names = {FILE_NAME_COLUMN: None}
    for row in rows:
        names.update(dict.fromkeys(row))
    check_request(_CELL_BYTES * len(rows) * len(names), f"the columns of {full_name}")
    return {name: [row.get(name) for row in rows] for name in names}


def _parse_csv(data: bytes, full_name: str, kinds: Mapping[str, type]) -> dict[str, list[Any]]:
    """Return the columns of a CSV file.

    A column holds integers if all its values are integers, floats if all are numbers, otherwise
    text. ``kinds`` gives the types of some columns instead.
    """
    table = CSVFile(io.BytesIO(data), full_name, header=True)
    for name in table.names:
        # Of two columns with one name, one would be lost.
        table.position_of(name)
    texts = table.columns(dict.fromkeys(range(len(table.names)), np.dtype(str)))
    columns: dict[str, list[Any]] = {}
    for name, values in zip(table.names, texts.values(), strict=True):
        kind = kinds.get(name)
        # The name of a file stays text, even if it looks like a number.
        if name == FILE_NAME_COLUMN:
            kind = str
        columns[name] = _convert_cells(values.tolist(), kind)
    return columns


def _convert_cells(cells: list[str], kind: type | None) -> list[Any]:
    """Return the text of cells as values of a type; None to infer the type."""
    if kind is str:
        return cells
    numbers = numbers_of(cells)
    if numbers is None:
        return cells
    if kind is float:
        return [float(number) for number in numbers]
    return numbers
