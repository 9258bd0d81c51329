"""Plans how each record set of a document is read, before anything is retrieved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, NestedCodec, Schema
from data_stack.formats.parquet.types import arrow_type_of_dtype, describe_type
from data_stack.repository.croissant.column import FILE_PREFIX, JSON_PREFIX, MEDIA, Column
from data_stack.repository.croissant.globs import excludes_of, includes_of
from data_stack.repository.croissant.json_path import MAX_PATTERN_LENGTH, parse_path

#: The split of a record set without splits.
EVERYTHING: Final = "all"

#: Python's types of mlcroissant that are stored as others.
_DTYPES: Final[Mapping[str, Any]] = {
    "bytes": str,
    "Timestamp": "datetime64[us]",
    "time": "timedelta64[us]",
    "int": np.int64,
    "float": np.float64,
    "BoundingBox": np.float64,
}
_SHAPE_OF_BOX: Final = (4,)

#: The ways in which a file is read, of which only one is possible for a file: mlcroissant's
#: properties of its bytes, its columns, and paths into its JSON.
_CONTENT: Final = "content"
_LINES: Final = "lines"
_COLUMN: Final = "the column"
_PATH: Final = "the path"


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
        table: the identifier of the file or record set with the rows, see :class:`Column`; None
            without rows.
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
        """The schema of the Parquet files that the rows become."""
        fields = [column.field for column in self.columns if column is not self.split]
        return Schema("croissant", fields)


class Plans:
    """The plans of a document.

    Args:
        metadata: mlcroissant's, of the document.

    Attributes:
        chosen: of all record sets but those that only list splits or classes, if there are others.
        all: these, and the record sets to which their fields refer, by their identifiers.
        files: mlcroissant's FileObjects and FileSets by their identifiers.

    Raises:
        ConfigError: a field is not supported; the message names record set and field.
    """

    chosen: list[Plan]
    all: dict[str, Plan]
    files: dict[str, Any]
    #: mlcroissant's record sets by their identifiers.
    _record_sets: dict[str, Any]
    #: All fields by their identifiers.
    _fields: dict[str, Any]
    #: By the identifier of a field that of its record set.
    _owners: dict[str, str]
    #: The record sets whose plans are being made, each for the one before it.
    _waiting: list[str]

    def __init__(self, metadata: Any) -> None:
        if not metadata.record_sets:
            raise ConfigError(
                f"croissant document {metadata.name!r:.80} has no record sets, which say how files "
                f"become samples"
            )
        self.files = {node.uuid: node for node in metadata.distribution}
        for node in self.files.values():
            _check_globs(node)
        self._record_sets = {record_set.uuid: record_set for record_set in metadata.record_sets}
        self._fields = {}
        self._owners = {}
        for record_set in metadata.record_sets:
            for field in _all_fields(record_set.fields):
                self._fields[field.uuid] = field
                self._owners[field.uuid] = record_set.uuid
        self._waiting = []
        self.all = {}

        with_samples = [
            record_set
            for record_set in metadata.record_sets
            if not _is_a(record_set, "Split", "Enumeration")
        ]
        chosen = with_samples or metadata.record_sets
        self.chosen = [self._plan(record_set.uuid) for record_set in chosen]

    # ------------------------------------------------------------------ a record set

    def _plan(self, identifier: str) -> Plan:
        """Return the plan of a record set, which is made once."""
        if identifier in self.all:
            return self.all[identifier]
        if identifier in self._waiting:
            names = " and ".join(map(repr, self._waiting))
            raise ConfigError(f"the record sets {names} refer to each other")
        self._waiting.append(identifier)
        self.all[identifier] = self._make_plan(self._record_sets[identifier])
        self._waiting.pop()
        return self.all[identifier]

    def _make_plan(self, record_set: Any) -> Plan:
        identifier = record_set.uuid
        leaves = [field for field in _all_fields(record_set.fields) if not field.sub_fields]
        if not leaves:
            raise ConfigError(
                f"the record set {identifier!r} has no fields, so its records are not described"
            )
        columns = [self._make_column(record_set, field) for field in leaves]
        rows: tuple[Mapping[str, Any], ...] = ()
        if record_set.data:
            rows = tuple(_by_identifiers(row, leaves) for row in record_set.data)
            columns = [replace(column, table=identifier, key=column.uuid) for column in columns]
        self._check_ways_of_reading(columns)
        split, splits = self._find_split(leaves, columns)
        table: str | None = identifier
        joins: tuple[Join, ...] = ()
        if not rows:
            table, joins = self._plan_joins(leaves, columns)
        return Plan(identifier, table, joins, tuple(columns), split, splits, rows)

    def _check_ways_of_reading(self, columns: Sequence[Column]) -> None:
        """Check that each file is read in one way.

        Its properties, such as its name, can be read besides.
        """
        ways: dict[str, str] = {}
        for column in columns:
            way = _way_of_reading(column.key)
            if column.table not in self.files or way is None:
                continue
            other = ways.setdefault(str(column.table), way)
            if other != way:
                raise ConfigError(
                    f"{column.where} reads {way} of a file, but other fields read {other}: leave "
                    f"the field out of the document, or name the file in a second FileObject"
                )

    def _find_split(
        self, leaves: Sequence[Any], columns: Sequence[Column]
    ) -> tuple[Column | None, tuple[str, ...]]:
        """Return the column that refers to a list of splits, and the names of the splits."""
        for field, column in zip(leaves, columns, strict=True):
            referred = field.references.uuid or ""
            listing = self._record_sets.get(self._owners.get(referred, ""))
            if listing is None or not listing.data or not _is_a(listing, "Split"):
                continue
            if column.table is None:
                # All rows are of one split.
                return column, (str(column.value),)
            names = []
            for row in listing.data:
                names.append(str(_by_identifiers(row, listing.fields)[referred]))
            return column, tuple(names)
        return None, (EVERYTHING,)

    # ------------------------------------------------------------------ joins

    def _plan_joins(
        self, leaves: Sequence[Any], columns: Sequence[Column]
    ) -> tuple[str | None, tuple[Join, ...]]:
        """Return the table with the rows, and the joins of the other tables that are read.

        Raises:
            ConfigError: no field refers from one table to another.
        """
        tables: list[str] = []
        for column in columns:
            if column.table is not None and column.table not in tables:
                tables.append(column.table)
        joins = self._find_joins(leaves, columns, tables)

        joined_tables = {join.right.table for join in joins}
        first_table = next((table for table in tables if table not in joined_tables), None)
        ordered = _order_joins(joins, first_table)

        reached = {first_table, *(join.right.table for join in ordered)}
        for column in columns:
            if column.table is not None and column.table not in reached:
                names = " and ".join(map(repr, tables))
                raise ConfigError(
                    f"{column.where} needs a join of {names}, but no field refers from one to the "
                    f"other; leave the field out of the document to read the others"
                )
        return first_table, tuple(ordered)

    def _find_joins(
        self, leaves: Sequence[Any], columns: Sequence[Column], tables: Sequence[str]
    ) -> list[Join]:
        """Return a join for each field of single values that refers to another table."""
        joins = []
        for field, left in zip(leaves, columns, strict=True):
            referred = self._owners.get(field.references.uuid, field.references.uuid)
            is_single = not left.field.shape and not left.depth
            if referred not in tables or left.table in (None, referred) or not is_single:
                continue
            table, key, transforms = self._find_source(field.references)
            right = replace(left, uuid="", table=table, key=key, transforms=transforms)
            joins.append(Join(left, right))
        return joins

    # ------------------------------------------------------------------ a field

    def _find_source(self, source: Any) -> tuple[str, str, tuple[Any, ...]]:
        """Return table, key and transforms of a source or reference."""
        extract = source.extract
        transforms = tuple(source.transforms)
        owner = self._owners.get(source.uuid)
        if owner is not None and source.uuid not in self.files:
            self._plan(owner)
            return owner, source.uuid, transforms
        if extract.json_path:
            return source.uuid, JSON_PREFIX + extract.json_path, transforms
        if extract.column:
            return source.uuid, extract.column, transforms
        file_property = _CONTENT
        if extract.file_property:
            file_property = extract.file_property.name
        return source.uuid, FILE_PREFIX + file_property, transforms

    def _make_column(self, record_set: Any, field: Any) -> Column:
        where = f"field {field.uuid!r} of record set {record_set.uuid!r}"
        source = field.source
        if not source.uuid and field.value is None and not record_set.data:
            # Some documents have only the reference: its values are those of the field.
            source = field.references
        table: str | None = None
        key = ""
        transforms: tuple[Any, ...] = ()
        if source.uuid:
            table, key, transforms = self._find_source(source)

        declared_type = self._find_type(field)
        if isinstance(declared_type, type):
            kind = declared_type.__name__
        else:
            kind = str(declared_type).rpartition("/")[2]

        problem = self._find_problem(field, table, key, transforms, declared_type, kind)
        if problem is not None:
            raise ConfigError(
                f"{where} {problem}, which is not read; leave the field out of the document to "
                f"read the others"
            )
        for transform in transforms:
            if transform.json_path:
                parse_path(transform.json_path)
        if key.startswith(JSON_PREFIX):
            parse_path(key.removeprefix(JSON_PREFIX))

        dtype = np.dtype(bytes if kind in MEDIA else _DTYPES.get(kind, declared_type))
        shape = _SHAPE_OF_BOX if kind == "BoundingBox" else _shape_of(field)
        depth = _depth_of(field)
        is_plain = not shape and not depth and not transforms
        if table in self.all and table not in self.files and is_plain:
            # The values of a column of another record set have its shape.
            taken = next(column for column in self.all[str(table)].columns if column.uuid == key)
            shape = taken.field.shape
            depth = taken.depth
        name = ".".join(_name_of(part) for part in [*_parents_of(field), field])
        stored = _stored_field(name, dtype, shape, depth, is_box=kind == "BoundingBox")
        return Column(
            field.uuid, table, key, field.value, transforms, stored, dtype, depth, kind, where
        )

    def _find_problem(
        self,
        field: Any,
        table: str | None,
        key: str,
        transforms: Sequence[Any],
        declared_type: Any,
        kind: str,
    ) -> str | None:
        """Return what of a field is not read; None if all is."""
        if table is not None and table not in self.files and table not in self._record_sets:
            return f"refers to {table!r:.80}"
        if any(part.parent_field for part in (field, *_parents_of(field))):
            return "nests records of another record set"
        if field.source.sampling_rate or any(map(_transforms_files, transforms)):
            return "transforms files or sound"
        if any(_has_long_pattern(transform) for transform in transforms):
            return f"has a pattern of more than {MAX_PATTERN_LENGTH} characters"
        if declared_type is None:
            return "has no dataType of Croissant, nor does its source"
        is_whole_file = table in self.files and key == FILE_PREFIX + _CONTENT
        if is_whole_file and kind not in (*MEDIA, "bytes"):
            return f"has the type {kind} for a whole file"
        return None

    def _find_type(self, field: Any) -> Any:
        """Return the type that a field declares, or else that of the field to which it refers."""
        seen: set[str] = set()
        while field is not None and field.uuid not in seen:
            seen.add(field.uuid)
            if field.data_types:
                declared_type = field.data_type
                if declared_type is not None:
                    return declared_type
            field = self._fields.get(field.source.uuid or field.references.uuid)
        return None


def _check_globs(node: Any) -> None:
    """Check that the globs of a FileSet are not too long to be matched in a short time."""
    for glob in (*includes_of(node), *excludes_of(node)):
        if len(glob) > MAX_PATTERN_LENGTH:
            raise ConfigError(
                f"a glob of {node.uuid!r:.200} has more than {MAX_PATTERN_LENGTH} characters, "
                f"which is not read"
            )


def _way_of_reading(key: str) -> str | None:
    """Return the way in which a key reads a file; None for what can be read besides."""
    if key.startswith(JSON_PREFIX):
        return _PATH
    if not key.startswith(FILE_PREFIX):
        return _COLUMN
    file_property = key.removeprefix(FILE_PREFIX)
    return file_property if file_property in (_CONTENT, _LINES) else None


def _order_joins(joins: Sequence[Join], first_table: str | None) -> list[Join]:
    """Return the joins that lead from the first table to others, each after the one it needs.

    A table is joined once.
    """
    ordered: list[Join] = []
    reached = {first_table}
    while True:
        next_join = None
        for join in joins:
            if join.left.table in reached and join.right.table not in reached:
                next_join = join
                break
        if next_join is None:
            return ordered
        ordered.append(next_join)
        reached.add(next_join.right.table)


def _transforms_files(transform: Any) -> bool:
    return bool(transform.sampling_rate or transform.un_archive or transform.read_lines)


def _has_long_pattern(transform: Any) -> bool:
    patterns = (transform.regex, transform.replace, transform.json_path, transform.format)
    return any(pattern and len(pattern) > MAX_PATTERN_LENGTH for pattern in patterns)


def _stored_field(
    name: str,
    dtype: np.dtype[Any],
    shape: tuple[int | None, ...],
    depth: int,
    *,
    is_box: bool,
) -> Field:
    """Return the field of Parquet that a column becomes."""
    if not depth:
        return Field(name, dtype, shape, nullable=True)
    # A codec for nested lists, as their elements may be missing.
    element: Any = describe_type(arrow_type_of_dtype(dtype))
    n_lists = depth + 1 if is_box else depth
    for _ in range(n_lists):
        element = {"list": element}
    return Field(name, object, (), NestedCodec(element), nullable=True)


# ---------------------------------------------------------------------- fields of mlcroissant


def _shape_of(field: Any) -> tuple[int | None, ...]:
    """Return the shape that a field declares; None for a dimension of any size."""
    dimensions = field.array_shape_tuple
    if not dimensions:
        return (None,) if field.repeated else ()
    return tuple(None if size < 0 else size for size in dimensions)


def _depth_of(field: Any) -> int:
    """Return how deeply lists are nested; 0 where no field around this one is repeated."""
    depth_of_parents = sum(len(_shape_of(parent)) for parent in _parents_of(field))
    if not depth_of_parents:
        return 0
    return depth_of_parents + len(_shape_of(field))


def _all_fields(fields: Sequence[Any]) -> Iterator[Any]:
    """Yield the fields, and those inside of them."""
    for field in fields:
        yield field
        yield from _all_fields(field.sub_fields or ())


def _parents_of(field: Any) -> list[Any]:
    """Return the fields around a field."""
    return list(field.parents[2:])  # the document and the record set come before them


def _by_identifiers(row: Mapping[str, Any], fields: Sequence[Any]) -> dict[str, Any]:
    """Return a row of a document by the identifiers of its fields.

    Documents of version 0.8 have their names instead.
    """
    values = {}
    for field in fields:
        values[field.uuid] = row[field.uuid] if field.uuid in row else row.get(field.name)
    return values


def _is_a(record_set: Any, *kinds: str) -> bool:
    """Return whether a record set has one of some types, such as ``cr:Split``."""
    if record_set.is_enumeration and "Enumeration" in kinds:
        return True
    types = np.atleast_1d(record_set.data_types or [])
    return any(str(type_).endswith(kinds) for type_ in types)


def _name_of(field: Any) -> str:
    if isinstance(field.name, str) and field.name:
        return field.name
    return str(field.uuid).rpartition("/")[2]
