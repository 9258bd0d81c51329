"""The base of layers that choose, name or reorder columns."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from data_stack.dataset.iterator.access import ColumnKey, SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import LayerDatasetIterator
from data_stack.dataset.iterator.layers.column_layout import (
    ColumnLayout,
    ColumnLayoutAccess,
    LayoutMaker,
    find_form,
)
from data_stack.dataset.meta import DatasetMeta, IteratorMeta, column_key, column_names
from data_stack.exception import ConfigError
from data_stack.values.stacking import SampleForm


class ColumnsLayer(LayerDatasetIterator):
    """Other columns of the same samples, in a layout that a subclass decides.

    Which columns there are below is known by names, by a schema or by sample 0. It is found out
    when the layer is made, if a column is named by a string or if there is a meta; otherwise when
    samples are read.

    Args:
        dataset_iterator: the iterator below; it is not closed.
        make_layout: makes the layout for the form of the samples below.
        checked_columns: columns that must exist below, which is checked now if one is a string.
        made_with: the other arguments of the layer, for recipes.

    Raises:
        ConfigError: one of ``checked_columns`` does not exist.
    """

    #: Makes the layout for the form of the samples below.
    _make_layout: LayoutMaker

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        make_layout: LayoutMaker,
        checked_columns: Iterable[ColumnKey] = (),
        **made_with: Any,
    ) -> None:
        super().__init__(dataset_iterator, **made_with)
        self._make_layout = make_layout
        if any(isinstance(column, str) for column in checked_columns):
            # It raises an error for a column that does not exist.
            self._find_layout()

    def make_access(self) -> SampleAccess:
        return ColumnLayoutAccess(self._below(), self._make_layout)

    def _find_layout(self) -> ColumnLayout | None:
        """Return the layout of the columns below; None for an empty iterator."""
        below = self._below()
        if below.n_samples == 0:
            return None
        names = column_names(self._dataset_iterator)
        form = SampleForm.tuples(len(names)) if names else find_form(below)
        return self._make_layout(form)

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        layout = self._find_layout()
        if layout is None:
            return replace(meta, column_names=None)
        return derive_meta(meta, layout, column_names(self._dataset_iterator))


def derive_meta(meta: DatasetMeta, layout: ColumnLayout, names_below: Sequence[str]) -> DatasetMeta:
    """Return the meta of the columns of a layout.

    Args:
        meta: the meta of the samples below.
        layout: where the columns come from.
        names_below: the names of the columns of tuples below; empty if they have none.
    """
    derived = meta
    if _is_left_out(meta.sample_pos, layout):
        derived = replace(derived, feature_names=None)
    if _is_left_out(meta.target_pos, layout):
        derived = replace(derived, target_kind=None, class_names=None)

    names = _list_names_below(layout, names_below)
    declared_names = None
    are_names = bool(names) and all(isinstance(name, str) for name in names)
    if are_names and layout.form.kind == "tuple":
        declared_names = tuple(names)

    key_of: dict[ColumnKey, ColumnKey] = dict(zip(layout.keys_below, layout.form.keys, strict=True))
    positions = IteratorMeta(
        _find_role("sample", meta.sample_pos, layout, key_of),
        _find_role("target", meta.target_pos, layout, key_of),
        _find_role("tag", meta.tag_pos, layout, key_of),
    )
    return replace(
        derived,
        iterator_meta=positions,
        column_names=declared_names,
        column_kinds=_rename_kinds(derived.column_kinds or (), layout, names) or None,
    )


def _list_names_below(layout: ColumnLayout, names_below: Sequence[str]) -> list[Any]:
    """Return for each column of the layer its name or key below; an empty list without names.

    Args:
        layout: where the columns come from.
        names_below: the names of the columns of tuples below; empty if they have none.
    """
    all_names: Sequence[Any] = names_below
    if layout.form_below.kind != "tuple":
        all_names = layout.form_below.keys
    if not all_names:
        return []
    return [all_names[layout.form_below.keys.index(key)] for key in layout.keys_below]


def _is_left_out(position: ColumnKey, layout: ColumnLayout) -> bool:
    """Return whether the samples below have a column, and those of the layer do not."""
    key = layout.form_below.normal(position)
    return key in layout.form_below.keys and key not in layout.keys_below


def _find_role(
    role: str, position: ColumnKey, layout: ColumnLayout, key_of: Mapping[ColumnKey, ColumnKey]
) -> ColumnKey:
    """Return where the sample, the target or the tag is.

    Args:
        role: ``"sample"``, ``"target"`` or ``"tag"``.
        position: where it is below.
        layout: where the columns come from.
        key_of: the columns of the layer by those below.
    """
    key = layout.form_below.normal(position)
    if key in key_of:
        return key_of[key]
    if _is_left_out(position, layout) and not isinstance(position, str):
        # Its position would name another column here. The word of the role names none.
        return role
    return position


def _rename_kinds(
    kinds_below: Iterable[tuple[Any, Any]], layout: ColumnLayout, names: list[Any]
) -> tuple[tuple[Any, Any], ...]:
    """Return the kinds of columns by the names that the columns have in the layer.

    Args:
        kinds_below: the names of columns below, each with the kind of the column.
        layout: where the columns come from.
        names: for each column of the layer its name below; empty if they have none.
    """
    keys_of_kinds: Sequence[Any] = names or layout.keys_below
    keys_here: Sequence[Any] = layout.form.keys
    if names and layout.form.kind == "tuple":
        keys_here = names
    key_of = dict(zip(keys_of_kinds, keys_here, strict=True))
    return tuple([(key_of[key], kind) for key, kind in kinds_below if key in key_of])


# ---------------------------------------------------------------------- columns and names


def list_column_names(iterator: DatasetIteratorIF) -> list[ColumnKey]:
    """Return the names of an iterator's columns, as ``iterator.column_names`` does."""
    names = column_names(iterator)
    if names:
        return list(names)
    return list(find_form(access_to(iterator)).keys)


