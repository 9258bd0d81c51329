"""Says which column of some samples is the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF, InformedDatasetIterator
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean

#: What a meta says where no column is the sample or the tag.
_NO_SAMPLE = "sample"
_NO_TAG = "tag"


def with_target(
    iterator: DatasetIteratorIF,
    source: str,
    columns: Sequence[Any],
    target: Any,
    class_names: Any = None,
    sample: Any = None,
) -> DatasetIteratorIF:
    """Return the iterator with a meta that says which column is the target.

    Args:
        iterator: tuple or dict samples.
        source: name of the samples.
        columns: positions or names of their columns.
        target: the column of the target; None for no target and no meta.
        class_names: names of the target's classes.
        sample: the column of the sample itself; None for the other column, if there is only one.

    Raises:
        ConfigError: the column ``target`` does not exist.
    """
    if target is None:
        return iterator
    if target not in columns:
        suggestion = did_you_mean(target, [name for name in columns if isinstance(name, str)])
        raise ConfigError(
            f"target {target!r:.80} is not a column{suggestion}; "
            f"the columns are {', '.join(map(repr, columns))}"
        )
    sample_pos = sample
    if not sample:
        others = [column for column in columns if column != target]
        sample_pos = others[0] if len(others) == 1 else _NO_SAMPLE
    names = tuple(class_names or ()) or None
    meta = DatasetMeta(
        IteratorMeta(sample_pos, target, _NO_TAG),
        source,
        source,
        target_kind="label" if names else None,
        class_names=names,
    )
    return InformedDatasetIterator(iterator, meta)
