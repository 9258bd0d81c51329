"""Petastorm's predicates, which select the same rows as there (https://github.com/uber/petastorm, ``petastorm/predicates.py``).

Unlike comparisons, they are true or false of every row: null is a value as any other to them, so that ``in_negate(p)`` selects
exactly the rows that ``p`` does not.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import shown
from data_stack.dataset.recipes.functions import shown as shown_function
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting.errors import PredicateError
from data_stack.formats.parquet.selecting.expressions import function_content, values_for_functions
from data_stack.formats.parquet.selecting.membership import Membership
from data_stack.formats.parquet.selecting.predicate import ColumnStatistics, Predicate, Truth, Truths, column_of
from data_stack.formats.parquet.selecting.ranges import range_of
from data_stack.formats.parquet.selecting.values import Bools, Values, objects, typed

__all__ = [
    "PetastormPredicate",
    "in_intersection",
    "in_lambda",
    "in_negate",
    "in_pseudorandom_split",
    "in_reduce",
    "in_set",
]

_N_BUCKETS = 2**63 - 1  # sys.maxsize of the machines that Petastorm runs on

_ALL = (all, np.all, np.logical_and.reduce)
_ANY = (any, np.any, np.logical_or.reduce)


class _TrueOrFalse(Predicate):
    """Knows an answer for every row."""

    def truths(self, columns: Mapping[str, npt.NDArray[Any]]) -> Truths:
        answers = self._answers(columns)
        return Truths(answers, ~answers)

    @abstractmethod
    def _answers(self, columns: Mapping[str, npt.NDArray[Any]]) -> Bools:
        """Shape (n,)."""

    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        """All, unless every field has one value only, as partitions have: then what it says of that.

        Of statistics in Python's own types only bools, ints and texts are used so: a function could be given a float32 or a
        date of the column in another form than the statistics have.
        """
        columns = {}
        for name in self.fields:
            known = statistics.get(name)
            if known is None or known.n_nulls != 0 or known.n_rows < 1 or not _is_one_sure_value(known):
                return frozenset((True, False))
            is_of_numpy = isinstance(known.minimum, np.generic)
            columns[name] = np.array([known.minimum]) if is_of_numpy else objects([known.minimum])
        try:
            return frozenset(self._answers(columns).tolist())
        except PredicateError:  # it is raised again when the rows are looked at, with their place
            return frozenset((True, False))


def _is_one_sure_value(known: ColumnStatistics) -> bool:
    """Whether all rows have one value, and that is known in the very form in which it stands in the column."""
    if type(known.minimum) is not type(known.maximum) or known.minimum != known.maximum:
        return False
    if isinstance(known.minimum, (str, np.generic)):
        return known.is_exact
    return type(known.minimum) in (bool, int)


def _checked_field(name: Any, what: str) -> str:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{what} takes the name of a field, got {shown(name)}")
    return name


class in_set(_TrueOrFalse):  # noqa: N801  # Petastorm's spelling
    """Whether a field's value is one of several; null if None is among them.

    Args:
        inclusion_values: hashable values, compared as Python does: 1 and 1.0 are the same, "1" is another.
        predicate_field: the field.
    """

    def __init__(self, inclusion_values: Iterable[Any], predicate_field: str) -> None:
        self._members = Membership(inclusion_values, "in_set")
        self._field = _checked_field(predicate_field, "in_set")

    @property
    def fields(self) -> tuple[str, ...]:
        return (self._field,)

    def _answers(self, columns: Mapping[str, npt.NDArray[Any]]) -> Bools:
        try:
            values = typed(column_of(columns, self._field))
            return _filled(self._members.contains(values), values.nulls, self._members.has_null)
        except PredicateError as error:
            raise PredicateError(f"in {self!r}: {error.reason}", error.row) from error

    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        known = range_of(self._field, statistics)
        truths: set[Truth] = {self._members.has_null} if known.may_be_null else set()
        if known.may_be_value:
            if self._members.may_contain(known):
                truths.add(True)
            if not self._members.must_contain(known):
                truths.add(False)
        return frozenset(truths)

    def content(self) -> Any:
        return {"in_set": [self._members.content(), self._field]}

    def __repr__(self) -> str:
        return f"in_set({self._members!r}, {self._field!r})"


def _filled(answers: Bools, nulls: Bools | None, of_nulls: bool) -> Bools:
    return answers if nulls is None else np.where(nulls, of_nulls, answers)


class in_intersection(_TrueOrFalse):  # noqa: N801
    """Whether at least one value of a list or array is one of several. A row without a list is not selected.

    Args:
        inclusion_values: hashable values, compared as for :class:`in_set`.
        _predicate_field: the field; its values are lists or arrays of any shape. A text is taken as one value.
    """

    def __init__(self, inclusion_values: Iterable[Any], _predicate_field: str) -> None:
        self._members = Membership(inclusion_values, "in_intersection")
        self._field = _checked_field(_predicate_field, "in_intersection")

    @property
    def fields(self) -> tuple[str, ...]:
        return (self._field,)

    def _answers(self, columns: Mapping[str, npt.NDArray[Any]]) -> Bools:
        column = np.asarray(column_of(columns, self._field))
        if column.ndim > 1:
            n_each = math.prod(column.shape[1:])
            return np.asarray(self._are_members(column.reshape(-1)).reshape(len(column), n_each).any(axis=1), dtype=bool)
        if column.dtype.kind not in "OUS":
            raise PredicateError(f"in {self!r}: the field has values of dtype {column.dtype}, not lists or arrays; use in_set", 0)
        lists = [_listed(value) for value in column.tolist()]
        wrong = next((row for row, found in enumerate(lists) if found is None), None)
        if wrong is not None:
            raise PredicateError(f"in {self!r}: {shown(column[wrong])} is no list or array; use in_set", wrong)
        lengths = [0 if found is None else len(found) for found in lists]
        arrays = [np.asarray(found).reshape(-1) for found in lists if isinstance(found, np.ndarray)]
        if len(arrays) == len(lists) and len({array.dtype for array in arrays}) == 1:
            flat = np.concatenate(arrays)
        else:
            flat = objects(list(itertools.chain.from_iterable(_items(found) for found in lists)))
        hits = np.repeat(np.arange(len(lists)), lengths)[self._are_members(flat)]
        answers = np.zeros(len(lists), dtype=bool)
        answers[hits] = True
        return answers

    def _are_members(self, flat: npt.NDArray[Any]) -> Bools:
        try:
            values = typed(flat)
        except PredicateError:  # of several kinds: each by itself
            found = [typed(objects([item])) for item in flat.tolist()]
            return np.array([bool(self._of_values(value)[0]) for value in found], dtype=bool)
        return self._of_values(values)

    def _of_values(self, values: Values) -> Bools:
        try:
            return _filled(self._members.contains(values), values.nulls, self._members.has_null)
        except PredicateError as error:
            raise PredicateError(f"in {self!r}: the lists of the field have lists in them") from error

    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        return frozenset((True, False))  # statistics of lists, where there are any, are those of what is in them

    def content(self) -> Any:
        return {"in_intersection": [self._members.content(), self._field]}

    def __repr__(self) -> str:
        return f"in_intersection({self._members!r}, {self._field!r})"


def _listed(value: Any) -> Sequence[Any] | npt.NDArray[Any] | None:
    """The values in a row's value; None if it is no list."""
    if value is None:
        return ()
    if isinstance(value, (str, bytes)):
        return (value,)
    if isinstance(value, np.ndarray) and value.ndim:
        return value.reshape(-1)
    if isinstance(value, (list, tuple, set, frozenset)):
        return tuple(value)
    return None