def choose_columns(
    columns: tuple[ColumnKey, ...], form: SampleForm, *, as_tuples: bool
) -> ColumnLayout:
    """Return the layout of some columns, in the order given.

    Args:
        columns: the columns; empty for all columns.
        form: the form of the samples below.
        as_tuples: whether dict samples become tuples.

    Raises:
        ConfigError: there is no such column.
    """
    keys = form.find_all(columns) if columns else form.keys
    if form.kind == "dict" and not as_tuples:
        return ColumnLayout(form, keys, SampleForm("dict", keys))
    return ColumnLayout(form, keys, SampleForm.tuples(len(keys)))


def list_columns(columns: Any) -> list[Any]:
    """Return a selection of columns as a list.

    Args:
        columns: what a user passed as ``columns=``.

    Raises:
        ConfigError: it is a single name, or has no order.
    """
    if isinstance(columns, (str, bytes)):
        raise ConfigError(
            f"columns must be a list of names, got {columns!r:.80}; one column is "
            f"columns=[{columns!r:.80}]"
        )
    if isinstance(columns, Mapping):
        raise ConfigError(
            f"columns must be a list of names, got {columns!r:.80}; rename() gives columns other "
            f"names"
        )
    if isinstance(columns, Set) or not isinstance(columns, Iterable):
        raise ConfigError(
            f"columns must be a list of names, in the order of the columns, got {columns!r:.80}"
        )
    return list(columns)


def check_columns(iterator: Any, columns: Sequence[ColumnKey]) -> tuple[ColumnKey, ...]:
    """Return columns, with positions in place of the names that a meta declares.

    Args:
        iterator: the iterator that has the columns.
        columns: a list of positions, names and keys.

    Raises:
        ConfigError: ``columns`` is no such list, or names a column twice.
    """
    if isinstance(columns, (str, bytes)) or hasattr(columns, "__index__"):
        raise ConfigError(
            f"columns must be a list of positions or keys, got {columns!r}; "
            f"one column is [{columns!r}]"
        )
    keys: list[ColumnKey] = []
    for column in columns:
        if not isinstance(column, str) and not hasattr(column, "__index__"):
            raise ConfigError(
                f"each column is named by its position or key, one argument each, as in "
                f"select('image', 'label'), not by {join_names(columns)}; dataset[[0, 1]] and "
                f"dataset[range(10)] take samples"
            )
        key = column if isinstance(column, str) else operator.index(column)
        keys.append(column_key(iterator, key))
    if len(set(keys)) < len(keys):
        raise ConfigError(f"a column is selected twice, among {join_names(columns)}")
    return tuple(keys)


def check_names(names: Sequence[Any]) -> None:
    """Check new names of columns.

    Raises:
        ConfigError: they are not distinct strings.
    """
    are_strings = all(isinstance(name, str) for name in names)
    if not are_strings or len(set(names)) < len(names):
        raise ConfigError(
            f"the names of columns are strings, no two the same, got {join_names(names)}"
        )


def join_names(names: Iterable[Any]) -> str:
    """Return the names of columns as messages list them."""
    return ", ".join(repr(name) for name in names)
