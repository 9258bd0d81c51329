"""The facts that answers give of a dataset."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from data_stack.agents.datasets import FoundDataset
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.meta import column_key
from data_stack.exception import ConfigError
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.definition import DatasetDefinition
from data_stack.io.redaction import hide_credentials
from data_stack.repository.places import Place
from data_stack.reproduce.difference import DatasetDiff
from data_stack.show.column_report import ColumnReport, columns_of
from data_stack.show.sample_parts import default_keys, part_of
from data_stack.show.target_distribution import (
    MAX_VALUES_OF_A_TARGET,
    class_name,
    n_values_of,
    target_distribution,
)

#: Columns are found from this many samples.
_N_SAMPLES_TO_FIND_COLUMNS: Final = 3

#: Positions that ``diff`` returns of each kind of difference.
_N_POSITIONS: Final = 10


def find_columns(samples: DatasetIteratorIF) -> tuple[ColumnReport, ...]:
    """Return reports on the columns, from the schema and a few samples."""
    n_samples = len(samples)
    if n_samples == 0:
        return ()
    n_read = min(n_samples, _N_SAMPLES_TO_FIND_COLUMNS)
    spread = np.linspace(0, n_samples - 1, n_read).round().astype(int)
    return columns_of(samples, [samples[position] for position in spread.tolist()])


def facts_of_column(column: ColumnReport) -> dict[str, Any]:
    """Return name, role, dtype and shape of a column."""
    key = "value" if column.key is None else column.key
    facts: dict[str, Any] = {"column": key}
    if column.name is not None:
        facts["column"] = column.name
    if column.role is not None:
        facts["role"] = column.role
    facts["dtype"] = column.dtype
    facts["shape"] = column.shape
    return facts


def count_values(samples: DatasetIteratorIF, column: int | str | None) -> Any:
    """Return the number of samples of each value of a column.

    Args:
        samples: at least one.
        column: its name or number; None for the target.

    Returns:
        None if no column is named, and the samples declare no target or one of large arrays.

    Raises:
        ConfigError: there is no such column, or its values are large arrays.
    """
    meta: Any = getattr(samples, "dataset_meta", None)
    first_sample = samples[0]
    target_key = None
    if meta is not None:
        _, target_key = default_keys(meta, first_sample)
    if column is None:
        if target_key is None or part_of(first_sample, target_key) is None:
            return None
        key = target_key
    else:
        key = column_key(samples, column)

    value = part_of(first_sample, key)
    if n_values_of(value) > MAX_VALUES_OF_A_TARGET:
        if column is None:
            return None
        raise ConfigError(
            f"the values of column {column!r:.80} are arrays of {n_values_of(value):,} values, "
            f"which are not counted"
        )
    rows = []
    for counted_value, n_samples in target_distribution(samples.read_column(key)).items():
        row: dict[str, Any] = {"value": counted_value, "n_samples": n_samples}
        if key == target_key:
            name = class_name(counted_value, meta.class_names, getattr(meta, "target_kind", None))
            if name is not None:
                row["name"] = name
        rows.append(row)
    return rows


def list_sources(found: FoundDataset) -> list[dict[str, Any]]:
    """Return identifier, size, digest and places of each source of a dataset."""
    if isinstance(found.dataset, Place):
        return []
    factory = found.dataset.factory
    if not isinstance(factory, DatasetFactory):
        return []
    sources = []
    for source in DatasetDefinition(factory, DatasetFactory).retrieval_jobs:
        places = [hide_credentials(str(place)) for place in source.sources]
        sources.append(
            {
                "identifier": source.identifier,
                "n_bytes": source.size,
                "sha256": source.sha256,
                "places": places,
            }
        )
    return sources


def list_left_out(found: FoundDataset) -> tuple[str, ...]:
    """Return which files of a place are not read; empty if none is left out."""
    if not isinstance(found.dataset, Place):
        return ()
    return found.dataset.describe().left_out


def find_examples(difference: DatasetDiff) -> dict[str, Any]:
    """Return the places of some samples of each kind of difference."""

    def places(positions: Any) -> list[dict[str, Any]]:
        shown = []
        for split, position in positions[:_N_POSITIONS].tolist():
            shown.append({"split": difference.splits[split], "position": position})
        return shown

    examples: dict[str, Any] = {}
    if len(difference.added):
        examples["added"] = places(difference.added)
    if len(difference.removed):
        examples["removed"] = places(difference.removed)
    pairs = {
        "moved": difference.moved,
        "relabelled": difference.relabelled,
        "changed": difference.changed,
    }
    for name, (first, second) in pairs.items():
        if len(first):
            examples[name] = {"in_first": places(first), "in_second": places(second)}
    return examples