def _items(found: Any) -> Iterable[Any]:
    items: Iterable[Any] = found.tolist() if isinstance(found, np.ndarray) and found.dtype.kind not in "mM" else found
    return items


class in_lambda(_TrueOrFalse):  # noqa: N801
    """Whether a function says so. It is asked row by row: where it is a matter of comparisons, :func:`col` is much faster.

    ::

        in_lambda(["labels"], lambda labels: len(labels) > 3)
        in_lambda(["width", "height"], lambda width, height: width > 2 * height, batched=True)

    Args:
        predicate_fields: the fields it needs.
        predicate_func: is given the values of the fields, in their order, one argument each: numbers and texts as Python's, null
            as None; then ``state_arg``, if there is one. Gives a bool. ``batched``, it is given columns as they are read, shape
            (n, ...) each, and gives bools of shape (n,).
        state_arg: what else it is given; None for nothing.
        batched: whether the function takes many rows at once.
    """

    def __init__(
        self,
        predicate_fields: Sequence[str],
        predicate_func: Callable[..., Any],
        state_arg: Any = None,
        *,
        batched: bool = False,
    ) -> None:
        if not isinstance(predicate_fields, (list, tuple)) or not predicate_fields:
            raise ConfigError(f"in_lambda takes a list of at least one field, got {shown(predicate_fields)}")
        if not callable(predicate_func):
            raise ConfigError(f"in_lambda takes a function, got {shown(predicate_func)}")
        self._fields = tuple(_checked_field(name, "in_lambda") for name in predicate_fields)
        self._function, self._state, self._batched = predicate_func, state_arg, batched

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(sorted(set(self._fields)))

    @property
    def is_batched(self) -> bool:
        """Whether the function takes many rows at once."""
        return self._batched

    def asked(self, columns: Mapping[str, Any]) -> Any:
        """What the function gives for columns of any kind, by name."""
        return self._of([columns[name] for name in self._fields])

    def _of(self, values: Sequence[Any]) -> Any:
        return self._function(*values) if self._state is None else self._function(*values, self._state)

    def _answers(self, columns: Mapping[str, npt.NDArray[Any]]) -> Bools:
        given = [np.asarray(column_of(columns, name)) for name in self._fields]
        if not self._batched:
            rows = zip(*map(values_for_functions, given), strict=True)
            return _row_by_row(self, self._of, rows, len(given[0]), self._fields)
        try:
            answers = np.asarray(self._of(given))
        except Exception as error:
            raise PredicateError(f"the function of {self!r} raised {type(error).__name__}: {error}") from error
        if answers.dtype != bool or answers.shape != (len(given[0]),):
            raise PredicateError(
                f"the batched function of {self!r} must give bools of shape ({len(given[0])},), "
                f"it gave a {type(answers).__name__} of shape {answers.shape} and dtype {answers.dtype}"
            )
        return answers

    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        if self._state is not None or self._batched:  # a state may count the rows, a batched function may count on many
            return frozenset((True, False))
        return super().possible_truths(statistics)

    def content(self) -> Any:
        return {"in_lambda": [list(self._fields), function_content(self._function), content_of(self._state), self._batched]}

    def __repr__(self) -> str:
        state = "" if self._state is None else f", {shown(self._state)}"
        return f"in_lambda({list(self._fields)!r}, {shown_function(self._function)}{state}{', batched=True' * self._batched})"


