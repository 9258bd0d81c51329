"""Expressions of pyarrow.compute as predicates: pyarrow says which rows, and what we understand of them spares reading."""

from __future__ import annotations

import hashlib
import operator
import pickle
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
import pyarrow.compute
import pyarrow.dataset

from data_stack.codecs.plain_data import shown
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting.errors import PredicateError
from data_stack.formats.parquet.selecting.expressions import Expression, col
from data_stack.formats.parquet.selecting.predicate import (
    ANY_TRUTH,
    ColumnStatistics,
    Predicate,
    Truth,
    Truths,
    column_of,
    negated,
)

__all__ = ["ArrowPredicate"]

# A pickle of an expression is an Arrow file without rows of interest: the expression stands in the schema's metadata as a list of
# keys and values ("call", "field_ref", "literal", "options", "end"), literals and options are values of its only row.
# https://github.com/apache/arrow/blob/main/cpp/src/arrow/compute/expression.cc, `Serialize`.
_TOKEN = re.compile(r"(call|field_ref|nested_field_ref|literal|options|end): '(.*)'")
_METADATA = "-- schema metadata --"

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_MATCH, _SKIP = 0, 1  # how is_in treats nulls
_MOST_EXACT = 1 << 24  # up to there all integers are floats of 32 bits


class ArrowPredicate(Predicate):
    """An expression of ``pyarrow.compute``, evaluated by pyarrow.

    Args:
        expression: gives bools; null is neither true nor false.
        fields: the columns it needs; None to find them. Of a nested field, the outermost one.

    Raises:
        ConfigError: it is no expression, or its fields cannot be found out.
    """

    def __init__(self, expression: Any, fields: Sequence[str] | None = None) -> None:
        if not isinstance(expression, pyarrow.compute.Expression):
            raise ConfigError(f"no expression of pyarrow.compute: {shown(expression)}")
        self._expression = expression
        self._tree = _tree_of(expression)
        if fields is None:
            if self._tree is None:
                raise ConfigError(f"give ArrowPredicate fields=[…]: which {shown(expression)} needs cannot be found out")
            fields = sorted(_fields_in(self._tree))
        self._fields = tuple(sorted(set(fields)))
        if not self._fields:
            raise ConfigError(f"{shown(expression)} needs no field, so it says the same of all rows")

    def __getstate__(self) -> dict[str, Any]:
        return {"expression": self._expression, "fields": self._fields}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["expression"], state["fields"])  # type: ignore[misc]  # the tree is made again

    @property
    def fields(self) -> tuple[str, ...]:
        return self._fields

    def truths(self, columns: Mapping[str, npt.NDArray[Any]]) -> Truths:
        arrays = {name: _arrow_array(name, np.asarray(column_of(columns, name))) for name in self._fields}
        found = self._evaluated(arrays)
        if not pyarrow.types.is_boolean(found.type):
            raise PredicateError(f"{shown(self._expression)} gives values of type {found.type}, not bools")
        true = found.fill_null(False).to_numpy(zero_copy_only=False)
        return Truths(true, ~found.fill_null(True).to_numpy(zero_copy_only=False))

    def _evaluated(self, arrays: Mapping[str, Any]) -> Any:
        nothing = [name for name, array in arrays.items() if pyarrow.types.is_null(array.type)]
        problem: Exception | None = None
        # Where a batch happens to have nothing but nulls of a column, its type is not known here, but functions ask for one.
        for kind in _TYPES_OF_NULLS if nothing else _TYPES_OF_NULLS[:1]:
            cast = {name: array.cast(kind) if name in nothing else array for name, array in arrays.items()}
            try:
                table = pyarrow.dataset.dataset(pyarrow.table(cast))
                found = table.to_table(columns={"found": self._expression}, use_threads=False)["found"]
                return found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)
            except (pyarrow.ArrowException, ValueError, TypeError) as error:
                problem = problem or error
        raise PredicateError(f"pyarrow cannot evaluate {shown(self._expression)} with {list(arrays)}: {problem}") from problem

    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        if self._tree is None or not _compare_exactly(self._tree, statistics):
            return ANY_TRUTH
        return _possible(self._tree, statistics)

    def content(self) -> Any:
        tree = hashlib.sha256(pickle.dumps(self._expression)).hexdigest() if self._tree is None else _plain_tree(self._tree)
        return {"arrow": [list(self._fields), tree]}

    def __repr__(self) -> str:
        return f"ArrowPredicate({self._expression})"


_TYPES_OF_NULLS = (pyarrow.null(), pyarrow.string(), pyarrow.float64(), pyarrow.bool_(), pyarrow.timestamp("us"))


def _arrow_array(name: str, column: npt.NDArray[Any]) -> Any:
    try:
        return pyarrow.array(list(column) if column.ndim > 1 else column)
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        raise PredicateError(f"column {name!r} has values that pyarrow's expressions cannot be applied to: {error}") from error


# ---------------------------------------------------------------------- the tree of an expression

_Tree = tuple[Any, ...]
"""``("call", name, [trees], options or None)``, ``("field", name)``, ``("nested", outermost name)`` or ``("literal", value)``."""


class _Unreadable(Exception):  # never leaves this module
    pass


def _tree_of(expression: Any) -> _Tree | None:
    """What an expression consists of; None if this version of pyarrow keeps it in another form."""
    try:
        buffer = expression.__reduce__()[1][0]
        with pyarrow.ipc.open_file(buffer) as file:
            text = file.schema.to_string(truncate_metadata=False)
            row = file.get_batch(0) if file.num_record_batches else None
        lines = text[text.index(_METADATA) + len(_METADATA) :].strip().split("\n")
        matches = [_TOKEN.fullmatch(line) for line in lines]
        tokens = [(match.group(1), match.group(2)) for match in matches if match is not None]
        if len(tokens) != len(lines):
            return None
        remaining = deque(tokens)
        tree = _next_tree(remaining, row)
        return None if remaining else tree
    except (pyarrow.ArrowException, _Unreadable, LookupError, ValueError, TypeError, AttributeError):
        return None


