"""The record sets of a document, checked before anything is retrieved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from data_stack.exception import ConfigError
from data_stack_croissant.fields import (
    all_fields,
    column_name,
    depth_of,
    find_unread_part,
    is_a,
    kind_of,
    shape_of,
    values_by_identifier,
)
from data_stack_croissant.globs import check_globs
from data_stack_croissant.joins import plan_joins, tables_of
from data_stack_croissant.json_path import parse_path
from data_stack_croissant.record_column import (
    FILE_PREFIX,
    JSON_PREFIX,
    MEDIA,
    RecordColumn,
    ValueSource,
)
from data_stack_croissant.record_set import EVERYTHING, Join, RecordSet
from data_stack_croissant.stored_fields import (
    BOUNDING_BOX,
    SHAPE_OF_BOX,
    dtype_of,
    make_stored_field,
)

# The ways in which a file is read. Only one of them is possible for a file.

#: The whole file is one value. This is mlcroissant's name of the property.
_CONTENT: Final = "content"
#: Each line is a value. This is mlcroissant's name of the property.
_LINES: Final = "lines"
#: The columns of a table are read. The text stands in a message.
_COLUMN: Final = "the column"
#: Paths into JSON are read. The text stands in a message.
_PATH: Final = "the path"


class RecordSets:
    """The record sets of a document.

    Args:
        metadata: mlcroissant's metadata of the document.

    Attributes:
        chosen: the record sets with samples. Those that only list splits or classes are left out,
            unless there are no others.
        all: the chosen record sets, and those to which their fields refer, by their identifiers.
        files: mlcroissant's FileObjects and FileSets by their identifiers.

    Raises:
        ConfigError: a field needs something that is not read; the message names record set and
            field.
    """

    chosen: list[RecordSet]
    all: dict[str, RecordSet]
    files: dict[str, Any]
    #: mlcroissant's record sets by their identifiers.
    _nodes: dict[str, Any]
    #: mlcroissant's fields of all record sets by their identifiers.
    _fields: dict[str, Any]
    #: The identifier of the record set of a field, by the identifier of the field.
    _owners: dict[str, str]
    #: The identifiers of the record sets that are being made. Each is needed for the one before it.
    _unfinished: list[str]

    def __init__(self, metadata: Any) -> None:
        if not metadata.record_sets:
            raise ConfigError(
                f"croissant document {metadata.name!r:.80} has no record sets, which say how files "
                f"become samples"
            )
        self.files = {node.uuid: node for node in metadata.distribution}
        for node in self.files.values():
            check_globs(node)
        self._nodes = {node.uuid: node for node in metadata.record_sets}
        self._fields = {}
        self._owners = {}
        for node in metadata.record_sets:
            for field in all_fields(node.fields):
                self._fields[field.uuid] = field
                self._owners[field.uuid] = node.uuid
        self._unfinished = []
        self.all = {}

        chosen_nodes = []
        for node in metadata.record_sets:
            if not is_a(node, "Split", "Enumeration"):
                chosen_nodes.append(node)
        if not chosen_nodes:
            chosen_nodes = metadata.record_sets
        self.chosen = [self._find(node.uuid) for node in chosen_nodes]

    def list_files(self) -> list[Any]:
        """Return the FileObjects and FileSets that the record sets read, each once, in order."""
        tables: dict[str | None, None] = {}  # a set that keeps the order
        for record_set in self.all.values():
            for column in record_set.columns:
                tables[column.table] = None
            for join in record_set.joins:
                tables[join.right.table] = None
        return [self.files[table] for table in tables if table in self.files]

    # ------------------------------------------------------------------ a record set

    def _find(self, identifier: str) -> RecordSet:
        """Return a record set. It is made when it is asked for the first time.

        Raises:
            ConfigError: the record set refers to itself, or one of its fields is not read.
        """
        if identifier in self.all:
            return self.all[identifier]
        if identifier in self._unfinished:
            names = " and ".join(repr(unfinished) for unfinished in self._unfinished)
            raise ConfigError(f"the record sets {names} refer to each other")
        self._unfinished.append(identifier)
        self.all[identifier] = self._make(self._nodes[identifier])
        self._unfinished.pop()
        return self.all[identifier]

    def _make(self, node: Any) -> RecordSet:
        """Return the record set of one of mlcroissant's.

        Raises:
            ConfigError: it has no fields, or one of its fields is not read.
        """
        leaves = [field for field in all_fields(node.fields) if not field.sub_fields]
        if not leaves:
            raise ConfigError(
                f"the record set {node.uuid!r} has no fields, so its records are not described"
            )
        columns = [self._make_column(node, field) for field in leaves]
        if node.data:
            return self._make_inline(node, leaves, columns)
        self._check_ways_of_reading(columns)
        split, splits = self._find_split(leaves, columns)
        table, joins = plan_joins(columns, self._find_joins(leaves, columns))
        return RecordSet(
            identifier=node.uuid,
            table=table,
            joins=joins,
            columns=tuple(columns),
            split=split,
            splits=splits,
            rows=(),
        )

    def _make_inline(
        self, node: Any, leaves: Sequence[Any], columns: Sequence[RecordColumn]
    ) -> RecordSet:
        """Return a record set whose rows are in the document: it is a table of its own."""
        own_columns = []
        for column in columns:
            source = ValueSource(node.uuid, column.identifier, column.transforms)
            own_columns.append(replace(column, source=source))
        split, splits = self._find_split(leaves, own_columns)
        return RecordSet(
            identifier=node.uuid,
            table=node.uuid,
            joins=(),
            columns=tuple(own_columns),
            split=split,
            splits=splits,
            rows=tuple(values_by_identifier(row, leaves) for row in node.data),
        )

    def _check_ways_of_reading(self, columns: Sequence[RecordColumn]) -> None:
        """Check that each file is read in one way.

        Properties of the file, such as its name, can be read besides.

        Raises:
            ConfigError: two columns read a file in different ways.
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
        self, leaves: Sequence[Any], columns: Sequence[RecordColumn]
    ) -> tuple[RecordColumn | None, tuple[str, ...]]:
        """Return the column that refers to a list of splits, and the names of the splits.

        Without such a column, the only split has the name ``EVERYTHING``.
        """
        for field, column in zip(leaves, columns, strict=True):
            referred = field.references.uuid
            if referred not in self._owners:
                continue
            listing = self._nodes[self._owners[referred]]
            if not listing.data or not is_a(listing, "Split"):
                continue
            if column.table is None:
                # All rows are of one split.
                return column, (str(column.value),)
            names = []
            for row in listing.data:
                names.append(str(values_by_identifier(row, listing.fields)[referred]))
            return column, tuple(names)
        return None, (EVERYTHING,)

    def _find_joins(self, leaves: Sequence[Any], columns: Sequence[RecordColumn]) -> list[Join]:
        """Return a join for each field of single values that refers to another table."""
        tables = tables_of(columns)
        joins = []
        for field, left in zip(leaves, columns, strict=True):
            referred = field.references.uuid
            # A reference is to a file, or to a field of a record set.
            right_table = self._owners.get(referred, referred)
            is_to_other_table = right_table in tables and left.table not in (None, right_table)
            is_single = not left.field.shape and not left.depth
            if not is_to_other_table or not is_single:
                continue
            right = replace(left, identifier="", source=self._find_source(field.references))
            joins.append(Join(left, right))
        return joins

    # ------------------------------------------------------------------ a field

    def _make_column(self, node: Any, field: Any) -> RecordColumn:
        """Return the column of a field.

        Args:
            node: mlcroissant's record set.
            field: mlcroissant's field, which has no fields inside of it.

        Raises:
            ConfigError: the field needs something that is not read.
        """
        where = f"field {field.uuid!r} of record set {node.uuid!r}"
        source = self._find_source_of_field(node, field)
        declared_type = self._find_type(field)
        kind = kind_of(declared_type)
        problem = self._find_problem(field, source, declared_type, kind)
        if problem is not None:
            raise ConfigError(
                f"{where} {problem}, which is not read; leave the field out of the document to "
                f"read the others"
            )
        _check_paths(source)

        dtype = dtype_of(declared_type, kind)
        is_box = kind == BOUNDING_BOX
        shape = SHAPE_OF_BOX if is_box else shape_of(field)
        depth = depth_of(field)

        if source.table in self.all and source.table not in self.files:
            other_column = self._find_column(self.all[source.table], source.key, where)
            declares_no_shape = not shape and not depth and not source.transforms
            if declares_no_shape:
                # The values of a column of another record set have the shape of that column.
                shape = other_column.field.shape
                depth = other_column.depth
        return RecordColumn(
            identifier=field.uuid,
            source=source,
            value=field.value,
            field=make_stored_field(column_name(field), dtype, shape, depth, is_box=is_box),
            dtype=dtype,
            depth=depth,
            kind=kind,
            where=where,
        )

    def _find_column(self, record_set: RecordSet, identifier: str, where: str) -> RecordColumn:
        """Return the column of a field of another record set.

        Args:
            record_set: the other record set.
            identifier: the identifier of the field.
            where: the field that reads the column, for the message.

        Raises:
            ConfigError: the field has fields inside of it, so it has no values of its own.
        """
        for column in record_set.columns:
            if column.identifier == identifier:
                return column
        raise ConfigError(
            f"{where} reads the field {identifier!r:.80}, which only contains other fields; let it "
            f"read one of these"
        )

    def _find_source_of_field(self, node: Any, field: Any) -> ValueSource:
        """Return where the values of a field are.

        Args:
            node: mlcroissant's record set.
            field: mlcroissant's field.

        Returns:
            A source without table, if all rows have one value.
        """
        source = field.source
        has_values_in_document = field.value is not None or bool(node.data)
        if not source.uuid and not has_values_in_document:
            # Some documents have only the reference. Its values are then those of the field.
            source = field.references
        if not source.uuid:
            return ValueSource()
        return self._find_source(source)

    def _find_source(self, source: Any) -> ValueSource:
        """Return where the values of a source or a reference of mlcroissant are."""
        extract = source.extract
        transforms = tuple(source.transforms)
        owner = self._owners.get(source.uuid)
        if owner is not None and source.uuid not in self.files:
            self._find(owner)
            return ValueSource(owner, source.uuid, transforms)
        if extract.json_path:
            return ValueSource(source.uuid, JSON_PREFIX + extract.json_path, transforms)
        if extract.column:
            return ValueSource(source.uuid, extract.column, transforms)
        file_property = _CONTENT
        if extract.file_property:
            file_property = extract.file_property.name
        return ValueSource(source.uuid, FILE_PREFIX + file_property, transforms)

    def _find_type(self, field: Any) -> Any:
        """Return the type that a field declares.

        Returns:
            A type of Python, or the URL of a type. A field without one has the type of the field to
            which it refers. None if that has none, either.
        """
        seen: set[str] = set()
        while field is not None and field.uuid not in seen:
            seen.add(field.uuid)
            if field.data_types:
                declared_type = field.data_type
                if declared_type is not None:
                    return declared_type
            field = self._fields.get(field.source.uuid or field.references.uuid)
        return None

    def _find_problem(
        self, field: Any, source: ValueSource, declared_type: Any, kind: str
    ) -> str | None:
        """Return why a field cannot be read, such as ``"refers to 'x'"``.

        Args:
            field: mlcroissant's field.
            source: where the values of the field are.
            declared_type: the type that the field declares; None without one.
            kind: the name of that type.

        Returns:
            The predicate of a sentence whose subject is the field; None if the field can be read.
        """
        table = source.table
        if table is not None and table not in self.files and table not in self._nodes:
            return f"refers to {table!r:.80}"
        unread_part = find_unread_part(field, source.transforms)
        if unread_part is not None:
            return unread_part
        if declared_type is None:
            return "has no dataType of Croissant, nor does its source"
        is_whole_file = table in self.files and source.key == FILE_PREFIX + _CONTENT
        if is_whole_file and kind not in (*MEDIA, "bytes"):
            return f"has the type {kind} for a whole file"
        return None


def _check_paths(source: ValueSource) -> None:
    """Check that the paths into JSON of a source can be read.

    Raises:
        ConfigError: a path cannot be read.
    """
    if source.key.startswith(JSON_PREFIX):
        parse_path(source.key.removeprefix(JSON_PREFIX))
    for transform in source.transforms:
        if transform.json_path:
            parse_path(transform.json_path)


def _way_of_reading(key: str) -> str | None:
    """Return the way in which a key reads a file; None if it can be read besides any way."""
    if key.startswith(JSON_PREFIX):
        return _PATH
    if not key.startswith(FILE_PREFIX):
        return _COLUMN
    file_property = key.removeprefix(FILE_PREFIX)
    if file_property in (_CONTENT, _LINES):
        return file_property
    return None
