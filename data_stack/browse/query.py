"""Filters and histograms of a table; both go on where they stopped, so that a page never waits for all samples."""

from __future__ import annotations

import bisect
import itertools
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.browse.table import BrowsedColumn, Table, Values, number_of, plain
from data_stack.exception import ConfigError
from data_stack.show.markup import readable
from data_stack.util.untrusted_text import parse_json
from data_stack.values.stacked_values import missing_in, objects

_MOST_CONDITIONS: Final = 32
_MOST_BARS: Final = 200
_N_RANGES: Final = 30
_NEAR, _FAR = 64, 1 << 12
_LATEST: Final = np.iinfo(np.int64).max
#: As numpy reads it; other texts, such as "now" or one with a time zone, are no times of a column.
_TIME: Final = re.compile(r"-?\d{4,5}(-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d{1,9})?)?)?Z?)?)?)?", re.ASCII)
_NARROW_UNITS: Final = ("ns", "ps", "fs", "as")  # which hold few centuries or less
_FIELDS: Final = frozenset(("column", "values", "low", "high", "closed", "contains"))

Mask = npt.NDArray[np.bool_]
_NOTHING: Final = np.zeros(0, dtype=bool)


@dataclass(frozen=True)
class Condition:
    """What rows must fulfil; exactly one of the tests is given.

    Attributes:
        column: its number; None for any column that can be filtered.
        values: one of these texts, None for a missing value.
        low: the least number or time, as its text.
        high: the number or time that is too large, as its text; with ``closed`` it is included.
        closed: see ``high``.
        contains: text that occurs, in upper or lower case; in a column of numbers, the number itself.
    """

    column: int | None = None
    values: tuple[str | None, ...] | None = None
    low: str | None = None
    high: str | None = None
    closed: bool = False
    contains: str | None = None

    def columns(self, table: Table) -> list[int]:
        """The numbers of the columns to read."""
        return table.plain_columns() if self.column is None else [self.column]

    def mask(self, table: Table, read: Mapping[int, Values]) -> Mask:
        """Which rows fulfil it."""
        masks = [self._mask(table.columns[number], read[number]) for number in self.columns(table)]
        return np.logical_or.reduce(masks) if masks else np.zeros(0, dtype=bool)

    def _mask(self, column: BrowsedColumn, values: Values) -> Mask:
        if self.contains is not None:
            return _containing(column, values, self.contains.casefold())
        if self.values is not None:
            return _one_of(values, self.values)
        if values.dtype == object:
            return np.zeros(len(values), dtype=bool)
        with np.errstate(invalid="ignore"):
            mask = ~missing_in(values)
            if self.low is not None:
                mask &= values >= _as_value(values.dtype, self.low)
            if self.high is not None:
                high = _as_value(values.dtype, self.high)
                mask &= values <= high if self.closed else values < high
        return np.asarray(mask)


def parse_conditions(text: str, table: Table) -> tuple[Condition, ...]:
    """Conditions as a page sends them: JSON such as ``[{"column": 1, "values": ["7"]}, {"contains": "cat"}]``.

    Raises:
        ConfigError: it is something else, or there is no such column.
    """
    try:
        given = parse_json(text) if text else []
    except ValueError as error:
        raise ConfigError(f"a filter is JSON, not {text!r:.80}") from error
    if not isinstance(given, list) or len(given) > _MOST_CONDITIONS:
        raise ConfigError(f"a filter is a list of at most {_MOST_CONDITIONS} conditions, not {text!r:.80}")
    return tuple(_parse_condition(each, table) for each in given)


def _parse_condition(given: Any, table: Table) -> Condition:
    fields: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
    column, values = fields.get("column"), fields.get("values", [])
    is_column = type(column) is int and column in table.plain_columns() and len(fields) > 1
    is_search = fields.keys() == {"contains"} and fields["contains"] is not None
    has_texts = isinstance(values, list) and all(
        text is None or isinstance(text, str) for text in (*values, *map(fields.get, ("low", "high", "contains")))
    )
    has_fields = fields.keys() <= _FIELDS and isinstance(fields.get("closed", True), bool)
    is_range = fields.get("low") is not None or fields.get("high") is not None
    n_tests = ("values" in fields) + is_range + (fields.get("contains") is not None)
    if not (is_column or is_search) or not has_texts or not has_fields or n_tests != 1 or len(values) > _MOST_BARS:
        raise ConfigError(f"there is no such condition: {given!r:.120}")
    return Condition(**(fields | {"values": tuple(values)} if "values" in fields else fields))


