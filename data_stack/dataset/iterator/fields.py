"""Samples with some of an iterator's columns, under other names, as tuples or as dicts."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Union

import numpy as np

from data_stack.dataset.iterator.access import OneToOneAccess, SampleAccess, access_to, brought_access
from data_stack.dataset.iterator.contract import (
    AccessedDatasetIterator,
    Batch,
    Column,
    ColumnKey,
    DatasetIteratorIF,
    Sample,
    as_iterator,
    column_key,
    column_names,
)
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.iterator.stacking import column_of
from data_stack.dataset.meta import DatasetMetaIF, IteratorMeta, MetaFactory
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError

__all__ = ["DictsDatasetIterator", "FieldsDatasetIterator", "RenamedDatasetIterator", "TuplesDatasetIterator"]

_Form = Union[int, tuple[ColumnKey, ...]]
"""The columns of a sample or batch: how many a tuple has, or which keys a dict has."""


@dataclass(frozen=True)
class _Plan:
    """Where the columns of this layer come from.

    Attributes:
        keys: the columns below, in the order of the columns here.
        names: their keys here; None: their positions are their names, so the samples are tuples.
        takes_all: whether no column below is left out.
    """

    keys: tuple[ColumnKey, ...]
    names: tuple[ColumnKey, ...] | None
    takes_all: bool

    def put_together(self, columns: Sequence[Any]) -> Any:
        """A sample of values, or a batch of columns."""
        return tuple(columns) if self.names is None else dict(zip(self.names, columns, strict=True))

    def rearrange(self, sample: Any) -> Any:
        """A sample or a batch below as one of this layer."""
        return self.put_together([sample[key] for key in self.keys])

    def key_below(self, key: ColumnKey) -> ColumnKey:
        """What a column of this layer is called below."""
        known = self.names if self.names is not None else tuple(range(len(self.keys)))
        if self.names is not None:
            if key in self.names:
                return self.keys[self.names.index(key)]
        elif hasattr(key, "__index__") and -len(known) <= operator.index(key) < len(known):
            return self.keys[operator.index(key)]
        raise ConfigError(f"samples have no column {key!r}: {_describe(len(self.keys) if self.names is None else self.names)}")


_Planner = Callable[[_Form, _Form], _Plan]
"""Plans what to make of samples of a form, given that of sample 0, too."""


class _ColumnsLayer(AccessedDatasetIterator):
    """Other columns of the same samples: which, a subclass plans from what columns there are below.

    What columns there are is known when sample 0, or a batch, is read; neither is when this is made.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF) -> None:
        self._dataset_iterator = dataset_iterator
        as_iterator(dataset_iterator)  # refuses what has no samples

    def make_access(self) -> _ColumnsAccess:
        below = access_to(as_iterator(self._dataset_iterator))
        return _ColumnsAccess(below, self._planner())

    @abstractmethod
    def _planner(self) -> _Planner:
        """What plans the columns. It does not refer to this layer: memory of a stack is let go of as soon as the stack is."""
        raise NotImplementedError

    def _check_names(self, columns: Sequence[ColumnKey]) -> None:
        """Find out now whether there are the columns that are called by their keys, by the schema or by sample 0."""
        if any(isinstance(column, str) for column in columns):
            self._plan_now()

    def _plan_now(self) -> tuple[_Form, _Plan] | None:
        """The columns below and what becomes of them, by their names, a schema or sample 0; None if nothing tells."""
        below = access_to(as_iterator(self._dataset_iterator))
        names, declared = column_names(self._dataset_iterator), below.declare_columns()
        if not below.n_samples:
            return None
        if names or declared is not None:
            form: _Form = len(names) if names else tuple(declared or ())
        else:
            access: Any = brought_access(self)
            form = access.form_of_first()  # that of this class
        return form, self._planner()(form, form)

    def _derive_meta(self, meta: DatasetMetaIF) -> DatasetMetaIF:
        followed = MetaFactory.copy_dataset_meta(meta)
        found = self._plan_now()
        if found is None:
            return replace(followed, column_names=None)
        form, plan = found
        known = tuple(range(form)) if isinstance(form, int) else form
        positions: list[ColumnKey] = []
        for role, position in (("sample", meta.sample_pos), ("target", meta.target_pos), ("tag", meta.tag_pos)):
            is_from_end = isinstance(form, int) and not isinstance(position, str) and -form <= position < 0
            key = position + form if is_from_end else position
            if key in plan.keys:
                place = plan.keys.index(key)
                positions.append(place if plan.names is None else plan.names[place])
                continue
            # What is left out keeps its key, which names no other column. Its position would name one, so its role stands there.
            positions.append(position if isinstance(position, str) or key not in known else role)
            if key in known and role == "sample":
                followed = replace(followed, feature_names=None)
            elif key in known and role == "target":
                followed = replace(followed, target_kind=None, class_names=None)
        below: tuple[Any, ...] = column_names(self._dataset_iterator) if isinstance(form, int) else form
        names: list[Any] = [below[known.index(key)] for key in plan.keys] if below else []
        is_named = plan.names is None and bool(names) and all(isinstance(name, str) for name in names)
        return replace(followed, iterator_meta=IteratorMeta(*positions), column_names=tuple(names) if is_named else None)

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator whose columns these are."""
        return [self._dataset_iterator]


@layer("fields")
class FieldsDatasetIterator(_ColumnsLayer):
    """Samples of only the columns ``columns``, in that order: of tuples tuples, of dicts dicts.

    The other columns are not read where the iterator below can read columns by themselves. To know whether samples are tuples
    or dicts, sample 0 is read once, when a column or batch is read for the first time.

    Columns may be given by their names where the dataset declares them. A name or key that there is not is an error now, not when
    samples are read: where no schema and no names tell what columns there are, sample 0 is read for that.

    An iterator's meta follows: positions are those in the new samples. The position of a column that is left out becomes the
    word ``"sample"``, ``"target"`` or ``"tag"``, a key stays as it is: both name no column, so that asking for it is a
    ConfigError; what was known of its values (target kind, class names, feature names) is dropped with it. Where neither
    names nor a schema tell what columns there are, sample 0 is read for the meta when this is made.

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        columns: positions of tuple samples (negative ones count from the end) or keys of dict samples; at least one.

    Raises:
        ConfigError: no columns, or one twice. When reading: the samples have no such column, or are neither tuples nor dicts.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, columns: Sequence[ColumnKey]) -> None:
        self._columns = _positions_of(dataset_iterator, columns)
        if not self._columns:
            raise ConfigError("samples need at least one column; none was selected")
        super().__init__(dataset_iterator)
        self._check_names(self._columns)

    def _planner(self) -> _Planner:
        return partial(_plan_of_fields, self._columns)

    def _arguments(self) -> dict[str, Any]:
        return {"columns": list(self._columns)}


