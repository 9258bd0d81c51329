"""Filters and histograms of a table, computed in steps so that a page never waits for all samples."""

from __future__ import annotations

import bisect
import itertools
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.browse.table import BrowsedColumn, Table, Values, number_of, plain
from data_stack.exception import ConfigError
from data_stack.show.markup import readable
from data_stack.util.untrusted_text import parse_json
from data_stack.values.missing import missing_in
from data_stack.values.stacked_values import objects

_MAX_BARS: Final = 200
_N_RANGES: Final = 30
#: The format that numpy parses; other texts, such as "now" or times with a time zone, match no value.
_TIME: Final = re.compile(
    r"-?\d{4,5}(-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d{1,9})?)?)?Z?)?)?)?", re.ASCII
)

Mask = npt.NDArray[np.bool_]
_NOTHING: Final = np.zeros(0, dtype=bool)


@dataclass(frozen=True)
class Condition:
    """A condition on rows, with exactly one test.

    Attributes:
        column: number of the column; None: any column that can be filtered.
        values: the value is one of these texts; None for a missing value.
        low: lower bound of a number or time, as text; inclusive.
        high: upper bound, as text; exclusive unless ``closed``.
        closed: whether ``high`` is inclusive.
        contains: the value contains this text, in any case; a number must equal it.
    """

    column: int | None = None
    values: tuple[str | None, ...] | None = None
    low: str | None = None
    high: str | None = None
    closed: bool = False
    contains: str | None = None

    def is_valid(self, table: Table) -> bool:
        """Whether the fields are of the right types, and the column exists."""
        given: Any = self.values  # from JSON
        values = given if isinstance(given, tuple) else () if given is None else (0,)
        is_range = self.low is not None or self.high is not None
        has_one_test = (self.values is not None) + is_range + (self.contains is not None) == 1
        has_texts = all(
            text is None or isinstance(text, str)
            for text in (*values, self.low, self.high, self.contains)
        )
        is_search = self.column is None and self.contains is not None
        has_column = is_search or (
            type(self.column) is int and self.column in table.plain_columns()
        )
        return (
            has_one_test
            and has_texts
            and has_column
            and len(values) <= _MAX_BARS
            and isinstance(self.closed, bool)
        )

    def columns(self, table: Table) -> list[int]:
        """The numbers of the columns to read."""
        return table.plain_columns() if self.column is None else [self.column]

    def mask(self, table: Table, read: Mapping[int, Values]) -> Mask:
        """Which rows fulfil the condition."""
        masks = [self._mask(table.columns[number], read[number]) for number in self.columns(table)]
        return np.logical_or.reduce(masks) if masks else _NOTHING

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
    """Parse conditions from JSON such as ``[{"column": 1, "values": ["7"]}, {"contains": "cat"}]``.

    Raises:
        ConfigError: the text is invalid, or a column does not exist.
    """
    try:
        given = parse_json(text) if text else []
        found = tuple(
            Condition(
                **{**each, "values": tuple(each["values"])}
                if isinstance(each.get("values"), list)
                else each
            )
            for each in given
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"a filter must be a JSON list of conditions, got {text!r:.120}"
        ) from error
    if len(found) > 32 or not all(each.is_valid(table) for each in found):
        raise ConfigError(f"invalid conditions: {text!r:.120}")
    return found


def _containing(column: BrowsedColumn, values: Values, text: str) -> Mask:
    if values.dtype == object:
        return np.array(
            [value is not None and text in value.casefold() for value in values], dtype=bool
        )
    named = [number for number, name in enumerate(column.class_names) if text in name.casefold()]
    if named and values.dtype.kind in "iu":
        return np.isin(values, named)
    return (
        np.asarray(values == number_of(text))
        if values.dtype.kind in "biuf"
        else np.zeros(len(values), dtype=bool)
    )


def _one_of(values: Values, wanted: Sequence[str | None]) -> Mask:
    if values.dtype == object:
        chosen = set(wanted)
        return np.array([value in chosen for value in values], dtype=bool)
    found = np.isin(
        values, np.array([_as_value(values.dtype, text) for text in wanted if text is not None])
    )
    return found | missing_in(values) if None in wanted else found


def _as_value(dtype: np.dtype[Any], text: str) -> Any:
    """The number or time of a text; NaN or NaT for other texts."""
    if dtype.kind != "M":
        number = number_of(text)
        return (
            np.float64(number) if dtype.kind == "f" else number
        )  # numpy would round a Python float to the dtype of the column
    try:
        return np.datetime64(text.removesuffix("Z") if _TIME.fullmatch(text) else "NaT", "us")
    except ValueError:  # month 13
        return np.datetime64("NaT")