def _containing(column: BrowsedColumn, values: Values, text: str) -> Mask:
    if values.dtype == object:
        found = [value is not None and text in value.casefold() for value in values]
        return np.array(found, dtype=bool)
    if column.class_names and values.dtype.kind in "iu":
        named = [number for number, name in enumerate(column.class_names) if text in name.casefold()]
        if named:
            return np.isin(values, named)
    number = number_of(text)
    return np.asarray(values == number) if values.dtype.kind in "biuf" else np.zeros(len(values), dtype=bool)


def _one_of(values: Values, wanted: Sequence[str | None]) -> Mask:
    if values.dtype == object:
        chosen = set(wanted)
        return np.array([value in chosen for value in values], dtype=bool)
    found = np.isin(values, np.array([_as_value(values.dtype, text) for text in wanted if text is not None]))
    return found | missing_in(values) if None in wanted else found


def _as_value(dtype: np.dtype[Any], text: str) -> Any:
    """The number or time of a text; NaN or NaT, which equal nothing, for other texts."""
    if dtype.kind == "M":
        return _as_time(dtype, text)
    number = number_of(text)
    if dtype.kind == "m":
        return dtype.type("NaT") if np.isnan(number) else np.int64(min(max(number, -_LATEST), _LATEST)).astype(dtype)
    return np.float64(number) if dtype.kind == "f" else number  # a Python float would be rounded to the column's dtype


def _as_time(dtype: np.dtype[Any], text: str) -> Any:
    """The time of a text; the first or last one that ``dtype`` holds, if the text lies beyond: numpy would compare what wraps."""
    try:
        time = np.datetime64(text.removesuffix("Z") if _TIME.fullmatch(text) else "NaT")
    except ValueError:  # month 13
        return dtype.type("NaT")
    if np.datetime_data(dtype)[0] in _NARROW_UNITS:
        first, last = np.array([-_LATEST, _LATEST]).astype(dtype)
        seconds = time.astype("M8[s]")
        return first if seconds < first.astype("M8[s]") else last if seconds > last.astype("M8[s]") else time
    return time


class Search:
    """The rows that fulfil some conditions, found block by block as far as they are wanted; takes one bit a row.

    Args:
        table: the rows.
        conditions: all of which must be fulfilled.
    """

    def __init__(self, table: Table, conditions: Sequence[Condition]) -> None:
        self._table, self._conditions = table, conditions
        self._columns = sorted({number for condition in conditions for number in condition.columns(table)})
        self._blocks = table.blocks() if conditions else iter(())
        self._found: list[tuple[int, int, bytes]] = []  # start, length, packed bits
        self._ends = [0]
        self._lock = threading.Lock()
        self.n_scanned = 0 if conditions else table.n_samples

    @property
    def n_found(self) -> int:
        """How many rows were found so far."""
        return self._ends[-1] if self._conditions else self._table.n_samples

    @property
    def is_complete(self) -> bool:
        """Whether all rows were looked at."""
        return self.n_scanned == self._table.n_samples

    def advance(self, seconds: float, wanted: int | None = None) -> None:
        """Look at more rows for about ``seconds``, or until ``wanted`` are found; at least at one block."""
        deadline = time.perf_counter() + seconds
        with self._lock:
            for start, stop in self._blocks:
                read = self._table.read(self._columns, start, stop)
                mask = np.logical_and.reduce([condition.mask(self._table, read) for condition in self._conditions])
                self._found.append((start, stop - start, np.packbits(mask).tobytes()))
                self._ends.append(self._ends[-1] + int(np.count_nonzero(mask)))
                self.n_scanned = stop
                if time.perf_counter() > deadline or (wanted is not None and self.n_found >= wanted):
                    break

    def positions(self, start: int, count: int) -> list[int]:
        """The positions of the rows found from the ``start``-th on; fewer than ``count`` where no more were found."""
        if not self._conditions:
            return list(range(min(start, self.n_found), min(start + count, self.n_found)))
        found: list[int] = []
        for number in range(bisect.bisect_right(self._ends, start) - 1, len(self._found)):
            if len(found) >= count or number < 0:
                break
            first, length, bits = self._found[number]
            rows = np.flatnonzero(np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=length))
            found += (first + rows[max(0, start - self._ends[number]) :]).tolist()
        return found[:count]


def find_alike(table: Table, column: int, position: int, count: int, seconds: float) -> list[int]:
    """Up to ``count`` positions before and behind ``position``, the nearest ones with the same value, in order."""
    own = table.read([column], position, position + 1)[column].tolist()[0]

    def look(edge: int, step: int) -> list[int]:
        deadline, size, found = time.perf_counter() + seconds / 2, _NEAR, list[int]()
        while len(found) < count and 0 <= edge < table.n_samples and time.perf_counter() < deadline:
            start, stop = (edge, min(edge + size, table.n_samples)) if step > 0 else (max(0, edge + 1 - size), edge + 1)
            values = table.read([column], start, stop)[column].tolist()
            found += [start + row for row, value in enumerate(values) if value == own][::step]
            size, edge = min(2 * size, _FAR), stop if step > 0 else start - 1
        return found[:count]

    return [*reversed(look(position - 1, -1)), *look(position + 1, 1)]


