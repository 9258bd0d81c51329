"""Reads JSON lines as Arrow tables, with types that are inferred from all lines."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.plain_data import shorten
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.inference import infer_schema
from data_stack.formats.text_tables.column_errors import check_columns, check_typed_columns
from data_stack.formats.text_tables.exact_numbers import narrow_floats
from data_stack.formats.text_tables.text_file import PIECE_BYTES, TextFile
from data_stack.util.request_limit import check_request
from data_stack.util.untrusted_text import distinct_fields, json_parser
from data_stack.values.text_numbers import float_of

#: Lines are parsed in blocks of this size; their Python objects may take 30 times as much memory.
BLOCK_BYTES: Final = 4 << 20
#: What the Python object of a JSON value takes at most, apart from the characters of text: an empty dict in a list.
_VALUE_BYTES: Final = 100
#: What a cell of a column takes.
_CELL_BYTES: Final = 8
#: Digits become 0, signs +, and E e: what is left of a number are its parts.
_PARTS: Final = bytes.maketrans(b"123456789-E", b"000000000+e")
#: A number without one of these is neither rounded to infinity nor to 0.
_EXTREMES: Final = (b"e000", b"e+000", b"0" * 100)
_UNREADABLE: Final = (pa.ArrowException, TypeError, ValueError, LookupError, OverflowError)
_MAX_UINT64: Final = (1 << 64) - 1


@dataclass(frozen=True)
class JsonType:
    """The type of a column whose cells are JSON text, and whose values are what the text says; ``"json"`` in ``dtypes=``."""

    def __str__(self) -> str:
        return "json"


JSON: Final = JsonType()
CellType: TypeAlias = "pa.DataType | JsonType"


@dataclass(frozen=True)
class JsonLines:
    """Lines as a table.

    Attributes:
        table: a column for each key; null where a line lacks it.
        json_columns: the columns whose cells are JSON text.
    """

    table: pa.Table
    json_columns: frozenset[str]


class _Number(float):
    """A float that knows the text that it was read from."""

    text: str

    @classmethod
    def parse(cls, text: str) -> _Number:
        number = cls(_exact_float(text))
        number.text = text
        return number


def _exact_float(text: str) -> float:
    """A float; ValueError if float64 lacks it."""
    number = float_of(text)
    if number is None:
        raise ValueError(f"float64 has no number {text:.60}")
    return number


@dataclass(frozen=True)
class _Block:
    """The objects of some lines.

    Attributes:
        rows: the objects.
        lines: the number of the line of each, from 1.
        has_truth: whether ``true`` or ``false`` occurs.
    """

    rows: list[dict[str, Any]]
    lines: list[int]
    has_truth: bool


@dataclass(frozen=True)
class _Cells:
    """The values of a key in a block.

    Attributes:
        cells: the values that are there.
        type: their type.
        positions: their rows; None if each row has one.
        line: the line of the first one that is not null.
        example: that value, shortened.
    """

    cells: pa.Array
    type: CellType
    positions: npt.NDArray[np.int64] | None
    line: int
    example: str


@dataclass(frozen=True)
class _Part:
    """A block as columns."""

    n_rows: int
    columns: dict[str, _Cells]


class JsonLinesTable:
    """The lines of a file of JSON objects.

    A column has the type of all of its values: integers, floats, truth values, text, or lists and objects of such that have the
    same types and keys everywhere. Other lists and objects become JSON text, so that no key is added and no value changes.

    Args:
        text: the file.
        types: types of some keys, instead of inferred ones.
        columns: the keys to read; None for all.
        block_bytes: how much is parsed at once.

    Attributes:
        name: name of the file for messages.
    """

    def __init__(
        self,
        text: TextFile,
        types: Mapping[str, CellType],
        columns: Collection[str] | None = None,
        *,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.text = text
        self._wanted = None if columns is None else set(columns)
        #: The keys that were there, also those that are not read.
        self._known: dict[str, None] = {}
        self._block_bytes = block_bytes
        self.name = text.name
        self._types = dict(types)
        # a number of a column of text or decimals has the digits of the file
        self._needs_texts = any(
            isinstance(type_, pa.DataType)
            and (pa.types.is_string(type_) or pa.types.is_decimal(type_))
            for type_ in types.values()
        )

    def read(self) -> JsonLines:
        """All lines.

        Raises:
            DatasetFileCorruptError: a line is not a JSON object, or has a key twice; or the values of a key are of several types,
                or do not fit the declared one.
            ConfigError: a declared key does not exist.
            RequestLimitError: a line, or a table of so many different keys, would take more memory than a request may.
        """
        parts = list(self._parts())
        types = self._join_types(parts, lambda: iter(parts))
        tables = [_table_of(part, types) for part in parts]
        json_columns = frozenset(key for key, type_ in types.items() if isinstance(type_, JsonType))
        return JsonLines(pa.concat_tables(tables) if tables else pa.table({}), json_columns)

    def stream(self) -> tuple[dict[str, CellType], Iterator[pa.Table]]:
        """The types of the columns, for which the file is read first, and its lines in tables, for which it is read again.

        Raises:
            As :meth:`read`; the iterator also DatasetFileCorruptError if the file has changed meanwhile.
        """
        types = self._join_types(self._parts(), self._parts)
        sha256 = self.text.sha256

        def tables() -> Iterator[pa.Table]:
            for part in self._parts():
                yield _table_of(part, types)
            if self.text.sha256 != sha256:
                raise DatasetFileCorruptError(
                    f"{self.name!r} has changed while it was read; read it again"
                )

        return types, tables()

    # ------------------------------------------------------------------ lines

    def _blocks(self) -> Iterator[_Block]:
        number = 0
        pieces = self.text.pieces(min(self._block_bytes, PIECE_BYTES))
        for text in _whole_lines(pieces, self._block_bytes, self.name):
            n_values = sum(map(text.count, (b",", b"[", b"{")))
            what = f"the lines from {number + 1} on of {self.name!r}"
            check_request(len(text) + _VALUE_BYTES * n_values, what)
            parse_float = None
            if _may_have_extremes(text):
                parse_float = _exact_float
            if self._needs_texts:
                parse_float = _Number.parse
            parse = json_parser(object_pairs_hook=distinct_fields, parse_float=parse_float)
            rows = []
            lines = []
            for line in text.split(b"\n"):
                number += 1
                if line.strip():
                    rows.append(self._parse_line(line, number, parse))
                    lines.append(number)
            if not text.endswith(b"\n"):
                number += 1
            number -= 1
            if rows:
                yield _Block(rows, lines, b"true" in text or b"false" in text)

    def _parse_line(self, line: bytes, number: int, parse: Callable[[str], Any]) -> dict[str, Any]:
        try:
            row = parse(str(line, "utf-8"))
        except (ValueError, RecursionError) as error:
            why = "a number has thousands of digits" if "digits" in str(error) else str(error)
            raise DatasetFileCorruptError(
                f"{self.name!r}, line {number}: invalid JSON: {why:.200}"
            ) from error
        if not isinstance(row, dict):
            raise DatasetFileCorruptError(
                f"{self.name!r}, line {number}: expected an object {{…}}, got {line[:80]!r}"
            )
        return row

    def _parts(self) -> Iterator[_Part]:
        n_rows = 0
        keys: set[str] = set()
        for block in self._blocks():
            values = _values_by_key(block.rows)
            self._known.update(dict.fromkeys(values))
            if self._wanted is not None:
                values = {key: values[key] for key in values if key in self._wanted}
            n_rows += len(block.rows)
            keys.update(values)
            what = f"{self.name!r} as a table of {n_rows:,} lines and {len(keys):,} different keys"
            check_request(n_rows * len(keys) * _CELL_BYTES, what)
            columns = {
                key: self._cells_of(block, key, positions, values_of_key)
                for key, (positions, values_of_key) in values.items()
            }
            yield _Part(len(block.rows), columns)

    # ------------------------------------------------------------------ types

    def _cells_of(
        self, block: _Block, key: str, positions: list[int] | None, values: list[Any]
    ) -> _Cells:
        declared = self._types.get(key)
        try:
            cells, type_ = (
                _infer(values, block.has_truth)
                if declared is None
                else (_convert(values, declared), declared)
            )
        except MemoryError:
            raise
        except _UNREADABLE as error:
            lines = block.lines
            if positions is not None:
                lines = [block.lines[position] for position in positions]
            if declared is None:
                raise self._several_types(key, values, lines, error) from error
            raise self._misfit(key, values, lines, declared) from error
        rows = None if positions is None else np.array(positions, np.int64)
        # None fits any type, so it is no example of one
        first = next((number for number, value in enumerate(values) if value is not None), 0)
        line = block.lines[first if positions is None else positions[first]]
        return _Cells(cells, type_, rows, line, _shown(values[first]))

    def _join_types(
        self, parts: Any, parts_again: Callable[[], Iterator[_Part]]
    ) -> dict[str, CellType]:
        """The type of each column over all blocks; the blocks are read again where theirs differ."""
        types: dict[str, CellType] = {}
        firsts: dict[str, _Cells] = {}
        doubtful: set[str] = set()
        for part in parts:
            for key, cells in part.columns.items():
                if key not in types:
                    types[key] = cells.type
                    firsts[key] = cells
                    continue
                if types[key] == cells.type:
                    continue
                joined = join_types(types[key], cells.type)
                if joined is None:
                    raise self._unlike(key, firsts[key], cells)
                if _is_null(types[key]):
                    firsts[key] = cells
                elif not _is_null(cells.type):
                    doubtful.add(key)
                types[key] = joined
        check_columns(self.name, self._wanted, list(self._known))
        check_typed_columns(self.name, self._types, list(self._known))
        # an integer may be none of float64
        for part in parts_again() if doubtful else ():
            for key in doubtful.intersection(part.columns):
                cells = part.columns[key]
                try:
                    _cast(cells, types[key])
                except _UNREADABLE:
                    if not _is_nested(types[key]):
                        raise self._unlike(key, firsts[key], cells) from None
                    types[key] = JSON
        return types

    # ------------------------------------------------------------------ errors

    def _several_types(
        self, key: str, values: Sequence[Any], lines: Sequence[int], error: Exception
    ) -> Exception:
        present = [
            (value, line) for value, line in zip(values, lines, strict=True) if value is not None
        ]
        first, first_line = present[0]
        for value, line in present:
            if _kind(value) != _kind(first):
                return self._error_of_types(
                    key,
                    f"line {first_line} has {_shown(first)}, line {line} {_shown(value)}",
                )
        integers = [(value, line) for value, line in present if isinstance(value, int)]
        too_large = [(value, line) for value, line in integers if not -(2**63) <= value < 2**63]
        if too_large and all(0 <= value <= _MAX_UINT64 for value, _ in integers):
            return DatasetFileCorruptError(
                f"{self.name!r}, line {too_large[0][1]}, key {key!r:.80}: int64 has no number {_shown(too_large[0][0])}; "
                f"pass dtypes={{{key!r:.80}: 'uint64'}}"
            )
        why = str(error)
        if too_large:
            why = f"line {too_large[0][1]} has a number that int64 and float64 lack"
        return self._error_of_types(key, why)

    def _unlike(self, key: str, first: _Cells, second: _Cells) -> Exception:
        return self._error_of_types(
            key, f"line {first.line} has {first.example}, line {second.line} {second.example}"
        )

    def _error_of_types(self, key: str, why: str) -> Exception:
        return DatasetFileCorruptError(
            f"{self.name!r}, key {key!r:.80}: its values are not of one type: {why:.300}; pass dtypes={{{key!r:.80}: str}} "
            f"to read them as text, or dtypes={{{key!r:.80}: 'json'}} to keep them as they are"
        )

    def _misfit(
        self, key: str, values: Sequence[Any], lines: Sequence[int], type_: CellType
    ) -> Exception:
        for value, line in zip(values, lines, strict=True):
            try:
                _convert([value], type_)
            except _UNREADABLE as error:
                return DatasetFileCorruptError(
                    f"{self.name!r}, line {line}, key {key!r:.80}: {_shown(value)} does not fit {type_}: {error!s:.200}; "
                    f"pass another dtype, or dtypes={{{key!r:.80}: 'json'}} to keep the values as they are"
                )
        return DatasetFileCorruptError(
            f"{self.name!r}, key {key!r:.80}: its values do not fit {type_}; pass another dtype"
        )


def _shown(value: Any) -> str:
    return f"{shorten(value):.60}"


def _whole_lines(pieces: Iterator[bytes], block_bytes: int, name: str) -> Iterator[bytes]:
    """The text in blocks that end with a line."""
    held: list[bytes] = []
    n_held = 0
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end and n_held + end >= block_bytes:
            yield b"".join([*held, piece[:end]])
            held = []
            n_held = 0
            piece = piece[end:]
        held.append(piece)
        n_held += len(piece)
        # each byte of a line takes at least one of memory
        check_request(n_held, f"a line of {name!r}")
    if n_held:
        yield b"".join(held)


def _values_by_key(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[list[int] | None, list[Any]]]:
    """For each key the positions of the rows that have it, None for all rows, and their values."""
    keys = rows[0].keys()
    if all(row.keys() == keys for row in rows):
        return {key: (None, [row[key] for row in rows]) for key in keys}
    positions: dict[str, list[int]] = {}
    values: dict[str, list[Any]] = {}
    for position, row in enumerate(rows):
        for key, value in row.items():
            if key not in values:
                positions[key] = []
                values[key] = []
            positions[key].append(position)
            values[key].append(value)
    return {
        key: (None if len(values[key]) == len(rows) else positions[key], values[key])
        for key in values
    }


# ---------------------------------------------------------------------- types of values


def _kind(value: Any) -> str:
    """The kind of a value; values of one kind may share a type."""
    return _kind_of_type(type(value))


def _kind_of_type(type_: type) -> str:
    if type_ is bool:
        return "truth"
    if issubclass(type_, (int, float)):
        return "number"
    return "text" if type_ is str else "nested"


def _may_have_extremes(text: bytes) -> bool:
    """Whether numbers may be rounded to infinity or 0. (A regular expression takes a third of the time of reading.)"""
    parts = text.translate(_PARTS)
    return any(extreme in parts for extreme in _EXTREMES)


def _infer(values: list[Any], has_truth: bool) -> tuple[pa.Array, CellType]:
    """Values as cells of the type that holds all of them, which is JSON for lists and objects that differ.

    Raises:
        ValueError, OverflowError or an error of pyarrow: no type does.
    """
    kinds = {_kind_of_type(type_) for type_ in set(map(type, values)) - {type(None)}}
    if len(kinds) > 1:
        raise ValueError("several types")
    if kinds != {"nested"}:
        cells = pa.array(values)
        return cells, cells.type
    try:
        if _have_same_keys(values) and not (has_truth and _mix_truth(values)):
            cells = pa.array(values)
            if _is_supported(cells.type):
                return cells, cells.type
    except MemoryError:
        raise
    except _UNREADABLE:
        pass
    return _convert(values, JSON), JSON


def _have_same_keys(values: Sequence[Any]) -> bool:
    """Whether all objects among values of JSON, and at each place within them, have the same keys.

    (A struct of Arrow has all keys of all objects, with nulls: with a key of its own for each row, it takes quadratic memory.)
    """
    objects = [value for value in values if isinstance(value, dict)]
    if objects:
        keys = objects[0].keys()
        if any(value.keys() != keys for value in objects):
            return False
        if not all(_have_same_keys([value[key] for value in objects]) for key in keys):
            return False
    members: list[Any] = []
    for value in values:
        if isinstance(value, list) and _first_is_nested(value):
            members += value
    return not members or _have_same_keys(members)


def _first_is_nested(values: list[Any]) -> bool:
    """Whether a list holds lists or objects; others beside them are no type of Arrow."""
    first = next((value for value in values if value is not None), None)
    return isinstance(first, (dict, list))


def _mix_truth(values: Sequence[Any]) -> bool:
    """Whether truth values stand beside numbers at some place, which pyarrow makes numbers."""
    kinds = {type(value) for value in values}
    if bool in kinds and not kinds <= {bool, type(None)}:
        return True
    if dict in kinds:
        objects = [value for value in values if isinstance(value, dict)]
        if any(_mix_truth([value[key] for value in objects]) for key in objects[0]):
            return True
    if list in kinds:
        return _mix_truth(
            [member for value in values if isinstance(value, list) for member in value]
        )
    return False


@functools.lru_cache(maxsize=1000)
def _is_supported(type_: pa.DataType) -> bool:
    """Whether values of a type can be read again."""
    try:
        infer_schema(pa.schema([pa.field("value", type_)]))
    except ConfigError:
        return False
    return True


def _convert(values: list[Any], type_: CellType) -> pa.Array:
    """Values of JSON as cells of a declared type, without changing one.

    Raises:
        ValueError, TypeError, OverflowError or an error of pyarrow: a value does not fit.
    """
    if isinstance(type_, JsonType):
        return pa.array([None if value is None else _dump(value) for value in values], pa.string())
    types = pa.types
    if types.is_string(type_):
        return pa.array([_text_of(value) for value in values], type_)
    if types.is_temporal(type_) and not types.is_duration(type_):
        if not all(value is None or isinstance(value, str) for value in values):
            raise ValueError("a number has no unit of time; read int64, and convert it")
        return pa.array(values, pa.string()).cast(type_)
    if types.is_integer(type_) or types.is_duration(type_):  # of which it counts the units
        return pa.array([_integer_of(value) for value in values], type_)
    if types.is_floating(type_):
        if any(isinstance(value, bool) for value in values):
            raise ValueError("a truth value is no number")
        doubles = pa.array(values, pa.float64())
        floats = doubles if types.is_float64(type_) else narrow_floats(doubles, type_)
        if floats is None:
            raise ValueError(f"{type_} lacks a number")
        return floats
    if types.is_decimal(type_):
        return pa.array([_decimal_of(value) for value in values], type_)
    return pa.array(values, type_)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text_of(value: Any) -> str | None:
    """A value as text: text as it is, a number with the digits of the file, others as JSON."""
    if value is None or isinstance(value, str):
        return value
    return value.text if isinstance(value, _Number) else _dump(value)


def _integer_of(value: Any) -> int | None:
    if isinstance(value, bool) or (isinstance(value, float) and value != int(value)):
        raise ValueError("it is no integer")
    return int(value) if isinstance(value, float) else value


def _decimal_of(value: Any) -> Decimal | None:
    if value is None:
        return None
    if isinstance(value, (bool, dict, list)):
        raise TypeError("it is no number")
    return Decimal(value.text if isinstance(value, _Number) else value)


def _is_null(type_: CellType) -> bool:
    return isinstance(type_, pa.DataType) and bool(pa.types.is_null(type_))


def _is_nested(type_: CellType) -> bool:
    return isinstance(type_, JsonType) or bool(pa.types.is_nested(type_))


def join_types(first: CellType, second: CellType) -> CellType | None:
    """The type of columns whose blocks are of two types; None if there is none."""
    if _is_null(first):
        return second
    if _is_null(second):
        return first
    if not isinstance(first, JsonType) and not isinstance(second, JsonType):
        joined = _join_arrow(first, second)
        if joined is not None:
            return joined
    return JSON if _is_nested(first) and _is_nested(second) else None


def _join_arrow(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if {first, second} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(first) and pa.types.is_list(second):
        inner = _join_arrow(first.value_type, second.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        names = [field.name for field in first]
        if set(names) != {field.name for field in second}:
            return None
        joined = {
            name: _join_arrow(first.field(name).type, second.field(name).type) for name in names
        }
        return None if None in joined.values() else pa.struct(list(joined.items()))
    return None


# ---------------------------------------------------------------------- columns


def _table_of(part: _Part, types: Mapping[str, CellType]) -> pa.Table:
    """A block as a table with all columns."""
    columns = {}
    for key, type_ in types.items():
        cells = part.columns.get(key)
        if cells is None:
            columns[key] = pa.nulls(part.n_rows, _stored(type_))
        else:
            columns[key] = _spread(_cast(cells, type_), cells.positions, part.n_rows)
    return pa.table(columns)


def arrow_schema(types: Mapping[str, CellType]) -> pa.Schema:
    """The types of the cells of columns: those of JSON are text."""
    return pa.schema([(key, _stored(type_)) for key, type_ in types.items()])


def _stored(type_: CellType) -> pa.DataType:
    return pa.string() if isinstance(type_, JsonType) else type_


def _cast(cells: _Cells, type_: CellType) -> pa.Array:
    """Cells of a block by the type of all blocks.

    Raises:
        An error of pyarrow: an integer is none of float64.
    """
    if cells.type == type_:
        return cells.cells
    if _is_null(cells.type):
        return pa.nulls(len(cells.cells), _stored(type_))
    values = cells.cells.to_pylist()
    return _convert(values, JSON) if isinstance(type_, JsonType) else pa.array(values, type_)


def _spread(cells: pa.Array, positions: npt.NDArray[np.int64] | None, n_rows: int) -> pa.Array:
    """Cells at their rows, with nulls between them."""
    if positions is None:
        return cells
    places = np.full(n_rows, -1, np.int64)
    places[positions] = np.arange(len(positions))
    return cells.take(pa.array(places, mask=places < 0))
