"""Makes the meta of samples, which says which column is the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF, InformedDatasetIterator
from data_stack.dataset.meta import DatasetMeta, IteratorMeta, TargetKind
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean

#: The position of the sample in a meta whose samples have no such column. A meta always has one.
_NO_SAMPLE = "sample"

#: The position of the tag in a meta whose samples have no such column.
_NO_TAG = "tag"


def with_target(
    iterator: DatasetIteratorIF,
    source: str,
    columns: Sequence[Any],
    target: Any,
    class_names: Any = None,
    sample: Any = None,
) -> DatasetIteratorIF:
    """Return an iterator over the same samples whose ``dataset_meta`` names the target.

    Args:
        iterator: tuple or dict samples.
        source: the name of the samples, which becomes the name of the dataset in the meta.
        columns: the positions or names of all columns.
        target: the column of the target; None to return ``iterator`` as it is.
        class_names: the names of the target's classes; None or empty if there are none.
        sample: the column of the sample itself; None for the only column besides the target.

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
    if sample is None:
        sample = _find_sample(columns, target)
    names = None
    target_kind: TargetKind | None = None
    if class_names:
        names = tuple(class_names)
        target_kind = "label"
    meta = DatasetMeta(
        IteratorMeta(sample, target, _NO_TAG),
        source,
        source,
        target_kind=target_kind,
        class_names=names,
    )
    return InformedDatasetIterator(iterator, meta)


def _find_sample(columns: Sequence[Any], target: Any) -> Any:
    """Return the only column besides the target; :data:`_NO_SAMPLE` if there are several."""
    others = [column for column in columns if column != target]
    if len(others) == 1:
        return others[0]
    return _NO_SAMPLE
