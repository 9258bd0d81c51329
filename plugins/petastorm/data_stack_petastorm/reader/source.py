"""What a reader reads: the rows of a dataset, transformed, or n-grams of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.formats.parquet import ParquetDataset, Schema
from data_stack_petastorm.ngram import NGram
from data_stack_petastorm.ngram_iterator import NGramIterator, names_at_all_offsets
from data_stack_petastorm.reader.dataset import OpenedDataset
from data_stack_petastorm.transform import BatchTransform, TransformSpec
from data_stack_petastorm.transform_trial import complete_spec


@dataclass(frozen=True)
class ReaderSource:
    """What a reader reads.

    Attributes:
        iterator: the rows or n-grams.
        fields: the fields of the rows, in their order.
        block_lengths: number of samples of ``iterator`` in each row group, shape
            ``(n_row_groups,)``.
        row_group_transform: transforms the columns of a whole row group of the dataset, for a
            reader of row groups that needs it; None: the rows of ``iterator`` are enough.
        drops_rows: whether ``row_group_transform`` drops rows.
    """

    iterator: Any
    fields: Schema
    block_lengths: npt.NDArray[np.int64]
    row_group_transform: Callable[..., Any] | None = None
    drops_rows: bool = False


def make_source(
    opened: OpenedDataset, spec: TransformSpec | None, *, batched: bool, seed: int
) -> ReaderSource:
    """Return what a reader of a dataset reads.

    Args:
        opened: the dataset.
        spec: transforms the rows; None: no transform.
        batched: whether the reader returns row groups.
        seed: the seed of a transform that draws.

    Raises:
        ConfigError: the transform or the n-gram does not fit the dataset.
    """
    dataset = opened.dataset
    if spec is not None:
        source = _transform_rows(dataset, spec, batched=batched, seed=seed)
    else:
        fields = Schema(dataset.schema.name, [dataset.schema[name] for name in opened.names])
        source = ReaderSource(dataset, fields, dataset.block_lengths)
    if opened.ngram is not None:
        return _make_ngrams(source, opened.ngram, dataset)
    return source


def _transform_rows(
    dataset: ParquetDataset, spec: TransformSpec, *, batched: bool, seed: int
) -> ReaderSource:
    """Return the transformed rows of a dataset."""
    default_form: Any = "pandas" if batched else None
    spec, drops_rows = complete_spec(spec, dataset, default_form)
    fields = spec.schema_of(dataset.schema)
    if spec.func is None:
        return ReaderSource(dataset.select(*fields.fields), fields, dataset.block_lengths)

    function = BatchTransform(spec, fields, zones=dataset.time_zones)
    seed_of_draws = seed if spec.draws else None
    rows = dataset.map(function, batched=True, seed=seed_of_draws)
    source = ReaderSource(rows, fields, dataset.block_lengths)

    # A function of DataFrames may drop rows, which the function of an iterator's rows may not. So
    # it receives whole row groups, unless it draws: draws come from the iterator's seed.
    if batched and spec.on == "pandas" and not spec.draws:
        row_group_transform = BatchTransform(spec, fields, may_drop=True, zones=dataset.time_zones)
        return replace(source, row_group_transform=row_group_transform, drops_rows=drops_rows)
    return source


def _make_ngrams(rows: ReaderSource, ngram: NGram, dataset: ParquetDataset) -> ReaderSource:
    """Return the n-grams of rows, with the fields of all offsets.

    ``ngram`` is changed: names and expressions become fields, as programs of Petastorm expect.
    """
    ngram.resolve_regex_field_names(rows.fields, dataset.schema)
    sequences = NGramIterator(rows.iterator, ngram, schema=rows.fields, timestamps=dataset)
    fields = rows.fields.view(names_at_all_offsets(sequences.fields))
    return ReaderSource(sequences, fields, sequences.block_lengths)