# ---------------------------------------------------------------------- histograms


def histograms(table: Table, columns: Sequence[int], conditions: Sequence[Condition], seconds: float) -> dict[str, Any]:
    """Bars of some columns as plain JSON data: of all rows, and of those that fulfil the conditions on other columns.

    Reads for about ``seconds``; what was read stays in the table's cache, so that another call goes on. Each bar has the
    condition that chooses its rows.
    """
    tested = {number for condition in conditions for number in condition.columns(table)}
    wanted = sorted({*columns, *tested})
    pieces: dict[int, list[Values]] = {number: [] for number in columns}
    masks: dict[int, list[Mask]] = {number: [] for number in columns}
    n_read = 0
    for n_rows, read in _read_sampled(table, wanted, seconds):
        n_read += n_rows
        fulfilled = [(condition.column, condition.mask(table, read)) for condition in conditions]
        for number in (each for each in columns if each in read):
            others = [mask for column, mask in fulfilled if column is None or column != number]
            masks[number].append(np.logical_and.reduce([np.ones(n_rows, dtype=bool), *others]))
            pieces[number].append(read[number])
            if not table.is_small and number not in tested and _are_distinct(read[number]):
                wanted.remove(number)  # texts take longest to read, and will not make bars
    values = {number: _join(pieces[number]) for number in columns}
    bars = {
        number: _histogram(table.columns[number], number, values[number], [np.concatenate([_NOTHING, *masks[number]])])
        for number in columns
    }
    if n_read == table.n_samples:
        for number, other in _equal_columns(values, table.class_column):
            bars[number]["same_as"] = other
    return {"columns": bars, "n_read": n_read, "is_complete": n_read == table.n_sampled}


def _equal_columns(values: Mapping[int, Values], first: int | None) -> Iterator[tuple[int, int]]:
    """Columns and an earlier one with the same values, ``first`` being the earliest."""
    seen: dict[Any, list[int]] = {}
    for number in sorted(values, key=lambda number: (number != first, number)):
        column = values[number]
        key: Any = tuple(column) if column.dtype == object else column.tobytes()
        if column.dtype.kind in "biuf":  # of any dtype
            key = column.astype(np.float64).tobytes()
        others = seen.setdefault(hash(key), [])
        equal = next((other for other in others if _is_equal(column, values[other])), None)
        if equal is not None and len(column):
            yield number, equal
        others.append(number)


def _is_equal(one: Values, other: Values) -> bool:
    """Whether two columns have the same values, missing ones too."""
    missing = missing_in(one)
    return np.array_equal(missing, missing_in(other)) and bool((one[~missing] == other[~missing]).all())


def compare(tables: Sequence[Table], name: str, seconds: float) -> dict[str, Any]:
    """Bars of the column ``name`` over the rows of all tables, with how many rows of each table; see :func:`histograms`."""
    numbers = [next((each for each in table.plain_columns() if table.columns[each].name == name), None) for table in tables]
    known = [
        (place, table, number) for place, (table, number) in enumerate(zip(tables, numbers, strict=True)) if number is not None
    ]
    if not known:
        raise ConfigError(f"no split has a column {name!r:.60} that can be compared")
    pieces, lengths = list[Values](), [0] * len(tables)
    for place, table, number in known:
        for n_rows, read in _read_sampled(table, [number], seconds / len(tables)):
            pieces.append(read[number])
            lengths[place] += n_rows
    owners = np.repeat(np.arange(len(tables)), lengths)
    _, table, number = known[0]
    found = _histogram(table.columns[number], number, _join(pieces), [owners == place for place in range(len(tables))])
    is_complete = all(lengths[place] == table.n_sampled for place, table, _ in known)
    return {**found, "name": name, "n_read": lengths, "is_complete": is_complete}


def _read_sampled(table: Table, wanted: list[int], seconds: float) -> Iterator[tuple[int, dict[int, Values]]]:
    """Row counts and values of blocks that stand for all rows; of at least one, and then as many as can be read in time."""
    deadline = time.perf_counter() + seconds
    for start, stop in table.sampled_blocks():
        yield stop - start, table.read(wanted, start, stop)
        if time.perf_counter() > deadline:
            break


def _join(pieces: Sequence[Values]) -> Values:
    """Blocks of one column, of which each has a dtype by its own values."""
    if len({piece.dtype for piece in pieces}) < 2:
        return np.concatenate(pieces) if pieces else np.zeros(0)
    return plain(
        objects([None if missing else value for piece in pieces for value, missing in zip(piece, missing_in(piece), strict=True)])
    )