@layer("renamed")
class RenamedDatasetIterator(_ColumnsLayer):
    """Dict samples with new names for some of their keys; the order of the columns stays. An iterator's meta follows.

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        names: ``{"old": "new"}``. Two columns may swap their names.

    Raises:
        ConfigError: two columns would get the same name. When reading: there is no column to rename, a new name is another
            column's, or the samples are not dicts.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, names: Mapping[str, str]) -> None:
        if not isinstance(names, Mapping):
            raise ConfigError(f'names must be a mapping such as {{"old": "new"}}, got {names!r}')
        _check_names(list(names.values()))
        self._names = dict(names)
        super().__init__(dataset_iterator)
        self._check_names(list(names))

    def _planner(self) -> _Planner:
        return partial(_plan_of_names, self._names)

    def _arguments(self) -> dict[str, Any]:
        return {"names": dict(self._names)}


@layer("dicts")
class DictsDatasetIterator(_ColumnsLayer):
    """Tuple samples as dicts. An iterator's meta follows: its positions become names.

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        names: one key for each column, in their order.

    Raises:
        ConfigError: no names, or one twice. When reading: not as many names as columns, or the samples are not tuples.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, names: Sequence[str]) -> None:
        if isinstance(names, str) or not names:
            raise ConfigError(f"a dict needs a list of names, one for each column; got {names!r}")
        self._names = list(names)
        _check_names(self._names)
        super().__init__(dataset_iterator)

    def _planner(self) -> _Planner:
        return partial(_plan_of_dicts, self._names)

    def _arguments(self) -> dict[str, Any]:
        return {"names": list(self._names)}


