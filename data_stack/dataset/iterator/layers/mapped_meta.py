"""What a meta still says of samples after a function has mapped them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from data_stack.dataset.iterator.access import ColumnKey
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layers.transformed import normalize_keys
from data_stack.dataset.meta import DatasetMeta, DatasetMetaIF, IteratorMeta
from data_stack.values.stacking import SampleForm


def normalize_columns(
    iterator: DatasetIteratorIF, meta: DatasetMetaIF, by_column: Mapping[ColumnKey, Any]
) -> tuple[Mapping[ColumnKey, Any], ColumnKey, ColumnKey]:
    """Return columns as a sample has them: positions from 0 on, or keys.

    Reads sample 0 if a position counts from the end.

    Args:
        iterator: the samples.
        meta: says where the sample proper and the target are.
        by_column: any values by column.

    Returns:
        ``by_column``, the position of the sample proper, that of the target.
    """
    sample_pos = meta.sample_pos
    target_pos = meta.target_pos
    keys = (*by_column, sample_pos, target_pos)
    count_from_end = any(isinstance(key, int) and key < 0 for key in keys)
    if not count_from_end or len(iterator) == 0:
        return by_column, sample_pos, target_pos
    # Only a sample tells where the end is.
    form = SampleForm.of(as_iterator(iterator)[0])
    return normalize_keys(form, by_column), form.normal(sample_pos), form.normal(target_pos)


def derive_meta_of_mapped_column(
    iterator: DatasetIteratorIF, meta: DatasetMeta, column: ColumnKey
) -> DatasetMeta:
    """Return the meta after a map of one column, which keeps the columns and their names.

    Args:
        iterator: the samples that are mapped.
        meta: the meta of the samples that are mapped.
        column: the column that is mapped.
    """
    mapped_columns, sample_pos, target_pos = normalize_columns(iterator, meta, {column: None})
    if sample_pos in mapped_columns:
        meta = replace(meta, feature_names=None)
    if target_pos in mapped_columns:
        meta = replace(meta, target_kind=None, class_names=None)
    return meta


def derive_meta_of_mapped_samples(meta: DatasetMeta, names: tuple[str, ...] | None) -> DatasetMeta:
    """Return the meta after a map of whole samples, which may move columns.

    Args:
        meta: the meta of the samples that are mapped.
        names: the names of the columns after the map; None if they are unknown.
    """
    names_before = meta.column_names or ()
    names_after = names
    if names is None and meta.column_names is not None:
        names_after = ()
    kinds: list[Any] = []
    for name, kind in meta.column_kinds or ():
        is_lost = name in names_before and name not in (names or ())
        if not is_lost:
            kinds.append((name, kind))
    derived = replace(
        meta,
        feature_names=None,
        column_names=names_after,
        column_kinds=tuple(kinds) or None,
    )
    if names is None:
        return derived
    positions = IteratorMeta(
        follow_role("sample", meta.sample_pos, names_before, names),
        follow_role("target", meta.target_pos, names_before, names),
        follow_role("tag", meta.tag_pos, names_before, names),
    )
    if positions.target_pos == "target":
        # No column is the target.
        derived = replace(derived, target_kind=None, class_names=None)
    return replace(derived, iterator_meta=positions)


def follow_role(
    role: str, position: ColumnKey, names_before: Sequence[str], names: Sequence[str]
) -> ColumnKey:
    """Return where the sample, the target or the tag is after a map that names its columns.

    Args:
        role: ``"sample"``, ``"target"`` or ``"tag"``.
        position: where it was.
        names_before: the names of the columns before the map; empty if they are unknown.
        names: the names of the columns after the map.

    Returns:
        A position; where no column has the role, the word of the role, which names no column.
    """
    if isinstance(position, str):
        # Samples were dicts.
        return names.index(position) if position in names else role
    n_columns_before = len(names_before) or len(names)
    if -n_columns_before <= position < 0:
        position += n_columns_before
    if position < len(names_before) and names_before[position] in names:
        return names.index(names_before[position])
    # The column has another name now, or had none. It is taken to be where it was, unless the
    # column that is there now was another one before.
    is_new_name = 0 <= position < len(names) and names[position] not in names_before
    return position if is_new_name else role