class Search:
    """Finds the rows that fulfil conditions, block by block on demand; takes one bit per row.

    Args:
        table: the rows.
        conditions: a row must fulfil all of them.
    """

    def __init__(self, table: Table, conditions: Sequence[Condition]) -> None:
        self._table, self._conditions = table, conditions
        self._columns = sorted(
            {number for condition in conditions for number in condition.columns(table)}
        )
        self._blocks = table.blocks() if conditions else iter(())
        self._found: list[tuple[int, int, bytes]] = []  # start, length, packed bits
        self._ends = [0]
        self._lock = threading.Lock()
        self.n_scanned = 0 if conditions else table.n_samples

    @property
    def n_found(self) -> int:
        """Rows found so far."""
        return self._ends[-1] if self._conditions else self._table.n_samples

    @property
    def is_complete(self) -> bool:
        """Whether all rows were searched."""
        return self.n_scanned == self._table.n_samples

    def advance(self, seconds: float, wanted: int | None = None) -> None:
        """Search at least one more block, for about ``seconds`` or until ``wanted`` rows are found."""
        deadline = time.perf_counter() + seconds
        with self._lock:
            for start, stop in self._blocks:
                read = self._table.read(self._columns, start, stop)
                mask = np.logical_and.reduce(
                    [condition.mask(self._table, read) for condition in self._conditions]
                )
                self._found.append((start, stop - start, np.packbits(mask).tobytes()))
                self._ends.append(self._ends[-1] + int(np.count_nonzero(mask)))
                self.n_scanned = stop
                if time.perf_counter() > deadline or (
                    wanted is not None and self.n_found >= wanted
                ):
                    break

    def positions(self, start: int, count: int) -> list[int]:
        """The positions of up to ``count`` found rows, from the ``start``-th on."""
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


# ---------------------------------------------------------------------- histograms


def histograms(
    table: Table, columns: Sequence[int], conditions: Sequence[Condition], seconds: float
) -> dict[str, Any]:
    """Bars of some columns as plain JSON data, for all rows, and for rows that fulfil the conditions on other columns.

    Reads for about ``seconds`` into the table's cache, so that another call continues. Each bar has the condition that selects
    its rows.
    """
    tested = {number for condition in conditions for number in condition.columns(table)}
    wanted = sorted({*columns, *tested})
    pieces, masks, n_read = (
        defaultdict[int, list[Values]](list),
        defaultdict[int, list[Mask]](list),
        0,
    )
    for n_rows, read in _read_sampled(table, wanted, seconds):
        n_read += n_rows
        fulfilled = [(condition.column, condition.mask(table, read)) for condition in conditions]
        for number in (each for each in columns if each in read):
            others = [mask for column, mask in fulfilled if column is None or column != number]
            masks[number].append(np.logical_and.reduce([np.ones(n_rows, dtype=bool), *others]))
            pieces[number].append(read[number])
            if not table.is_small and number not in tested and _are_distinct(read[number]):
                wanted.remove(number)  # texts are the slowest to read, and these will have no bars
    bars = {
        number: _histogram(
            table.columns[number],
            number,
            _join(pieces[number]),
            [np.concatenate([_NOTHING, *masks[number]])],
        )
        for number in columns
    }
    return {"columns": bars, "n_read": n_read, "is_complete": n_read == table.n_sampled}


def compare(tables: Sequence[Table], name: str, seconds: float) -> dict[str, Any]:
    """Bars of the column ``name`` over all tables, with the number of rows of each table; see :func:`histograms`."""
    plain_columns = [
        (place, number)
        for place, table in enumerate(tables)
        for number in reversed(table.plain_columns())
    ]
    known = {
        place: number
        for place, number in plain_columns
        if tables[place].columns[number].name == name
    }
    if not known:
        raise ConfigError(f"no split has a column {name!r:.60} of plain values")
    pieces, lengths = list[Values](), [0] * len(tables)
    for place, number in known.items():
        for n_rows, read in _read_sampled(tables[place], [number], seconds / len(tables)):
            pieces.append(read[number])
            lengths[place] += n_rows
    owners = np.repeat(np.arange(len(tables)), lengths)
    place, number = next(iter(known.items()))
    groups = [owners == each for each in range(len(tables))]
    found = _histogram(tables[place].columns[number], number, _join(pieces), groups)
    is_complete = all(lengths[each] == tables[each].n_sampled for each in known)
    return {**found, "name": name, "n_read": lengths, "is_complete": is_complete}


def _read_sampled(
    table: Table, wanted: list[int], seconds: float
) -> Iterator[tuple[int, dict[int, Values]]]:
    """Row counts and values of representative blocks: at least one, and as many as can be read in time."""
    deadline = time.perf_counter() + seconds
    for start, stop in table.sampled_blocks():
        yield stop - start, table.read(wanted, start, stop)
        if time.perf_counter() > deadline:
            break