@layer("tuples")
class TuplesDatasetIterator(_ColumnsLayer):
    """Samples as tuples of ``columns``, in that order; of dict samples without any, of all keys in the order of sample 0.

    Columns that are left out are not read where that is possible, and an iterator's meta follows, both as of
    ``FieldsDatasetIterator``. Sample 0 is read once, when the first sample is, to know the order of the keys.

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        columns: keys of dict samples, or positions of tuple samples (negative ones count from the end); none for all.

    Raises:
        ConfigError: a column twice. When reading: the samples have no such column, or are neither tuples nor dicts.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, columns: Sequence[ColumnKey] = ()) -> None:
        self._columns = _positions_of(dataset_iterator, columns)
        super().__init__(dataset_iterator)
        self._check_names(self._columns)

    def _planner(self) -> _Planner:
        return partial(_plan_of_tuples, self._columns)

    def _arguments(self) -> dict[str, Any]:
        return {"columns": list(self._columns)}


def _plan_of_fields(columns: tuple[ColumnKey, ...], form: _Form, first: _Form) -> _Plan:
    keys = _find(columns, form)
    return _Plan(keys, None if isinstance(form, int) else keys, len(keys) == _width(form))


def _plan_of_names(names: Mapping[str, str], form: _Form, first: _Form) -> _Plan:
    if isinstance(form, int):
        raise ConfigError(f"samples are tuples of {form} columns without names to change; name them by as_dict() first")
    _find(list(names), form)
    kept = set(form) - set(names)
    for old, new in names.items():
        if new in kept:
            raise ConfigError(f"column {old!r} cannot be renamed to {new!r}: there is such a column; rename or drop it too")
    return _Plan(form, tuple([names.get(key, key) if isinstance(key, str) else key for key in form]), True)


def _plan_of_dicts(names: Sequence[str], form: _Form, first: _Form) -> _Plan:
    if not isinstance(form, int):
        raise ConfigError(f"samples are dicts already: {_describe(form)}; rename() gives them other names")
    if form != len(names):
        raise ConfigError(f"samples of {form} columns were given {len(names)} names: {_list(names)}")
    return _Plan(tuple(range(form)), tuple(names), True)


def _plan_of_tuples(columns: tuple[ColumnKey, ...], form: _Form, first: _Form) -> _Plan:
    if columns:
        keys = _find(columns, form)
        return _Plan(keys, None, len(keys) == _width(form))
    if isinstance(form, int):
        return _Plan(tuple(range(form)), None, True)
    # in the order of sample 0: equal dicts may have their keys in different orders, tuples may not
    if isinstance(first, int) or set(first) != set(form):
        raise ConfigError(f"samples differ in their columns: for one {_describe(first)}, for another {_describe(form)}")
    return _Plan(first, None, True)


class _ColumnsAccess(OneToOneAccess):
    """Access to some columns of the same samples, under other names.

    Args:
        below: the samples.
        plan: what to make of samples of a form; it is given that form and that of sample 0.
    """

    def __init__(self, below: SampleAccess, plan: _Planner) -> None:
        super().__init__(below, keeps_values=True)
        self._plan = plan
        self._last_plan: tuple[_Form, _Plan] | None = None
        self._first_form: _Form | None = None

    def sample(self, position: int) -> Sample:
        return self._rearrange(self.below.sample(position))

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        return [self._rearrange(sample) for sample in self.below.samples(positions)] if len(positions) else []

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        # of an empty iterator a batch alone tells which columns there would be
        if self.n_samples == 0 or self._plan_of_first().takes_all:
            batch = self.below.batch(positions)
            return () if isinstance(batch, tuple) and not batch else self._rearrange(batch)
        plan = self._plan_of_first()
        return plan.put_together(self.below.columns(plan.keys, positions))  # type: ignore[no-any-return]  # a batch

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Column]:
        if self.n_samples == 0:
            batch = self.batch(np.empty(0, dtype=np.intp))
            if isinstance(batch, tuple) and not batch:  # nothing tells which there would be
                return [np.empty(0) for _ in keys]
            return [column_of(batch, key) for key in keys]  # type: ignore[arg-type]  # no layer of these gives bare samples
        plan = self._plan_of_first()
        return self.below.columns([plan.key_below(key) for key in keys], positions)

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return map(self._rearrange, self.below.iterate(start, stop))

    def form_of_first(self) -> _Form:
        """The columns of sample 0 below."""
        if self._first_form is None:
            self._first_form = _form_of(self.below.sample(0))
        return self._first_form

    def _rearrange(self, sample: Any) -> Any:
        return self._plan_for(len(sample) if type(sample) is tuple else _form_of(sample)).rearrange(sample)

    def _plan_of_first(self) -> _Plan:
        return self._plan_for(self.form_of_first())

    def _plan_for(self, form: _Form) -> _Plan:
        last = self._last_plan
        if last is None or last[0] != form:
            self._last_plan = last = (form, self._plan(form, self.form_of_first() if self.n_samples else form))  # in one step
        return last[1]


def _form_of(sample: Any) -> _Form:
    """The columns of a sample or a batch."""
    if isinstance(sample, Mapping):
        return tuple(sample)
    if isinstance(sample, (tuple, list)):
        return len(sample)
    raise ConfigError("samples have no columns to choose from or to name: they are bare values, neither tuples nor dicts")


def _width(form: _Form) -> int:
    return form if isinstance(form, int) else len(form)


def _find(columns: Sequence[ColumnKey], form: _Form) -> tuple[ColumnKey, ...]:
    """``columns`` as samples of that form have them: keys, or positions from 0 on."""
    found: list[ColumnKey] = []
    for column in columns:
        if not isinstance(form, int):
            known = column in form
        else:
            known = not isinstance(column, str) and -form <= column < form
        if not known:
            raise ConfigError(f"samples have no column {column!r}: {_describe(form)}")
        place = column + form if isinstance(form, int) and not isinstance(column, str) and column < 0 else column
        if place in found:
            raise ConfigError(f"column {column!r} of {form} is column {place!r}, which is selected twice")
        found.append(place)
    return tuple(found)


def _describe(form: _Form | Sequence[ColumnKey]) -> str:
    if isinstance(form, int):
        return f"they have the columns 0 to {form - 1}" if form else "they have no columns"
    return f"they have the columns {_list(form)}"


def _list(names: Sequence[ColumnKey]) -> str:
    return ", ".join(map(repr, names))


def _check_columns(columns: Sequence[ColumnKey]) -> tuple[ColumnKey, ...]:
    if isinstance(columns, (str, bytes)) or hasattr(columns, "__index__"):
        raise ConfigError(f"columns must be a list of positions or keys, got {columns!r}; one column is [{columns!r}]")
    checked: list[ColumnKey] = []
    for column in columns:
        if not isinstance(column, str) and not hasattr(column, "__index__"):
            raise ConfigError(f"a column is named by a position or a key, not by {column!r}")
        key = column if isinstance(column, str) else operator.index(column)
        if key in checked:
            raise ConfigError(f"column {key!r} is selected twice, among {_list(columns)}")
        checked.append(key)
    return tuple(checked)


def _positions_of(iterator: Any, columns: Sequence[ColumnKey]) -> tuple[ColumnKey, ...]:
    """Columns, checked, with positions for the names that a meta has."""
    return tuple(column_key(iterator, column) for column in _check_columns(columns))


def _check_names(names: Sequence[Any]) -> None:
    for place, name in enumerate(names):
        if not isinstance(name, str):
            raise ConfigError(f"the name of a column must be a string, got {name!r}")
        if name in names[:place]:
            raise ConfigError(f"two columns cannot both be named {name!r}, among {_list(names)}")
