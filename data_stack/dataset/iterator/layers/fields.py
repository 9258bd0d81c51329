"""Samples with some of an iterator's columns, under other names, as tuples or as dicts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from data_stack.dataset.iterator.access import (
    DeclaredColumn,
    DistinctValues,
    OneToOneAccess,
    SampleAccess,
    access_to,
)
from data_stack.dataset.iterator.contract import Batch, Column, ColumnKey, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.meta import (
    LOST_NAMES,
    DatasetMeta,
    IteratorMeta,
    column_key,
    column_names,
    declared_names,
)
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError
from data_stack.values.stacking import SampleForm, value_of


@dataclass(frozen=True)
class _Plan:
    """Where the columns of this layer come from.

    Attributes:
        below: the form of the samples below.
        keys: the columns below, in the order of the columns here.
        here: the form of the samples of this layer.
    """

    below: SampleForm
    keys: tuple[ColumnKey, ...]
    here: SampleForm

    @cached_property
    def n_below(self) -> int:
        """The number of columns below."""
        return len(self.below.keys)

    @cached_property
    def makes_dicts(self) -> bool:
        """Whether samples of this layer are dicts."""
        return self.here.kind == "dict"

    @cached_property
    def leaves_out_columns(self) -> bool:
        """Whether some columns below are none of this layer."""
        return len(self.keys) < self.n_below

    def find_below(self, keys: Sequence[ColumnKey]) -> list[ColumnKey]:
        """The columns below of some columns of this layer.

        Raises:
            ConfigError: there is no such column.
        """
        return [self.keys[self.here.keys.index(self.here.find(key))] for key in keys]


_Planner = Callable[[SampleForm], _Plan]
"""Plans what to make of samples of a form."""


class _ColumnsLayer(LayerDatasetIterator):
    """Other columns of the same samples: which, a subclass plans from the columns below.

    The columns are known by names, a schema or sample 0. They are looked up when a column is named by a string, or for a meta.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        planner: _Planner,
        called: Iterable[ColumnKey] = (),
        **made_with: Any,
    ) -> None:
        super().__init__(dataset_iterator, **made_with)
        self._planner = planner
        if any(isinstance(column, str) for column in called):
            self._plan_now()

    def make_access(self) -> SampleAccess:
        return _ColumnsAccess(self._below(), self._planner)

    def _plan_now(self) -> _Plan | None:
        """The plan for the columns below; None for an empty iterator."""
        names, below = column_names(self._dataset_iterator), self._below()
        return (
            self._planner(SampleForm.tuples(len(names)) if names else _form_of(below))
            if below.n_samples
            else None
        )

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        derived, plan = meta, self._plan_now()
        if plan is None:
            return replace(meta, column_names=None)
        moved: dict[ColumnKey, ColumnKey] = dict(zip(plan.keys, plan.here.keys, strict=True))
        positions: list[ColumnKey] = []
        for role, position in (
            ("sample", meta.sample_pos),
            ("target", meta.target_pos),
            ("tag", meta.tag_pos),
        ):
            key = plan.below.normal(position)
            is_lost = key in plan.below.keys and key not in moved
            # the position of a column that is left out would name another one
            positions.append(
                moved.get(key, role if is_lost and not isinstance(position, str) else position)
            )
            if is_lost and role == "sample":
                derived = replace(derived, feature_names=None)
            elif is_lost and role == "target":
                derived = replace(derived, target_kind=None, class_names=None)
        below: tuple[Any, ...] = (
            column_names(self._dataset_iterator) if plan.below.kind == "tuple" else plan.below.keys
        )
        names: list[Any] = [below[plan.below.keys.index(key)] for key in plan.keys] if below else []
        is_tuple = plan.here.kind == "tuple"
        called = dict(
            zip(names or plan.keys, names if is_tuple and names else plan.here.keys, strict=True)
        )
        kinds = tuple(
            (called[key], kind) for key, kind in derived.column_kinds or () if key in called
        )
        named = (
            tuple(names)
            if is_tuple and names and all(isinstance(name, str) for name in names)
            else None
        )
        return replace(
            derived,
            iterator_meta=IteratorMeta(*positions),
            column_names=named,
            column_kinds=kinds or None,
        )


