"""Plans how each record set of a document is read, before anything is retrieved."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet import Field, NestedCodec, Schema
from data_stack.formats.parquet.types import arrow_type_of_dtype, describe_type
from data_stack.repository.croissant.values import (
    MAX_PATTERN_LENGTH,
    UNFIT,
    bounding_box,
    cast_value,
    parse_path,
    rewrite_texts,
    text_of,
    transform_value,
)

EVERYTHING = "all"
#: Python's types of mlcroissant that are stored as others.
_DTYPES: Mapping[str, Any] = {
    "bytes": str,
    "Timestamp": "datetime64[us]",
    "time": "timedelta64[us]",
    "int": np.int64,
    "float": np.float64,
    "BoundingBox": np.float64,
}
_MEDIA = ("ImageObject", "AudioObject", "VideoObject")


@dataclass(frozen=True)
class Column:
    """A field of a record set.

    Attributes:
        uuid: of the field.
        table: the identifier of the FileObject, FileSet or record set with its values; None: all values are ``value``.
        key: of the values in a row of the table: a column, ``"file:…"`` with a property of the file, ``"json:…"`` with a path,
            or a field of the other record set.
        transforms: mlcroissant's, in their order.
        field: of the Parquet file that it becomes; media are bytes there.
        dtype: of the values, or of the elements of arrays and lists.
        depth: of nested lists, if fields around this one are repeated.
        kind: the data type that the document declares.
        where: record set and field, for messages.
    """

    uuid: str
    table: str | None
    key: str
    value: Any
    transforms: tuple[Any, ...]
    field: Field
    dtype: np.dtype[Any]
    depth: int
    kind: str
    where: str

    def convert(
        self, values: Sequence[Any], paths: Sequence[str], first_record: int | None = None
    ) -> list[Any]:
        """Values of rows of a file, transformed, of the dtype that the document declares; none changes.

        Args:
            values: as stored in the file.
            paths: the file of each value, for messages.
            first_record: position of the first value in the record set, for messages; None if it has none.

        Raises:
            DatasetFileCorruptError: a value is of another type or does not fit it, or a regular expression takes too long.
        """
        for transform in self.transforms:
            if transform.regex is not None or transform.replace is not None:
                values = self._rewrite(transform, values)
            else:
                step = functools.partial(_map_each, functools.partial(transform_value, transform))
                values = self._attempt_each(step, values, paths, first_record)
        return self._attempt_each(self._cast, values, paths, first_record)

    def _attempt_each(
        self,
        function: Callable[[Any], Any],
        values: Sequence[Any],
        paths: Sequence[str],
        first_record: int | None,
    ) -> list[Any]:
        converted = []
        for number, value in enumerate(values):
            try:
                converted.append(function(value))
            except UNFIT as error:
                record = "" if first_record is None else f" in record {first_record + number}"
                raise DatasetFileCorruptError(
                    f"{paths[number]!r} holds {value!r:.80}{record}, but {self.where} needs {self.dtype}: {error!s:.200}"
                ) from error
        return converted

    def _rewrite(self, transform: Any, values: Sequence[Any]) -> Sequence[Any]:
        """The values after a ``regex`` or ``replace``."""
        pattern, _, replacement = (
            (transform.regex, "", None)
            if transform.regex is not None
            else transform.replace.partition("/")
        )
        distinct: dict[str, None] = {}
        for value in values:
            _map_each(lambda each: distinct.setdefault(text_of(each)), value)
        new = rewrite_texts(distinct, pattern, replacement, self.where)
        return [_map_each(lambda each: new[text_of(each)], value) for value in values]

    def _cast(self, value: Any, depth: int | None = None) -> Any:
        depth = self.depth if depth is None else depth
        if _is_missing(value):
            return (
                value
                if self.dtype.kind == "f" and not self.field.shape and not self.depth
                else None
            )
        if depth:
            if not isinstance(value, (list, np.ndarray)):
                raise TypeError("expected a list")
            return [self._cast(each, depth - 1) for each in value]
        if self.kind == "BoundingBox":
            return bounding_box(value).tolist() if self.depth else bounding_box(value)
        if self.depth or not self.field.shape:
            return cast_value(value, self.dtype)
        values = [cast_value(each, self.dtype) for each in value]
        return values if self.dtype.kind == "U" else np.asarray(values, self.dtype)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, (float, np.floating)) and value != value)


def _map_each(function: Callable[[Any], Any], value: Any) -> Any:
    """``function`` of a value, or of each in a list; what is missing stays as it is."""
    if isinstance(value, (list, np.ndarray)):
        return [_map_each(function, each) for each in value]
    return value if _is_missing(value) else function(value)


@dataclass(frozen=True)
class Join:
    """A left join with the rows of another table by equal values.

    Attributes:
        left: the key in the rows so far.
        right: the key in the rows of its table.
    """

    left: Column
    right: Column


@dataclass(frozen=True)
class Plan:
    """How a record set becomes samples.

    Attributes:
        identifier: of the record set.
        table: the identifier of the file or record set with the rows, see :class:`Column`; None without rows.
        joins: of other tables, in their order.
        columns: all of them, including the split.
        split: the column with the split of each row; None without splits.
        splits: their names.
        rows: in the document, by the identifiers of the fields.
    """

    identifier: str
    table: str | None
    joins: tuple[Join, ...]
    columns: tuple[Column, ...]
    split: Column | None
    splits: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]

    @property
    def schema(self) -> Schema:
        """Of the Parquet files that the rows become."""
        return Schema(
            "croissant", [column.field for column in self.columns if column is not self.split]
        )


class Plans:
    """The plans of a document.

    Attributes:
        chosen: of all record sets but those that only list splits or classes, if there are others.
        all: these, and the record sets to which their fields refer, by their identifiers.
        files: mlcroissant's FileObjects and FileSets by their identifiers.

    Raises:
        ConfigError: a field is not supported; the message names record set and field.
    """

    def __init__(self, metadata: Any) -> None:
        if not metadata.record_sets:
            raise ConfigError(
                f"croissant document {metadata.name!r:.80} has no record sets, which say how files become samples"
            )
        self.files = {node.uuid: node for node in metadata.distribution}
        for name, node in self.files.items():
            if any(
                len(each) > MAX_PATTERN_LENGTH
                for each in (*globs_of(node, "includes"), *globs_of(node, "excludes"))
            ):
                raise ConfigError(
                    f"a glob of {name!r:.200} has more than {MAX_PATTERN_LENGTH} characters, which is not read"
                )
        self.all: dict[str, Plan] = {}
        self._record_sets = {each.uuid: each for each in metadata.record_sets}
        owned = [
            (field, each.uuid)
            for each in metadata.record_sets
            for field in _all_fields(each.fields)
        ]
        self._fields = {field.uuid: field for field, _ in owned}
        self._owners = {field.uuid: owner for field, owner in owned}
        self._waiting: list[str] = []
        others = [each for each in metadata.record_sets if not _is_a(each, "Split", "Enumeration")]
        self.chosen = [self._plan(each.uuid) for each in others or metadata.record_sets]

    def _plan(self, identifier: str) -> Plan:
        if identifier in self.all:
            return self.all[identifier]
        if identifier in self._waiting:
            raise ConfigError(
                f"the record sets {' and '.join(map(repr, self._waiting))} refer to each other"
            )
        self._waiting.append(identifier)
        record_set, rows = self._record_sets[identifier], tuple[Mapping[str, Any], ...]()
        leaves = [field for field in _all_fields(record_set.fields) if not field.sub_fields]
        if not leaves:
            raise ConfigError(
                f"the record set {identifier!r} has no fields, so its records are not described"
            )
        columns = [self._column(record_set, field) for field in leaves]
        if record_set.data:
            rows = tuple(_by_identifiers(row, leaves) for row in record_set.data)
            columns = [replace(each, table=identifier, key=each.uuid) for each in columns]
        self._check_methods(columns)
        split, splits = self._find_split(leaves, columns)
        table, joins = (identifier, ()) if rows else self._join(record_set, leaves, columns)
        self.all[identifier] = Plan(identifier, table, joins, tuple(columns), split, splits, rows)
        self._waiting.pop()
        return self.all[identifier]

    def _check_methods(self, columns: Sequence[Column]) -> None:
        """Check that each file is read in one way; its properties, such as its name, can be read besides."""
        methods: dict[str, str] = {}
        for column in columns:
            kind, colon, name = column.key.partition(":")
            by = (
                {"json": "the path", "file": name}.get(kind, "the column")
                if colon
                else "the column"
            )
            if column.table in self.files and by in ("the path", "the column", "content", "lines"):
                other = methods.setdefault(str(column.table), by)
                if other != by:
                    advice = "leave the field out of the document, or name the file in a second FileObject"
                    raise ConfigError(
                        f"{column.where} reads {by} of a file, but other fields read {other}: {advice}"
                    )

    def _find_split(
        self, leaves: Sequence[Any], columns: Sequence[Column]
    ) -> tuple[Column | None, tuple[str, ...]]:
        """The column that refers to a list of splits, and their names."""
        for field, column in zip(leaves, columns, strict=True):
            listing = self._record_sets.get(self._owners.get(field.references.uuid or "", ""))
            if listing is not None and listing.data and _is_a(listing, "Split"):
                names = [
                    str(_by_identifiers(row, listing.fields)[field.references.uuid])
                    for row in listing.data
                ]
                return column, tuple(names if column.table else [str(column.value)])
        return None, (EVERYTHING,)

    def _join(
        self, record_set: Any, leaves: Sequence[Any], columns: Sequence[Column]
    ) -> tuple[str | None, tuple[Join, ...]]:
        """The table with the rows, and the joins of the other tables whose columns are read."""
        tables = list(dict.fromkeys(column.table for column in columns if column.table is not None))
        joins = []
        for field, left in zip(leaves, columns, strict=True):
            table = self._owners.get(field.references.uuid, field.references.uuid)
            if (
                table in tables
                and left.table not in (None, table)
                and not left.field.shape
                and not left.depth
            ):
                table, key, transforms = self._source(field.references)
                joins.append(
                    Join(left, replace(left, uuid="", table=table, key=key, transforms=transforms))
                )
        first = next(
            (each for each in tables if all(join.right.table != each for join in joins)), None
        )
        joined, ordered = {first}, list[Join]()
        while found := [
            each for each in joins if each.left.table in joined and each.right.table not in joined
        ]:
            ordered.append(found[0])
            joined.add(found[0].right.table)
        if rest := [each for each in tables if each not in joined]:
            column = next(each for each in columns if each.table == rest[0])
            advice = "but no field refers from one to the other; leave the field out of the document to read the others"
            raise ConfigError(
                f"{column.where} needs a join of {' and '.join(map(repr, tables))}, {advice}"
            )
        return first, tuple(ordered)

    def _source(self, source: Any) -> tuple[str, str, tuple[Any, ...]]:
        """Table, key and transforms of a source or reference."""
        extract, transforms = source.extract, tuple(source.transforms)
        if (owner := self._owners.get(source.uuid)) is not None and source.uuid not in self.files:
            self._plan(owner)
            return owner, source.uuid, transforms
        if extract.json_path:
            return source.uuid, f"json:{extract.json_path}", transforms
        name = extract.file_property.name if extract.file_property else "content"
        return source.uuid, extract.column or f"file:{name}", transforms

    def _column(self, record_set: Any, field: Any) -> Column:
        where = f"field {field.uuid!r} of record set {record_set.uuid!r}"
        # Some documents have only the reference: its values are those of the field.
        source = (
            field.source
            if field.source.uuid or field.value is not None or record_set.data
            else field.references
        )
        table, key, transforms = self._source(source) if source.uuid else (None, "", ())
        type_ = self._type_of(field)
        kind = type_.__name__ if isinstance(type_, type) else str(type_).rpartition("/")[2]
        is_whole = table in self.files and key == "file:content"
        transforms_files = any(
            each.sampling_rate or each.un_archive or each.read_lines for each in transforms
        )
        patterns = [
            text
            for each in transforms
            for text in (each.regex, each.replace, each.json_path, each.format)
            if text
        ]
        problems = {
            f"refers to {table!r:.80}": table is not None
            and table not in self.files
            and table not in self._record_sets,
            "nests records of another record set": any(
                each.parent_field for each in (field, *_parents(field))
            ),
            "transforms files or sound": field.source.sampling_rate or transforms_files,
            f"has a pattern of more than {MAX_PATTERN_LENGTH} characters": any(
                len(text) > MAX_PATTERN_LENGTH for text in patterns
            ),
            "has no dataType of Croissant, nor does its source": type_ is None,
            f"has the type {kind} for a whole file": is_whole and kind not in (*_MEDIA, "bytes"),
        }
        for what in (what for what, is_wrong in problems.items() if is_wrong):
            raise ConfigError(
                f"{where} {what}, which is not read; leave the field out of the document to read the others"
            )
        for path in [each.json_path for each in transforms if each.json_path] + [
            key[5:]
        ] * key.startswith("json:"):
            parse_path(path)
        name = ".".join(map(_name_of, [*_parents(field), field]))
        shape, dtype = (
            _shape(field),
            np.dtype(bytes if kind in _MEDIA else _DTYPES.get(kind, type_)),
        )
        shape = (4,) if kind == "BoundingBox" else shape
        depth = sum(len(_shape(each)) for each in _parents(field))
        depth += len(_shape(field)) if depth else 0
        if table in self.all and table not in self.files and not (shape or depth or transforms):
            taken = next(column for column in self.all[str(table)].columns if column.uuid == key)
            shape, depth = taken.field.shape, taken.depth
        stored = Field(name, dtype, shape, nullable=True)
        if depth:  # elements of nested lists may be missing
            inner: Any = describe_type(arrow_type_of_dtype(dtype))
            for _ in range(depth + (kind == "BoundingBox")):
                inner = {"list": inner}
            stored = Field(name, object, (), NestedCodec(inner), nullable=True)
        return Column(
            field.uuid, table, key, field.value, transforms, stored, dtype, depth, kind, where
        )

    def _type_of(self, field: Any) -> Any:
        """The type that a field declares, or else that of the field which it refers to, or of its parents."""
        seen: set[str] = set()
        while field is not None and field.uuid not in seen:
            seen.add(field.uuid)
            if field.data_types and (found := field.data_type) is not None:
                return found
            field = self._fields.get(field.source.uuid or field.references.uuid)
        return None


def globs_of(node: Any, name: str) -> list[str]:
    """The globs that a FileSet includes or excludes."""
    return [str(each) for each in np.atleast_1d(getattr(node, name, None) or [])]


def _shape(field: Any) -> tuple[int | None, ...]:
    """The shape that a field declares."""
    return tuple(
        None if extent < 0 else extent
        for extent in field.array_shape_tuple or ((-1,) if field.repeated else ())
    )


def _all_fields(fields: Sequence[Any]) -> Iterator[Any]:
    """The fields, and those inside of them."""
    for field in fields:
        yield field
        yield from _all_fields(field.sub_fields or ())


def _parents(field: Any) -> list[Any]:
    """The fields around a field; before them come the document and the record set."""
    return list(field.parents[2:])


def _by_identifiers(row: Mapping[str, Any], fields: Sequence[Any]) -> dict[str, Any]:
    """A row of a document by the identifiers of its fields; documents of version 0.8 have their names."""
    return {
        field.uuid: row[field.uuid] if field.uuid in row else row.get(field.name)
        for field in fields
    }


def _is_a(record_set: Any, *kinds: str) -> bool:
    kinds_of_it = ["Enumeration"] * bool(record_set.is_enumeration) + list(
        np.atleast_1d(record_set.data_types or [])
    )
    return any(str(kind).endswith(kinds) for kind in kinds_of_it)


def _name_of(field: Any) -> str:
    return (
        field.name
        if isinstance(field.name, str) and field.name
        else str(field.uuid).rpartition("/")[2]
    )