def _histogram(column: BrowsedColumn, number: int, values: Values, groups: Sequence[Mask]) -> dict[str, Any]:
    """Bars of values or ranges, each with how many rows there are, and how many of each group."""
    missing = missing_in(values)
    present, chosen = values[~missing], [group[~missing] for group in groups]
    distinct, inverse = _number_values(present)
    facts = {"kind": "values", "n_distinct": len(distinct), "n_missing": int(np.count_nonzero(missing))}
    is_text = values.dtype == object
    if _are_distinct(present):
        return {**facts, "kind": "texts", "bars": []}
    if is_text or column.class_names or len(distinct) <= _N_RANGES:
        totals, counts = _count(inverse, len(distinct), chosen)
        order = np.argsort(-totals, kind="stable")[:_MOST_BARS]
        bars = [
            _bar(_label(column, distinct[each]), totals[each], counts[:, each], column=number, values=[_exact(distinct[each])])
            for each in (order if is_text else np.sort(order)).tolist()
        ]
    else:
        facts["kind"], bars = "ranges", _ranges(number, present, chosen)
    if facts["n_missing"]:
        of_groups = [np.count_nonzero(group & missing) for group in groups]
        bars.append(_bar("missing", facts["n_missing"], of_groups, column=number, values=[None]))
    return {**facts, "bars": bars}


def _are_distinct(values: Values) -> bool:
    """Whether nearly every value is a text of its own."""
    return values.dtype == object and len(set(values.tolist())) > max(_N_RANGES, len(values) // 2)


def _number_values(values: Values) -> tuple[Values, npt.NDArray[np.intp]]:
    """The distinct values, and which of them each value is."""
    if values.dtype != object:
        return np.unique(values, return_inverse=True)
    numbers: dict[str, int] = {}
    inverse = np.array([numbers.setdefault(value, len(numbers)) for value in values.tolist()], dtype=np.intp)
    return np.array([*numbers, None], dtype=object)[:-1], inverse


def _count(places: npt.NDArray[np.intp], n_places: int, groups: Sequence[Mask]) -> tuple[Any, Any]:
    counts = [np.bincount(places[group], minlength=n_places) for group in groups]
    return np.bincount(places, minlength=n_places), np.array(counts)


def _bar(label: str, total: Any, counts: Any, **where: Any) -> dict[str, Any]:
    return {"label": label, "count": int(total), "counts": [int(each) for each in counts], "where": where}


def _ranges(number: int, values: Values, groups: Sequence[Mask]) -> list[dict[str, Any]]:
    """Bars of equally wide ranges, the last one up to the largest value; infinities fall into the outermost ones."""
    dtype = values.dtype
    numbers = values.astype(np.int64) if dtype.kind in "Mm" else values
    finite = numbers[np.isfinite(numbers)]
    low, high = finite.min().item(), finite.max().item()
    is_whole = dtype.kind in "iuMm" or (max(abs(low), abs(high)) < 1 << 53 and bool((finite == np.floor(finite)).all()))
    if is_whole:
        low, high = int(low), int(high)
        step = -(-(high - low + 1) // _N_RANGES)
    else:
        step = high / _N_RANGES - low / _N_RANGES
    n_ranges = int(-(-(high - low + 1) // step)) if is_whole else _N_RANGES
    edges = [*(low + step * each for each in range(n_ranges)), high]
    places = np.clip(np.searchsorted(np.array(edges[:-1]), numbers, side="right") - 1, 0, n_ranges - 1)
    totals, counts = _count(places, n_ranges, groups)
    values_at = [np.int64(min(edge, _LATEST)).astype(dtype) if dtype.kind in "Mm" else edge for edge in edges]
    bars = []
    for each, (start, stop) in enumerate(itertools.pairwise(values_at)):
        where = {"low": _exact(start)} if each else {}
        where |= {"high": _exact(stop)} if each < n_ranges - 1 else {}
        bars.append(_bar(f"{_short(start)} – {_short(stop)}", totals[each], counts[:, each], column=number, **where))
    return bars


def _label(column: BrowsedColumn, value: Any) -> str:
    is_named = isinstance(value, np.integer) and 0 <= value < len(column.class_names)
    return column.class_names[int(value)] if is_named else _short(value)


def _exact(value: Any) -> str:
    """A value as the text that a condition has for it."""
    if isinstance(value, np.timedelta64):
        return str(value.astype(np.int64))
    return repr(float(value)) if isinstance(value, (float, np.floating)) else str(value)


def _short(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.4g}"
    is_time = isinstance(value, np.datetime64)
    return readable(str(value)[:19].replace("T", " ").removesuffix(" 00:00:00") if is_time else value)
