"""Prints samples as a table in the terminal: a line for each sample, a cell for each column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_stack.cli.output import print_result, whole_table
from data_stack.cli.settings import Settings
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.show.display_value import shorten
from data_stack.show.sample_parts import Key, default_keys, label_text, part_of

#: The maximum number of characters of a cell, so that several columns fit into a line.
_MAX_CHARACTERS = 60

#: The maximum number of characters of a cell of the only column beside position and label.
_MAX_CHARACTERS_ALONE = 100


def print_samples(
    settings: Settings, iterator: DatasetIteratorIF, positions: Sequence[int]
) -> None:
    """Print samples with all of their columns: the position, the label, then the others in order.

    As JSON, each sample also has the fields ``label`` and ``sample``, which repeat the columns of
    the label and of the sample under these names.

    Args:
        settings: the settings of the command.
        iterator: an iterator over the samples.
        positions: the positions of the samples to print.
    """
    first_sample: Any = iterator[0] if len(iterator) > 0 else ()
    meta: Any = getattr(iterator, "dataset_meta", None)
    class_names = getattr(meta, "class_names", None)
    sample_key, target_key = default_keys(meta, first_sample)

    columns = _name_columns(first_sample, iterator.column_names)
    is_target_known = meta is not None and target_key in columns  # else it is only a guess
    if is_target_known:
        # The label comes first.
        columns = {target_key: columns[target_key], **columns}
    max_characters = _MAX_CHARACTERS if len(columns) > 2 else _MAX_CHARACTERS_ALONE

    cells: list[list[str]] = []
    rows: list[dict[str, Any]] = []
    for position in positions:
        sample = iterator[position]
        texts: dict[Key, str] = {}
        for key in columns:
            texts[key] = _cell_text(part_of(sample, key), max_characters)
        if target_key in columns:
            texts[target_key] = label_text(part_of(sample, target_key), class_names)
        cells.append([str(position), *texts.values()])

        row: dict[str, Any] = {name: texts[key] for key, name in columns.items()}
        row["position"] = position
        row.setdefault("label", texts.get(target_key, ""))
        row.setdefault("sample", texts.get(sample_key, ""))
        rows.append(row)
    table = whole_table(["position", *columns.values()], cells, right=(0,))
    print_result(settings, rows, table)


def _name_columns(sample: Any, declared_names: Sequence[Any]) -> dict[Key, str]:
    """Return the names of columns by their keys: the declared names, or else the keys."""
    if isinstance(sample, dict):
        return {key: str(key) for key in sample}
    if not isinstance(sample, (tuple, list)):
        return {0: "sample"}
    if len(declared_names) == len(sample):
        return {number: str(name) for number, name in enumerate(declared_names)}
    return {number: str(number) for number in range(len(sample))}


def _cell_text(value: Any, max_characters: int) -> str:
    """Return a value as a cell; of an array with several dimensions its dtype and shape."""
    if getattr(value, "ndim", 0) > 1:
        return f"{value.dtype} {' × '.join(map(str, value.shape))}"
    return shorten(value, max_characters)
