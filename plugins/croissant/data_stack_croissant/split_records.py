"""Describes the samples of a split in Croissant, as far as it has words for them."""

from __future__ import annotations

import contextlib
import csv
import datetime
import glob
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF, access_to, column_names
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.factories.prepared import Resources
from data_stack_croissant.vocabulary import (
    file_id,
    make_inline_records,
    make_node,
    media_type_of,
)

#: The field with the names of the splits, to which a field of each split refers.
SPLIT_NAME_ID: Final = "dataset_splits/name"

#: Data types by numpy's kinds of dtypes; those of ``cr:`` are followed by the number of bits.
_DATA_TYPES: Final = {
    "b": "sc:Boolean",
    "i": "cr:Int",
    "u": "cr:UInt",
    "f": "cr:Float",
    "M": "sc:DateTime",
}
#: Files whose columns Croissant can name.
_SUFFIXES_OF_TABLES: Final = (".parquet", ".csv", ".tsv", ".jsonl")


@dataclass
class SplitNodes:
    """The nodes of a document that describe a split.

    Attributes:
        file_sets: none, or one of several files.
        record_sets: the samples; or the names of the files, and the columns.
    """

    file_sets: list[dict[str, Any]] = field(default_factory=list)
    record_sets: list[dict[str, Any]] = field(default_factory=list)


def describe_split(
    split: str, splits: Sequence[str], iterator: DatasetIteratorIF, resources: Resources
) -> SplitNodes:
    """Describe a split of a prepared dataset.

    Args:
        split: its name.
        splits: the names of all.
        iterator: its samples.
        resources: the prepared resources of the dataset.

    Returns:
        Nothing if it has no files or no columns.
    """
    files = _files_of_split(split, splits, resources)
    types = _types_of_columns(iterator)
    if not files or not types:
        return SplitNodes()
    tables: dict[str, dict[str, bool]] = {}
    for file in files:
        columns = _columns_of_file(file, resources)
        if types.keys() <= columns.keys():
            tables[file] = columns
    if tables:
        return _describe_tables(split, tables, types)
    return SplitNodes(record_sets=_list_files(split, files, types))


def _describe_tables(
    split: str,
    tables: Mapping[str, Mapping[str, bool]],
    types: Mapping[str, dict[str, Any]],
) -> SplitNodes:
    """Describe files that have the columns of the samples.

    Args:
        split: its name.
        tables: by file its columns, see :func:`_columns_of_file`.
        types: of the columns of the samples.
    """
    split_id = quote(split)
    files = list(tables)
    nodes = SplitNodes()
    source: dict[str, Any] = {"fileObject": {"@id": file_id(files[0])}}
    if len(files) > 1:
        # Of the folder, not containedIn the files, whose tables mlcroissant does not read.
        file_set_id = f"files-of/{split_id}"
        nodes.file_sets.append(
            make_node(
                "FileSet",
                file_set_id,
                file_set_id,
                encodingFormat=media_type_of(files[0]),
                includes=[glob.escape(file) for file in files],
            )
        )
        source = {"fileSet": {"@id": file_set_id}}
    fields = [
        make_node(
            "Field",
            f"{split_id}/dataset_split",
            "dataset_split",
            dataType="sc:Text",
            value=split,
            references={"field": {"@id": SPLIT_NAME_ID}},
        )
    ]
    pictures = tables[files[0]]
    for column, type_ in types.items():
        facts = {"dataType": "sc:ImageObject"} if pictures[column] else type_
        fields.append(
            make_node(
                "Field",
                f"{split_id}/{quote(column)}",
                column,
                **facts,
                source={**source, "extract": {"column": column}},
            )
        )
    nodes.record_sets.append(make_node("RecordSet", split_id, split, field=fields))
    return nodes


