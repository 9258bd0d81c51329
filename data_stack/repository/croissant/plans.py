"""What has to be read for each record set of a document, worked out before anything is retrieved."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonpath_rw
import numpy as np

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet import Field, Schema

EVERYTHING = "all"
#: Python's types of mlcroissant that are stored as others.
_DTYPES: Mapping[str, Any] = {"bytes": str, "Timestamp": "datetime64[us]", "int": np.int64, "float": np.float64}
_MEDIA = ("ImageObject", "AudioObject", "VideoObject")
_UNFIT = (TypeError, ValueError, OverflowError, LookupError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Column:
    """A field of a record set.

    Attributes:
        key: of the values in a row of a file: a column, or ``"file:…"`` with a property of the file; None: all are ``value``.
        transforms: mlcroissant's, in their order.
        field: of the Parquet file that it becomes; media are bytes there.
        is_image: whether the values are pictures.
        where: record set and field, for messages.
    """

    key: str | None
    value: Any
    transforms: tuple[Any, ...]
    field: Field
    is_image: bool
    where: str

    def convert(self, row: Mapping[str, Any], path: str) -> Any:
        """The value of a row of a file, transformed, of the dtype that the document declares.

        Raises:
            DatasetFileCorruptError: the row has no such value, or one of another type.
        """
        dtype, value = np.dtype(self.field.dtype), self.value
        try:
            if self.key is not None:
                value = row[self.key]
            for transform in self.transforms:
                value = (
                    [_transform(transform, each) for each in value]
                    if isinstance(value, (list, np.ndarray))
                    else _transform(transform, value)
                )
            if value is None or (isinstance(value, float) and value != value):
                return value if dtype.kind == "f" else None
            if not self.field.shape:
                return _cast(value, dtype)
            values = [_cast(each, dtype) for each in value]
            return values if dtype.kind == "U" else np.asarray(values, dtype)
        except _UNFIT as error:
            what = f"has no {self.key!r:.80}" if isinstance(error, KeyError) else f"holds {value!r:.80}, which is no {dtype}"
            raise DatasetFileCorruptError(f"{path!r} {what}, but {self.where} takes it: {error!s:.200}") from error


@dataclass(frozen=True)
class Plan:
    """How a record set becomes samples.

    Attributes:
        identifier: of the record set.
        node: mlcroissant's FileObject or FileSet with the rows; None: they are in the document.
        columns: all, with that of the split.
        split: the column that says to which split a row belongs; None: there is none.
        splits: their names.
        rows: in the document.
    """

    identifier: str
    node: Any
    columns: tuple[Column, ...]
    split: Column | None
    splits: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]

    @property
    def schema(self) -> Schema:
        """Of the Parquet files that the rows become."""
        return Schema("croissant", [column.field for column in self.columns if column is not self.split])


def make_plans(metadata: Any) -> list[Plan]:
    """The plans of all record sets but those that only list splits or classes, if there are others.

    Raises:
        ConfigError: one needs a join, a transform or a type that is not read; it names the record set and the field.
    """
    if not metadata.record_sets:
        raise ConfigError(
            f"the croissant document of {metadata.name!r:.80} has no record sets: it does not say how files become samples"
        )
    nodes = {node.uuid: node for node in metadata.nodes()}
    others = [each for each in metadata.record_sets if not _is_a(each, "Split", "Enumeration")]
    return [_make_plan(record_set, nodes) for record_set in others or metadata.record_sets]


def _is_a(record_set: Any, *kinds: str) -> bool:
    return any(str(kind).endswith(kinds) for kind in np.atleast_1d(record_set.data_types or []))


def _make_plan(record_set: Any, nodes: Mapping[str, Any]) -> Plan:
    columns, sources, split, splits = list[Column](), dict[str, Any](), None, [EVERYTHING]
    for field in record_set.fields:
        columns += [_make_column(record_set, each, nodes, sources) for each in field.sub_fields or [field]]
        listing = getattr(nodes.get(field.references.uuid), "parent", None)
        if listing is not None and listing.data and _is_a(listing, "Split"):
            split = columns[-1]
            splits = [str(row[field.references.uuid]) for row in listing.data] if split.key else [str(split.value)]
    node, rows = next(iter(sources.values()), None), tuple(record_set.data or ())
    return Plan(record_set.uuid, node, tuple(columns), split, tuple(splits), rows)


def _make_column(record_set: Any, field: Any, nodes: Mapping[str, Any], sources: dict[str, Any]) -> Column:
    where = f"field {field.uuid!r} of record set {record_set.uuid!r}"
    source, transforms = field.source, list(field.source.transforms)
    while source.field:
        source = nodes[source.field].source
        transforms = [*source.transforms, *transforms]
    sources.update({source.uuid: nodes[source.uuid]} if source.uuid else {})
    extract, type_ = source.extract, field.data_type
    kind = type_.__name__ if isinstance(type_, type) else str(type_).rpartition("/")[2]
    key = extract.column or f"file:{extract.file_property.name if extract.file_property else 'content'}"
    is_whole, of_files = source.uuid and key == "file:content", ("sampling_rate", "un_archive", "read_lines")
    for is_wrong, what in (
        (len(sources) > 1, f"needs a join of the files {' and '.join(map(repr, sources))}"),
        (any(getattr(each, name) for each in transforms for name in of_files), "has a transform of files or sound"),
        (extract.json_path or "line" in key.partition("file:")[2], "takes its values out of a file of text or JSON"),
        (kind in ("time", "BoundingBox"), f"has values of type {kind}"),
        (is_whole and kind not in (*_MEDIA, "bytes"), f"takes values of type {kind} for a whole file"),
    ):
        if is_wrong:
            raise ConfigError(f"{where} {what}, which is not read; leave the field out of the document to read the others")
    name = ".".join(map(_name_of, [*field.parents[2:], field]))
    shape = tuple(None if extent < 0 else extent for extent in field.array_shape_tuple or ((-1,) if field.repeated else ()))
    stored = Field(name, bytes if kind in _MEDIA else _DTYPES.get(kind, type_), shape, nullable=True)
    known = key if source.uuid else field.uuid if record_set.data else None
    return Column(known, field.value, tuple(transforms), stored, kind == _MEDIA[0], where)


def _name_of(field: Any) -> str:
    return field.name if isinstance(field.name, str) and field.name else str(field.uuid).rpartition("/")[2]


def _transform(transform: Any, value: Any) -> Any:
    if value is None:
        return None
    if transform.json_path is not None:
        found = jsonpath_rw.parse(transform.json_path).find(json.loads(value) if isinstance(value, str) else value)
        return found[0].value if found else None
    if transform.format is not None:
        return datetime.datetime.strptime(value, transform.format) if isinstance(value, str) else value
    text = value.decode() if isinstance(value, bytes) else str(value)
    if transform.separator is not None:
        return text.split(transform.separator)
    if transform.replace is not None:
        pattern, _, replacement = transform.replace.partition("/")
        return re.sub(pattern, replacement, text)
    match = re.match(transform.regex, text)
    return text if match is None else next((group for group in match.groups() if group is not None), text)


def _cast(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "U":
        return value.decode() if isinstance(value, bytes) else str(value)
    if dtype.kind == "S":
        return value["bytes"] if isinstance(value, dict) else value
    if dtype.kind == "M":
        return np.datetime64(value, "us")
    if dtype.kind == "b" and isinstance(value, str):
        return {"true": True, "false": False}[value.lower()]
    if dtype.kind in "iu" and isinstance(value, (float, np.floating)) and value != int(value):
        raise ValueError("it is no integer")
    return value if isinstance(value, (list, np.ndarray)) else dtype.type(value)
