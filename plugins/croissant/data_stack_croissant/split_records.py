"""Describes the samples of a split in Croissant."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from data_stack import DatasetIteratorIF, Resources
from data_stack_croissant.column_types import describe_columns
from data_stack_croissant.split_files import columns_of_file, files_of_split
from data_stack_croissant.vocabulary import (
    file_id,
    make_inline_records,
    make_node,
    media_type_of,
)

#: The identifier of the field with the names of all splits. A field of each split refers to it.
SPLIT_NAME_ID: Final = "dataset_splits/name"


@dataclass
class SplitNodes:
    """The nodes of a document that describe a split.

    Attributes:
        file_sets: a FileSet, if the samples are in several tables; else empty.
        record_sets: a RecordSet of the samples, if they are in tables. Else a RecordSet of the
            names of the files, and a RecordSet of the columns.
    """

    file_sets: list[dict[str, Any]] = field(default_factory=list)
    record_sets: list[dict[str, Any]] = field(default_factory=list)


def describe_split(
    split: str, splits: Sequence[str], iterator: DatasetIteratorIF, resources: Resources
) -> SplitNodes:
    """Describe a split of a prepared dataset.

    Args:
        split: name of the split.
        splits: names of all splits.
        iterator: the samples of the split.
        resources: the prepared resources of the dataset.

    Returns:
        The nodes; none if the split has no files or no columns.
    """
    files = files_of_split(split, splits, resources)
    types = describe_columns(iterator)
    if not files or not types:
        return SplitNodes()
    tables: dict[str, dict[str, bool]] = {}
    for file in files:
        columns = columns_of_file(file, resources)
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
        split: name of the split.
        tables: the columns of each file, see :func:`columns_of_file`.
        types: the type of each column of the samples.
    """
    split_id = quote(split)
    files = list(tables)
    nodes = SplitNodes()

    # One file is named itself. Several are a FileSet of the folder: not containedIn the files,
    # whose tables mlcroissant does not read.
    source: dict[str, Any] = {"fileObject": {"@id": file_id(files[0])}}
    if len(files) > 1:
        file_set_id = f"files-of/{split_id}"
        file_set = make_node(
            "FileSet",
            file_set_id,
            file_set_id,
            encodingFormat=media_type_of(files[0]),
            includes=[glob.escape(file) for file in files],
        )
        nodes.file_sets.append(file_set)
        source = {"fileSet": {"@id": file_set_id}}

    # A field with the name of the split, and one for each column.
    split_field = make_node(
        "Field",
        f"{split_id}/dataset_split",
        "dataset_split",
        dataType="sc:Text",
        value=split,
        references={"field": {"@id": SPLIT_NAME_ID}},
    )
    fields = [split_field]
    is_picture = tables[files[0]]
    for column, type_ in types.items():
        facts = {"dataType": "sc:ImageObject"} if is_picture[column] else type_
        column_field = make_node(
            "Field",
            f"{split_id}/{quote(column)}",
            column,
            **facts,
            source={**source, "extract": {"column": column}},
        )
        fields.append(column_field)
    nodes.record_sets.append(make_node("RecordSet", split_id, split, field=fields))
    return nodes


def _list_files(
    split: str, files: Sequence[str], types: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return RecordSets for files that Croissant cannot read, such as ``.npy``.

    The first has the names of the files of a split, the second the columns of its samples.
    """
    split_id = quote(split)
    names = [{"file": file} for file in files]
    columns = []
    for name, type_ in types.items():
        shape = type_.get("arrayShape", "")
        columns.append({"column": name, "type": type_["dataType"], "shape": shape})
    return [
        make_inline_records(split_id, split, names),
        make_inline_records(f"{split_id}/columns", f"{split}/columns", columns),
    ]