def _row_by_row(
    predicate: Predicate, function: Callable[[Any], Any], rows: Iterable[Any], n_rows: int, names: Sequence[str]
) -> Bools:
    answers = np.empty(n_rows, dtype=bool)
    for number, row in enumerate(rows):
        try:
            answers[number] = bool(function(row))
        except Exception as error:
            values = row if isinstance(row, Mapping) else dict(zip(names, row, strict=True))
            raise PredicateError(
                f"{predicate!r} raised {type(error).__name__}: {error}, given "
                + ", ".join(f"{name}={shown(value)}" for name, value in values.items()),
                number,
            ) from error
    return answers


class in_negate(_TrueOrFalse):  # noqa: N801
    """The rows that a predicate does not select: also those of which it says neither true nor false, unlike ``~``.

    Args:
        predicate: ours, or an object with Petastorm's two methods.
    """

    def __init__(self, predicate: Any) -> None:
        self._predicate = _checked_predicate(predicate, "in_negate")

    @property
    def fields(self) -> tuple[str, ...]:
        return self._predicate.fields

    def _answers(self, columns: Mapping[str, npt.NDArray[Any]]) -> Bools:
        return ~self._predicate.mask(columns)

    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        return frozenset(truth is not True for truth in self._predicate.possible_truths(statistics))

    def content(self) -> Any:
        return {"in_negate": self._predicate.content()}

    def __repr__(self) -> str:
        return f"in_negate({self._predicate!r})"


