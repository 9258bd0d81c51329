"""Reads JSON lines as Arrow tables, with types that are inferred from all lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.text_tables.column_errors import check_columns, check_typed_columns
from data_stack.formats.text_tables.json_cells import MISFIT_ERRORS, convert_values, infer_cells
from data_stack.formats.text_tables.json_columns import (
    CellBlock,
    KeyCells,
    PresenceCounts,
    cast_cells,
    make_table,
)
from data_stack.formats.text_tables.json_errors import (
    error_of_half_character,
    error_of_misfit,
    error_of_several_types,
    error_of_two_types,
    has_half_character,
    show_value,
)
from data_stack.formats.text_tables.json_fitting import count_present
from data_stack.formats.text_tables.json_lines import (
    BLOCK_BYTES,
    JsonLines,
    KeyValues,
    ObjectBlock,
    TextBlock,
    WholeText,
    values_by_key,
)
from data_stack.formats.text_tables.json_shapes import join_shapes, shape_of
from data_stack.formats.text_tables.json_types import (
    JSON,
    CellType,
    JsonType,
    is_nested,
    is_null,
    join_types,
)
from data_stack.util.request_limit import check_request

#: What a cell of a column takes.
_CELL_BYTES: Final = 8


@dataclass(frozen=True)
class JsonColumns:
    """The columns of a file of JSON lines.

    Attributes:
        types: the type of each column; a column for each key.
        nullable: the columns whose key is null, or missing, in some line.
        n_rows: the number of lines that are not empty.
    """

    types: dict[str, CellType]
    nullable: frozenset[str]
    n_rows: int


class JsonLinesTable:
    """The lines of a file of JSON objects.

    A column has the type of all of its values: integers, floats, truth values, text, or lists and
    objects of such that have the same types and keys everywhere. Other lists and objects become
    JSON text, so that no key is added and no value changes.

    The text is read in blocks of lines. The objects of a block (:class:`ObjectBlock`) are turned
    into the values of each key (:class:`KeyValues`), and these into cells of Arrow
    (:class:`KeyCells`), by types of their own. When the types of all blocks are known, the cells of
    each block (:class:`CellBlock`) become a table by those types.

    Args:
        text: the file.
        types: types of some keys, instead of inferred ones.
        columns: the keys to read; None for all.
        block_bytes: the size of the text that is parsed at once.
        uses_arrow: whether pyarrow checks blocks of known types, which takes a seventh of the time.

    Attributes:
        text: the file.
        name: the name of the file for messages.
    """

    #: The lines of the file.
    _lines: JsonLines

    #: The keys to read; None for all.
    _wanted_keys: set[str] | None

    #: The keys that occurred, in their order, also those that are not read.
    _known_keys: dict[str, None]

    #: The given types of keys.
    _types: dict[str, CellType]

    #: Whether pyarrow may check blocks. Given types, and keys that are not read, are left to the
    #: exact parser.
    _uses_arrow: bool

    #: The type of Arrow that the lists and objects of a key had so far, see :func:`shape_of`; None
    #: if there is none.
    _shapes: dict[str, pa.DataType | None]

    def __init__(
        self,
        text: WholeText,
        types: Mapping[str, CellType],
        columns: Collection[str] | None = None,
        *,
        block_bytes: int = BLOCK_BYTES,
        uses_arrow: bool = True,
    ) -> None:
        self.text = text
        self.name = text.name
        self._lines = JsonLines(
            text,
            block_bytes=block_bytes,
            keeps_texts_of_floats=any(map(has_digits_of_file, types.values())),
        )
        self._wanted_keys = None
        if columns is not None:
            self._wanted_keys = set(columns)
        self._known_keys = {}
        self._types = dict(types)
        self._uses_arrow = uses_arrow and not types and columns is None
        self._shapes = {}

    def infer(self) -> JsonColumns:
        """Read all lines, and return the columns that they have.

        Raises:
            DatasetFileCorruptError: a line is not a JSON object, or has a key twice; or the values
                of a key are of several types, or do not fit the declared one.
            ConfigError: a declared key does not exist.
            RequestLimitError: a line, or a table of so many different keys, would take more memory
                than a request may.
        """
        counts = PresenceCounts()
        types: dict[str, CellType] = {}
        texts = self._texts_of_other_types(types, counts)
        blocks = counts.watch(self._parse(texts))
        self._join_types(types, blocks)
        for key in types:
            if has_half_character(key):
                raise DatasetFileCorruptError(
                    f"{self.name!r}: the key {key!r:.80} has half of a character (a surrogate "
                    "without the other one), which text lacks; correct the file"
                )
        nullable = frozenset(key for key in types if counts.n_present[key] < counts.n_rows)
        return JsonColumns(types, nullable, counts.n_rows)

    def stream(self) -> tuple[dict[str, CellType], Iterator[pa.Table]]:
        """Return the types of the columns, and an iterator over tables of their rows.

        The file is read once for the types, and again for the rows.

        Raises:
            DatasetFileCorruptError: as for :meth:`infer`. The iterator raises it if the file has
                changed since its types were read.
            ConfigError, RequestLimitError: as for :meth:`infer`.
        """
        types = self.infer().types
        return types, self._iterate_tables(types, self.text.sha256)

    def _iterate_tables(
        self, types: Mapping[str, CellType], sha256: str | None
    ) -> Iterator[pa.Table]:
        for block in self._parse(self._lines.read_blocks()):
            yield make_table(block, types)
        self.text.check_unchanged(sha256)

    def _parse(self, texts: Iterable[TextBlock]) -> Iterator[CellBlock]:
        """Parse blocks of lines, as cells of the keys to read."""
        keys: set[str] = set()
        for text in texts:
            block = self._lines.parse(text)
            if not block.rows:
                continue
            wanted_values = self._choose_wanted(values_by_key(block.rows))

            # Each line has a cell for each key of all lines; a block is in memory at a time.
            keys.update(wanted_values)
            n_rows = len(block.rows)
            check_request(
                n_rows * len(keys) * _CELL_BYTES,
                f"{n_rows:,} lines of {self.name!r} as a table of {len(keys):,} different keys",
            )

            columns = {}
            for key, key_values in wanted_values.items():
                columns[key] = self._cells_of(block, key, key_values)
            yield CellBlock(n_rows, columns)

    def _choose_wanted(self, key_values: dict[str, KeyValues]) -> dict[str, KeyValues]:
        """Return the values of the keys to read, and note which keys occurred."""
        self._known_keys.update(dict.fromkeys(key_values))
        if self._wanted_keys is None:
            return key_values
        return {key: values for key, values in key_values.items() if key in self._wanted_keys}

    def _texts_of_other_types(
        self, types: Mapping[str, CellType], counts: PresenceCounts
    ) -> Iterator[TextBlock]:
        """Yield the blocks whose values may not be of the types of those before, and count others.

        Args:
            types: the types of all keys so far, to which the caller adds those of each block.
            counts: counts the rows of the blocks that are not yielded.
        """
        for text in self._lines.read_blocks():
            n_present = None
            if self._uses_arrow and types:
                n_present = count_present(text.data, types, self._shapes)
            if n_present is None:
                yield text
                continue
            n_lines = text.data.count(b"\n")
            if not text.data.endswith(b"\n"):
                n_lines += 1
            counts.add(n_lines, n_present)

    # ------------------------------------------------------------------ types

    def _cells_of(self, block: ObjectBlock, key: str, key_values: KeyValues) -> KeyCells:
        """Return the values of a key as cells of their type.

        Raises:
            DatasetFileCorruptError: they have no common type, or do not fit the given one.
        """
        values = key_values.values
        given_type = self._types.get(key)
        type_: CellType
        try:
            if given_type is None:
                cells, type_ = infer_cells(values, has_truth=block.has_truth)
            else:
                cells = convert_values(values, given_type)
                type_ = given_type
        except MemoryError:
            raise
        except MISFIT_ERRORS as error:
            lines = key_values.lines(block)
            if isinstance(error, UnicodeEncodeError):
                raise error_of_half_character(self.name, key, values, lines) from error
            if given_type is None:
                raise error_of_several_types(self.name, key, values, lines, error) from error
            raise error_of_misfit(self.name, key, values, lines, given_type) from error
        if is_null(type_) or is_nested(type_):
            shape = type_
            if isinstance(type_, JsonType):
                shape = shape_of(values)
            self._shapes[key] = join_shapes(self._shapes.get(key, pa.null()), shape)

        first = _first_present(values)
        positions = None
        row_of_first = first
        if key_values.positions is not None:
            positions = np.array(key_values.positions, np.int64)
            row_of_first = key_values.positions[first]
        return KeyCells(
            cells, type_, positions, block.lines[row_of_first], show_value(values[first])
        )

    def _join_types(self, types: dict[str, CellType], blocks: Iterable[CellBlock]) -> None:
        """Find the type of each column over all blocks. The file is read again if some differ.

        Args:
            types: the types of the columns, to which those of each block are added.
            blocks: the blocks whose types may not be those of the blocks before.
        """
        examples: dict[str, KeyCells] = {}
        doubtful_keys: set[str] = set()
        for block in blocks:
            for key, cells in block.columns.items():
                if key not in types:
                    types[key] = cells.type
                    examples[key] = cells
                    continue
                if types[key] == cells.type:
                    continue
                joined_type = join_types(types[key], cells.type)
                if joined_type is None:
                    raise error_of_two_types(self.name, key, examples[key], cells)
                if is_null(types[key]):
                    # The blocks before have no value that could be an example of the type.
                    examples[key] = cells
                elif not is_null(cells.type):
                    # The joined type may lack a value: float64 does not hold every integer.
                    doubtful_keys.add(key)
                types[key] = joined_type
        check_columns(self.name, self._wanted_keys, list(self._known_keys))
        check_typed_columns(self.name, self._types, list(self._known_keys))
        if doubtful_keys:
            self._check_joined_types(types, examples, doubtful_keys)

    def _check_joined_types(
        self,
        types: dict[str, CellType],
        examples: Mapping[str, KeyCells],
        keys: set[str],
    ) -> None:
        """Check that the joined types of some keys hold all values.

        A type of lists or objects that does not hold all values is replaced by JSON, which does.

        Args:
            types: the joined types of all keys, which are changed.
            examples: cells of each key that have its first type.
            keys: the keys to check.

        Raises:
            DatasetFileCorruptError: the type of other values does not hold all of them.
        """
        # A block that pyarrow reads by the joined types needs no other check.
        texts = self._texts_of_other_types(types, PresenceCounts())
        for block in self._parse(texts):
            for key in keys.intersection(block.columns):
                cells = block.columns[key]
                try:
                    cast_cells(cells, types[key])
                except MISFIT_ERRORS:
                    if not is_nested(types[key]):
                        raise error_of_two_types(self.name, key, examples[key], cells) from None
                    types[key] = JSON


def has_digits_of_file(type_: CellType) -> bool:
    """Return whether numbers of a column have the digits of the file, as text and decimals do."""
    if isinstance(type_, JsonType):
        return False
    return bool(pa.types.is_string(type_) or pa.types.is_decimal(type_))


def _first_present(values: Sequence[Any]) -> int:
    """Return the index of the first value that is not None; 0 if all are None."""
    for index, value in enumerate(values):
        if value is not None:
            return index
    return 0