@layer("fields")
class FieldsDatasetIterator(_ColumnsLayer):
    """Samples of only the columns ``columns``, in that order: of tuples tuples, of dicts dicts.

    The other columns are not read where the iterator below can read columns by themselves. To know whether samples are tuples
    or dicts, sample 0 is read once, when a column or batch is read for the first time.

    Columns may be given by their names where the dataset declares them. A column that does not exist is an
    error at once: without names and schema, sample 0 is read for that.

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
        keys = _check_columns(dataset_iterator, columns)
        if not keys:
            raise ConfigError("samples need at least one column; none was selected")
        super().__init__(dataset_iterator, partial(_choose, keys, False), keys, columns=list(keys))


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
        super().__init__(dataset_iterator, partial(_rename, dict(names)), names, names=dict(names))


@layer("dicts")
class DictsDatasetIterator(_ColumnsLayer):
    """Tuple samples as dicts. An iterator's meta follows: its positions become names.

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        names: one key for each column, in their order; none for the names that the meta declares.

    Raises:
        ConfigError: no names, or one twice. When reading: not as many names as columns, or the samples are not tuples.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, names: Sequence[str] = ()) -> None:
        if isinstance(names, str):
            raise ConfigError(
                f"as_dict() takes a list of names, one for each column, got {names!r}"
            )
        names = list(names or column_names(dataset_iterator))
        if not names:
            lost = declared_names(getattr(dataset_iterator, "dataset_meta", None)) == ()
            raise ConfigError(
                f"the columns have no names{f': {LOST_NAMES}' if lost else ''}; pass them: as_dict(…)"
            )
        _check_names(names)
        super().__init__(dataset_iterator, partial(_name, names), names=names)


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

    def __init__(
        self, dataset_iterator: DatasetIteratorIF, columns: Sequence[ColumnKey] = ()
    ) -> None:
        keys = _check_columns(dataset_iterator, columns)
        super().__init__(dataset_iterator, partial(_choose, keys, True), keys, columns=list(keys))


def list_column_names(iterator: DatasetIteratorIF) -> list[ColumnKey]:
    """``iterator.column_names``."""
    return list(column_names(iterator) or _form_of(access_to(iterator)).keys)


def _form_of(samples: SampleAccess) -> SampleForm:
    """The columns by a schema, sample 0, or an empty batch, which may have none."""
    declared = samples.declare_columns()
    if declared is not None:
        return SampleForm("dict", tuple(declared))
    return SampleForm.of(
        samples.sample(0) if samples.n_samples else samples.batch(np.empty(0, dtype=np.intp))
    )


def _choose(columns: tuple[ColumnKey, ...], as_tuples: bool, form: SampleForm) -> _Plan:
    keys = form.find_all(columns) if columns else form.keys
    is_dict = form.kind == "dict" and not as_tuples
    return _Plan(form, keys, SampleForm("dict", keys) if is_dict else SampleForm.tuples(len(keys)))


def _rename(names: Mapping[str, str], form: SampleForm) -> _Plan:
    if form.kind == "tuple":
        raise ConfigError(
            f"samples are tuples of {len(form.keys)} columns without names to change; name them by as_dict() first"
        )
    form.find_all(list(names))
    kept = set(form.keys) - set(names)
    for old, new in names.items():
        if new in kept:
            raise ConfigError(
                f"column {old!r} cannot be renamed to {new!r}: there is such a column; rename or drop it too"
            )
    return _Plan(
        form, form.keys, SampleForm("dict", tuple([names.get(key, key) for key in form.keys]))
    )


def _name(names: Sequence[str], form: SampleForm) -> _Plan:
    if form.kind == "dict":
        raise ConfigError(
            f"samples are dicts already: {form.describe()}; rename() gives them other names"
        )
    if len(form.keys) != len(names):
        raise ConfigError(
            f"samples of {len(form.keys)} columns were given {len(names)} names: {_list(names)}"
        )
    return _Plan(form, form.keys, SampleForm("dict", tuple(names)))