class in_reduce(_TrueOrFalse):  # noqa: N801
    """What a function makes of the answers of several predicates.

    Args:
        predicate_list: at least one predicate, ours or objects with Petastorm's two methods.
        reduce_func: ``all``, ``any``, ``numpy.all``, ``numpy.any``, or a function that is given a list of one bool for each
            predicate and gives a bool. It is called once for each combination that occurs.
    """

    def __init__(self, predicate_list: Iterable[Any], reduce_func: Callable[..., Any]) -> None:
        self._predicates = tuple(_checked_predicate(predicate, "in_reduce") for predicate in predicate_list)
        if not self._predicates:
            raise ConfigError("in_reduce takes at least one predicate")
        if not callable(reduce_func):
            raise ConfigError(f"in_reduce takes a function such as all or any, got {shown(reduce_func)}")
        self._function = reduce_func

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(sorted({name for predicate in self._predicates for name in predicate.fields}))

    def _answers(self, columns: Mapping[str, npt.NDArray[Any]]) -> Bools:
        masks = np.stack([predicate.mask(columns) for predicate in self._predicates])
        if self._function in _ALL:
            return np.asarray(masks.all(axis=0))
        if self._function in _ANY:
            return np.asarray(masks.any(axis=0))
        combinations, first, which = np.unique(masks, axis=1, return_index=True, return_inverse=True)
        answers = [self._reduced(answers, row) for answers, row in zip(combinations.T.tolist(), first.tolist(), strict=True)]
        return np.array(answers, dtype=bool)[which.reshape(-1)]

    def _reduced(self, answers: list[bool], row: int | None) -> bool:
        try:
            return bool(self._function(answers))
        except Exception as error:
            raise PredicateError(f"{self!r} raised {type(error).__name__}: {error}, given {shown(answers)}", row) from error

    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        each = [{truth is True for truth in predicate.possible_truths(statistics)} for predicate in self._predicates]
        if not all(each):  # no rows
            return frozenset()
        if self._function in _ALL:
            return _either(all(True in answers for answers in each), any(False in answers for answers in each))
        if self._function in _ANY:
            return _either(any(True in answers for answers in each), all(False in answers for answers in each))
        if any(len(answers) > 1 for answers in each):
            return frozenset((True, False))
        try:
            return frozenset((self._reduced([True in answers for answers in each], None),))
        except PredicateError:
            return frozenset((True, False))

    def content(self) -> Any:
        return {"in_reduce": [[predicate.content() for predicate in self._predicates], function_content(self._function)]}

    def __repr__(self) -> str:
        return f"in_reduce({list(self._predicates)!r}, {getattr(self._function, '__name__', None) or shown(self._function)})"


def _either(may_be_true: bool, may_be_false: bool) -> frozenset[Truth]:
    return frozenset([True] * may_be_true + [False] * may_be_false)


class in_pseudorandom_split(_TrueOrFalse):  # noqa: N801
    """One part of a dataset that is split at random, but always in the same way, and as Petastorm splits it.

    A row belongs to the part in whose range the MD5 of ``str(value)`` lies, so rows with the same value stay together, and the
    parts have the wanted sizes only roughly. All nulls lie in one part, that of the text "None", as there.

    Args:
        fraction_list: the part of all values that is wanted for each subset, each in [0, 1], together at most 1.
        subset_index: which subset, from 0 on.
        predicate_field: the field whose values are split: numbers, texts, bytes, times.
    """

    def __init__(self, fraction_list: Sequence[float], subset_index: int, predicate_field: str) -> None:
        fractions = [float(fraction) for fraction in fraction_list]
        if not all(0 <= fraction <= 1 for fraction in fractions) or sum(fractions) > 1 + 1e-9:
            raise ConfigError(f"fractions lie between 0 and 1, and their sum is at most 1; got {shown(fraction_list)}")
        if not 0 <= subset_index < len(fractions):
            raise ConfigError(f"subset_index {subset_index} is not in [0, {len(fractions)}), the subsets that have a fraction")
        self._fractions, self._index = tuple(fractions), int(subset_index)
        self._field = _checked_field(predicate_field, "in_pseudorandom_split")
        # In floats, as Petastorm does: the last places decide in which part a bucket at a border lies.
        high_borders = [sum(fraction_list[: i + 1]) for i in range(len(fraction_list))]
        low = high_borders[subset_index - 1] if subset_index else 0
        self._low = math.ceil(low * (_N_BUCKETS - 1))
        self._high = math.ceil(high_borders[subset_index] * (_N_BUCKETS - 1))

    @property
    def fields(self) -> tuple[str, ...]:
        return (self._field,)

    def _answers(self, columns: Mapping[str, npt.NDArray[Any]]) -> Bools:
        column = np.asarray(column_of(columns, self._field))
        if column.ndim != 1:
            raise PredicateError(f"in {self!r}: the field's values are arrays of shape {column.shape[1:]}; split by one value")
        if column.dtype == object:
            texts = [str(value) for value in column.tolist()]
            distinct = list(dict.fromkeys(texts))
            numbers = {text: number for number, text in enumerate(distinct)}
            which = np.fromiter(map(numbers.__getitem__, texts), dtype=np.int64, count=len(texts))
        else:
            # By their bytes, for -0.0 and 0.0 are equal and have different texts.
            values, which = _distinct(column)
            distinct = [str(value) for value in (values.tolist() if values.dtype.kind in "biuSU" else values)]
        buckets = _buckets(distinct)
        return np.asarray((buckets >= np.uint64(self._low)) & (buckets < np.uint64(self._high)))[which.reshape(-1)]

    def content(self) -> Any:
        return {"in_pseudorandom_split": [list(self._fractions), self._index, self._field]}

    def __repr__(self) -> str:
        return f"in_pseudorandom_split({list(self._fractions)!r}, {self._index}, {self._field!r})"