def _next_tree(tokens: deque[tuple[str, str]], row: Any) -> _Tree:
    """Takes the next tree off the tokens."""
    key, value = tokens.popleft()
    if key == "field_ref":
        return ("field", value)
    if key == "nested_field_ref":
        names = [tokens.popleft()[1] for _ in range(int(value))]
        return ("nested", names[0])
    if key == "literal":
        return ("literal", row.column(int(value))[0])
    if key != "call":
        raise _Unreadable(key)
    arguments: list[_Tree] = []
    options = None
    while tokens[0][0] != "end":
        if tokens[0][0] == "options":
            options = row.column(int(tokens.popleft()[1]))[0]
        else:
            arguments.append(_next_tree(tokens, row))
    if tokens.popleft()[1] != value:
        raise _Unreadable(value)
    return ("call", value, arguments, options)


def _fields_in(tree: _Tree) -> set[str]:
    if tree[0] == "call":
        return {name for argument in tree[2] for name in _fields_in(argument)}
    return {tree[1]} if tree[0] in ("field", "nested") else set()


def _plain_tree(tree: _Tree | None) -> Any:
    if tree is None:
        return None
    if tree[0] == "call":
        return ["call", tree[1], [_plain_tree(argument) for argument in tree[2]], None if tree[3] is None else str(tree[3])]
    return [tree[0], tree[1] if tree[0] != "literal" else [str(tree[1].type), str(tree[1])]]


# ---------------------------------------------------------------------- what statistics tell


def _literal(tree: _Tree) -> Any:
    """The value of a literal; raises where it has none in Python."""
    if tree[0] != "literal":
        raise _Unreadable(tree[0])
    try:
        return tree[1].as_py()
    except (pyarrow.ArrowException, ValueError, ImportError) as error:  # nanoseconds without pandas
        raise _Unreadable(str(error)) from error


def _possible(tree: _Tree, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
    try:
        return _known(tree, statistics)
    except (_Unreadable, ConfigError):
        return ANY_TRUTH


def _known(tree: _Tree, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
    if tree[0] == "field":
        return col(tree[1]).as_predicate().possible_truths(statistics)
    if tree[0] != "call":
        raise _Unreadable(tree[0])
    _, name, arguments, options = tree
    if name in ("and_kleene", "or_kleene"):
        one, other = (_possible(argument, statistics) for argument in arguments)
        return frozenset(_kleene(name, a, b) for a in one for b in other)
    if name == "invert":
        return negated(_possible(arguments[0], statistics))
    if name in _OPERATORS:
        return _known_comparison(name, arguments, statistics)
    if name in ("is_null", "is_valid", "is_in") and arguments[0][0] == "field":
        return _known_test(name, col(arguments[0][1]), {} if options is None else options.as_py(), statistics)
    raise _Unreadable(name)


def _kleene(name: str, one: Truth, other: Truth) -> Truth:
    decisive = name == "or_kleene"
    if one is decisive or other is decisive:
        return decisive
    return None if one is None or other is None else not decisive


def _known_comparison(name: str, arguments: Sequence[_Tree], statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
    left, right = arguments
    if left[0] == "literal":
        left, right, name = right, left, _MIRRORED.get(name, name)
    if left[0] != "field":
        raise _Unreadable(left[0])
    value: Any = col(right[1]) if right[0] == "field" else _literal(right)
    if value is None:
        return frozenset((None,))
    predicate: Predicate = _OPERATORS[name](col(left[1]), value)
    return predicate.possible_truths(statistics)


def _known_test(name: str, column: Expression, options: Any, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
    if name == "is_valid":
        return column.is_not_null().possible_truths(statistics)
    if name == "is_null":
        if options.get("nan_is_null") is not False:
            raise _Unreadable(name)
        return column.is_null().possible_truths(statistics)
    values, nulls = options["value_set"], options.get("null_matching_behavior")
    if None in values or nulls not in (_MATCH, _SKIP):
        raise _Unreadable(name)
    return frozenset(bool(truth) for truth in column.isin(values).possible_truths(statistics))  # null is not in it: false


def _compare_exactly(tree: _Tree, statistics: Mapping[str, ColumnStatistics]) -> bool:
    """Whether pyarrow compares the numbers as exactly as we do: it casts the sides to one type, which may round them."""
    values = [*_values_in(tree)]
    for name in _fields_in(tree):
        known = statistics.get(name)
        values += [] if known is None else [known.minimum, known.maximum]
    numbers = [number for value in values if (number := _number(value)) is not None]
    types = set(map(type, numbers))
    if len(types) < 2:
        return True
    return types == {int, float} and all(abs(number) <= _MOST_EXACT for number in numbers)


def _number(value: Any) -> Any:
    """A number as one of Python's, a bool as it is; None for anything else."""
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        value = value.item()
    return value if isinstance(value, (bool, int, float, Decimal)) else None


def _values_in(tree: _Tree) -> Iterator[Any]:
    if tree[0] == "literal":
        try:
            yield _literal(tree)
        except _Unreadable:
            return
    if tree[0] == "call":
        if tree[1] == "is_in" and tree[3] is not None:
            yield from tree[3].as_py().get("value_set", [])
        for argument in tree[2]:
            yield from _values_in(argument)