class _ColumnsAccess(OneToOneAccess):
    """Access to some columns of the same samples, under other names.

    Args:
        below: the samples, which all have the columns of the first.
        planner: plans the columns.
    """

    def __init__(self, below: SampleAccess, planner: _Planner) -> None:
        super().__init__(below, keeps_values=True)
        self._read_below = below.make_sample_reader()
        self._planner = planner
        self._plan: _Plan | None = None
        # Asking those below that always read whole samples would take a quarter of the time of a sample.
        self._may_read_parts: bool
        if isinstance(below, _ColumnsAccess):
            self._may_read_parts = below._may_read_parts
        else:
            reads_whole_samples = type(below).values_of_sample is SampleAccess.values_of_sample
            self._may_read_parts = not reads_whole_samples

    @property
    def stacks_samples(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.stacks_samples

    def sample(self, position: int) -> Sample:
        if self._may_read_parts:
            plan = self._plan
            if plan is not None and plan.leaves_out_columns:
                values = self.below.values_of_sample(position, plan.keys)
                if values is not None:
                    return plan.here.make(values)
        return self._rearrange(self._read_below(position))

    def make_sample_reader(self) -> Callable[[int], Any]:
        if self._may_read_parts:
            return self.sample
        read_below = self._read_below
        rearrange = self._rearrange
        return lambda position: rearrange(read_below(position))

    def values_of_sample(self, position: int, keys: Sequence[ColumnKey]) -> list[Any] | None:
        plan = self._find_plan()
        if plan is None:
            return None
        return self.below.values_of_sample(position, plan.find_below(keys))

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        return list(map(self._rearrange, self.below.samples(positions))) if len(positions) else []

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        plan = self._plan or self._find_plan()
        if plan is None:
            return ()
        if plan.leaves_out_columns and self.n_samples:
            return plan.here.make(self.below.columns(plan.keys, positions))  # type: ignore[no-any-return]  # a batch
        return self._rearrange(self.below.batch(positions))  # type: ignore[no-any-return]  # a batch

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        plan = self._find_plan()
        if plan is None:
            return [np.empty(0) for _ in keys]
        if not self.n_samples:
            batch: Any = self.batch(np.empty(0, dtype=np.intp))
            return [value_of(batch, key) for key in keys]
        return self.below.columns(plan.find_below(keys), positions)

    def iterate_column(self, key: ColumnKey, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        plan = self._find_plan()
        return (
            None
            if plan is None or key not in plan.here.keys
            else self.below.iterate_column(plan.find_below([key])[0], positions)
        )

    def distinct_values(
        self, key: ColumnKey, positions: IndexArrayOfInts | None = None
    ) -> DistinctValues | None:
        plan = self._find_plan()
        if plan is None:
            return None
        (key_below,) = plan.find_below([key])
        return self.below.distinct_values(key_below, positions)

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[ColumnKey] | None = None
    ) -> Batch | None:
        plan = self._find_plan()
        if plan is None:
            return None
        if keys is not None:
            return self.below.runs(starts, length, plan.find_below(keys))
        if plan.keys == plan.below.keys:
            whole_runs = self.below.runs(starts, length)
            return None if whole_runs is None else self._rearrange(whole_runs)
        columns: Any = self.below.runs(starts, length, plan.keys)
        return None if columns is None else plan.here.make(columns)

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return map(self._rearrange, self.below.iterate(start, stop))

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        declared, plan = self.below.declare_columns(), self._find_plan()
        if declared is None or plan is None or plan.here.kind == "tuple":
            return None
        return {
            str(name): declared[str(key)]
            for name, key in zip(plan.here.keys, plan.keys, strict=True)
        }

    def _find_plan(self) -> _Plan | None:
        """None where there are no samples, and their columns are unknown."""
        if self._plan is None:
            form = _form_of(self.below)
            if form.kind == "bare" and self.n_samples:
                raise ConfigError(
                    "samples have no columns to choose from or to name: they are bare values"
                )
            self._plan = self._planner(form) if form.keys or self.n_samples else None
        return self._plan

    def _rearrange(self, sample: Any) -> Any:
        """A sample, or a batch, below as one of this layer."""
        plan: Any = self._plan or self._find_plan()
        try:
            if len(sample) == plan.n_below:
                values = [sample[key] for key in plan.keys]
                # as here.make() does, without a call for each sample
                if plan.makes_dicts:
                    return dict(zip(plan.here.keys, values, strict=True))
                return tuple(values)
        except (LookupError, TypeError):
            pass
        raise ConfigError(
            f"samples differ in their columns: {plan.below.describe()}, and {SampleForm.of(sample).describe()}"
        )


def _list(names: Sequence[ColumnKey]) -> str:
    return ", ".join(map(repr, names))


def _check_columns(iterator: Any, columns: Sequence[ColumnKey]) -> tuple[ColumnKey, ...]:
    """Columns with positions for the names that a meta has."""
    if isinstance(columns, (str, bytes)) or hasattr(columns, "__index__"):
        raise ConfigError(
            f"columns must be a list of positions or keys, got {columns!r}; one column is [{columns!r}]"
        )
    if not all(isinstance(column, str) or hasattr(column, "__index__") for column in columns):
        raise ConfigError(
            f"each column is named by its position or key, one argument each, not by {_list(columns)}"
        )
    keys = tuple(
        [
            column_key(iterator, column if isinstance(column, str) else operator.index(column))
            for column in columns
        ]
    )
    if len(set(keys)) < len(keys):
        raise ConfigError(f"a column is selected twice, among {_list(columns)}")
    return keys


def _check_names(names: Sequence[Any]) -> None:
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ConfigError(f"the names of columns are strings, no two the same, got {_list(names)}")