def _distinct(column: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if column.dtype.kind == "f" and column.dtype.itemsize in (2, 4, 8):
        bits, which = np.unique(np.ascontiguousarray(column).view(f"u{column.dtype.itemsize}"), return_inverse=True)
        return bits.view(column.dtype), which
    values, which = np.unique(column, return_inverse=True)
    return values, which


def _buckets(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """For each text its MD5, a number of 128 bits, modulo 2**63 - 1."""
    md5 = hashlib.md5  # not to keep anything secret
    digests = b"".join(md5(text.encode("utf-8"), usedforsecurity=False).digest() for text in texts)
    halves = np.frombuffer(digests, dtype=">u8").astype(np.uint64).reshape(-1, 2)
    modulus = np.uint64(_N_BUCKETS)
    high = halves[:, 0] % modulus * np.uint64(2) % modulus  # 2**64 is 2, modulo 2**63 - 1
    return np.asarray((high + halves[:, 1] % modulus) % modulus, dtype=np.uint64)


class PetastormPredicate(_TrueOrFalse):
    """An object with Petastorm's two methods, such as a subclass of its ``PredicateBase``, asked row by row.

    Args:
        predicate: has ``get_fields() -> set of names`` and ``do_include(values: dict) -> bool``. Values are given as to
            :class:`in_lambda`.
    """

    def __init__(self, predicate: Any) -> None:
        names = predicate.get_fields()
        if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
            raise ConfigError(f"get_fields() of {shown(predicate)} gives a set of names of fields, not {shown(names)}")
        self._fields = tuple(sorted({_checked_field(name, f"get_fields() of {shown(predicate)}") for name in names}))
        if not self._fields:
            raise ConfigError(f"get_fields() of {shown(predicate)} names no field")
        self._predicate = predicate

    @property
    def fields(self) -> tuple[str, ...]:
        return self._fields

    def asked(self, columns: Mapping[str, Any]) -> Any:
        """What ``do_include`` gives for columns of any kind, by name."""
        return self._predicate.do_include(columns)

    def _answers(self, columns: Mapping[str, npt.NDArray[Any]]) -> Bools:
        given = [values_for_functions(np.asarray(column_of(columns, name))) for name in self._fields]
        rows = (dict(zip(self._fields, row, strict=True)) for row in zip(*given, strict=True))
        return _row_by_row(self, self._predicate.do_include, rows, len(given[0]), self._fields)

    def content(self) -> Any:
        return {"petastorm": [list(self._fields), content_of(self._predicate)]}

    def __repr__(self) -> str:
        return f"PetastormPredicate({shown(self._predicate)})"


def wrapped(value: Any) -> Predicate | None:
    """A predicate of ours as it is, one of Petastorm's kind as one of ours; None for anything else."""
    if isinstance(value, Predicate):
        return value
    to_predicate = getattr(value, "as_predicate", None)
    if callable(to_predicate):
        found = to_predicate()
        return found if isinstance(found, Predicate) else None
    if (
        not isinstance(value, type)
        and callable(getattr(value, "get_fields", None))
        and callable(getattr(value, "do_include", None))
    ):
        return PetastormPredicate(value)
    return None


def _checked_predicate(value: Any, what: str) -> Predicate:
    found = wrapped(value)
    if found is None:
        raise ConfigError(f'{what} takes predicates such as in_set(["rain"], "weather") or col("speed") > 3, got {shown(value)}')
    return found