def _list_files(
    split: str, files: Sequence[str], types: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return RecordSets of what Croissant has no words to read.

    One has the names of the files of a split, the other the columns of its samples.
    """
    split_id = quote(split)
    names = [{"file": file} for file in files]
    columns = [
        {"column": name, "type": type_["dataType"], "shape": type_.get("arrayShape", "")}
        for name, type_ in types.items()
    ]
    return [
        make_inline_records(split_id, split, names),
        make_inline_records(f"{split_id}/columns", f"{split}/columns", columns),
    ]


# ---------------------------------------------------------------------- files


def _files_of_split(split: str, splits: Sequence[str], resources: Resources) -> list[str]:
    """Return the files whose names have the split; without such, those whose names have none."""
    files_of_split = []
    files_of_none = []
    for file in sorted(resources):
        splits_in_name = _splits_in(file, splits)
        if split in splits_in_name:
            files_of_split.append(file)
        if not splits_in_name:
            files_of_none.append(file)
    return files_of_split or files_of_none


def _splits_in(file: str, splits: Sequence[str]) -> set[str]:
    """Return the splits whose names are whole words of a path.

    Of ``dev_2/a.npy`` it is ``dev_2`` alone, though ``dev`` is a split, too.
    """
    longest_first = sorted(splits, key=len, reverse=True)
    any_split = "|".join(re.escape(split) for split in longest_first)
    return set(re.findall(rf"(?<![^/._-])(?:{any_split})(?![^/._-])", file))


def _columns_of_file(file: str, resources: Resources) -> dict[str, bool]:
    """Return by column of a table whether its values are pictures; ``{}`` of other files."""
    suffix = PurePosixPath(file).suffix
    if suffix not in _SUFFIXES_OF_TABLES:
        return {}
    with resources[file] as resource:
        if suffix == ".parquet":
            return _columns_of_parquet(resource)
        line = io.TextIOWrapper(resource, encoding="utf-8", errors="replace").readline()
    if suffix == ".jsonl":
        return dict.fromkeys(json.loads(line), False)
    delimiter = "\t" if suffix == ".tsv" else ","
    names = next(csv.reader([line], delimiter=delimiter), ())
    return dict.fromkeys(names, False)


def _columns_of_parquet(resource: Any) -> dict[str, bool]:
    from data_stack.formats.parquet import JpegCodec, ParquetDataset, PngCodec

    return {
        column.name: isinstance(column.codec, (JpegCodec, PngCodec))
        for column in ParquetDataset(resource).schema
    }


# ---------------------------------------------------------------------- columns


def _types_of_columns(iterator: DatasetIteratorIF) -> dict[str, dict[str, Any]]:
    """Return by column what :func:`describe_type` says; reads at most one sample."""
    samples = access_to(iterator)
    declared = samples.declare_columns() or {}
    sample: Any = dict.fromkeys(declared)
    if len(iterator):
        sample = samples.sample(0)
    if not isinstance(sample, Mapping):
        values = sample if isinstance(sample, tuple) else (sample,)
        names = column_names(iterator) or [
            name_of_position(iterator, position) for position in range(len(values))
        ]
        sample = dict(zip(names, values, strict=True))
    return {
        str(column): describe_type(value, declared.get(column)) for column, value in sample.items()
    }


def name_of_position(iterator: Any, position: int) -> str:
    """Return the name of a column of tuples: its role in the meta, or ``column_0`` and so on."""
    meta = getattr(iterator, "dataset_meta", None)
    if meta is not None:
        for role in ("sample", "target", "tag"):
            if getattr(meta, f"{role}_pos") == position:
                return role
    return f"column_{position}"


def describe_type(value: Any, declared: DeclaredColumn | None) -> dict[str, Any]:
    """Return the ``dataType`` of a column.

    ``isArray`` and ``arrayShape`` follow where its values are arrays.

    Args:
        value: one of them; None if missing.
        declared: their type in a schema; None if the schema has none.
    """
    if type(value).__module__.startswith("PIL."):
        return {"dataType": "sc:ImageObject"}
    array = np.asarray(value)
    dtype = array.dtype
    shape = array.shape
    if declared is not None and declared.dtype is not None and declared.shape is not None:
        shape = tuple(-1 if size is None else size for size in declared.shape)
        with contextlib.suppress(TypeError):  # of a name that numpy does not know
            dtype = np.dtype(declared.dtype)
    described = {"dataType": _data_type_of(value, dtype)}
    if not shape:
        return described
    return {**described, "isArray": True, "arrayShape": ",".join(map(str, shape))}


def _data_type_of(value: Any, dtype: np.dtype[Any]) -> str:
    if isinstance(value, datetime.datetime):
        return "sc:DateTime"
    if isinstance(value, datetime.date):
        return "sc:Date"
    data_type = _DATA_TYPES.get(dtype.kind, "sc:Text")
    if data_type.startswith("cr:"):
        return f"{data_type}{8 * dtype.itemsize}"
    return data_type