def _join(pieces: Sequence[Values]) -> Values:
    """Join the blocks of one column, whose dtypes may differ."""
    if len({piece.dtype for piece in pieces}) < 2:
        return np.concatenate(pieces) if pieces else np.zeros(0)
    return plain(
        objects(
            [
                None if missing else value
                for piece in pieces
                for value, missing in zip(piece, missing_in(piece), strict=True)
            ]
        )
    )


def _histogram(
    column: BrowsedColumn, number: int, values: Values, groups: Sequence[Mask]
) -> dict[str, Any]:
    """Bars of values or ranges, each with the number of all rows and of the rows of each group."""
    missing = missing_in(values)
    present, chosen = values[~missing], [group[~missing] for group in groups]
    distinct, inverse = _number_values(present)
    facts = {
        "kind": "values",
        "n_distinct": len(distinct),
        "n_missing": int(np.count_nonzero(missing)),
    }
    is_text = values.dtype == object
    if _are_distinct(present):
        return {**facts, "kind": "texts", "bars": []}
    if is_text or column.class_names or len(distinct) <= _N_RANGES:
        totals, counts = _count(inverse, len(distinct), chosen)
        order = np.argsort(-totals, kind="stable")[:_MAX_BARS]
        bars = [
            _bar(
                _label(column, distinct[each]),
                totals[each],
                counts[:, each],
                column=number,
                values=[_exact(distinct[each])],
            )
            for each in (order if is_text else np.sort(order)).tolist()
        ]
    else:
        facts["kind"], bars = "ranges", _ranges(number, present, chosen)
    if facts["n_missing"]:
        of_groups = [np.count_nonzero(group & missing) for group in groups]
        bars.append(_bar("missing", facts["n_missing"], of_groups, column=number, values=[None]))
    return {**facts, "bars": bars}


def _are_distinct(values: Values) -> bool:
    """Whether the values are texts of which nearly every one is different."""
    return values.dtype == object and len(set(values.tolist())) > max(_N_RANGES, len(values) // 2)


def _number_values(values: Values) -> tuple[Values, npt.NDArray[np.intp]]:
    """The distinct values, and the index of each value among them."""
    if values.dtype != object:
        return np.unique(values, return_inverse=True)
    numbers: dict[str, int] = {}
    inverse = np.array(
        [numbers.setdefault(value, len(numbers)) for value in values.tolist()], dtype=np.intp
    )
    return np.array([*numbers, None], dtype=object)[:-1], inverse


def _count(places: npt.NDArray[np.intp], n_places: int, groups: Sequence[Mask]) -> tuple[Any, Any]:
    counts = [np.bincount(places[group], minlength=n_places) for group in groups]
    return np.bincount(places, minlength=n_places), np.array(counts)


def _bar(label: str, total: Any, counts: Any, **where: Any) -> dict[str, Any]:
    return {
        "label": label,
        "count": int(total),
        "counts": [int(each) for each in counts],
        "where": where,
    }


def _ranges(number: int, values: Values, groups: Sequence[Mask]) -> list[dict[str, Any]]:
    """Bars of ranges of equal width up to the largest value; infinities count in the outermost ranges."""
    numbers = values.astype(np.int64) if values.dtype.kind == "M" else values
    finite, share = numbers[np.isfinite(numbers)], np.arange(_N_RANGES + 1) / _N_RANGES
    edges = finite.min() * (1 - share) + finite.max() * share
    if numbers.dtype.kind in "iu":
        edges = np.unique(np.clip(np.ceil(edges), finite.min(), finite.max()).astype(numbers.dtype))
    n_ranges = len(edges) - 1
    places = np.clip(np.searchsorted(edges[:-1], numbers, side="right") - 1, 0, n_ranges - 1)
    totals, counts = _count(places, n_ranges, groups)
    bars = []
    for each, (start, stop) in enumerate(itertools.pairwise(edges.astype(values.dtype))):
        where = {"low": _exact(start)} if each else {}
        where |= {"high": _exact(stop)} if each < n_ranges - 1 else {}
        bars.append(
            _bar(
                f"{_short(start)} – {_short(stop)}",
                totals[each],
                counts[:, each],
                column=number,
                **where,
            )
        )
    return bars


def _label(column: BrowsedColumn, value: Any) -> str:
    is_named = isinstance(value, np.integer) and 0 <= value < len(column.class_names)
    return column.class_names[int(value)] if is_named else _short(value)


def _exact(value: Any) -> str:
    """A value as the text in a condition."""
    return repr(float(value)) if isinstance(value, (float, np.floating)) else str(value)


def _short(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.4g}"
    is_time = isinstance(value, np.datetime64)
    return readable(
        str(value)[:19].replace("T", " ").removesuffix(" 00:00:00") if is_time else value
    )
