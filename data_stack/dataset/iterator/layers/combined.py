"""The samples of several iterators, one iterator after the other."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from data_stack.dataset.class_lists import check_class_lists
from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import AccessedDatasetIterator, DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.combined_access import CombinedAccess
from data_stack.dataset.meta import DatasetMeta, MetaFactory
from data_stack.exception import ConfigError

#: Facts of a meta that iterators may state differently.
_SHARED_FACTS = ("target_kind", "class_names", "feature_names", "column_names", "column_kinds")


@layer("combined")
class CombinedDatasetIterator(AccessedDatasetIterator):
    """The samples of the first iterator, then those of the second, and so on.

    The length of each iterator is taken when this is made: samples that an iterator gets later are
    not read. A combination of combinations reads from its innermost parts directly;
    ``underlying_iterators`` still has the iterators given.

    Args:
        iterators: any number of iterators, also none, also the same one repeatedly; they are not
            closed.

    Raises:
        ConfigError: they are not iterators, have different ``class_names``, or have more than
            ``sys.maxsize`` samples or 2**20 parts in all.
    """

    #: How many samples each iterator has.
    _lengths: list[int]

    #: The name of each iterator; None for their numbers.
    _names: Sequence[str] | None = None

    def __init__(self, iterators: Sequence[DatasetIteratorIF]) -> None:
        if isinstance(iterators, DatasetIteratorIF):
            raise ConfigError(
                f"expected a list of iterators to combine, got one iterator: "
                f"write [{iterators!r:.80}, …]"
            )
        self._stacked_on = list(iterators)
        check_class_lists(self._stacked_on, "combine")
        self._lengths = [len(as_iterator(iterator)) for iterator in self._stacked_on]
        n_samples = sum(self._lengths)
        if n_samples > sys.maxsize:
            raise ConfigError(
                f"{len(self._lengths)} iterators have {n_samples} samples, more than Python can "
                f"count"
            )

    @classmethod
    def _from_arguments(
        cls, underlying: list[Any], arguments: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        return cls(underlying, **arguments)

    def make_access(self) -> SampleAccess:
        given = [access_to(as_iterator(iterator)) for iterator in self._stacked_on]
        return CombinedAccess(given, self._lengths, self._names)

    def _name_sources(self, names: Sequence[str]) -> None:
        """Give each iterator a name, by which the origins of samples call it."""
        self._names = list(names)

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        return share_meta(meta, self._stacked_on)


def share_meta(meta: DatasetMeta, iterators: Sequence[Any]) -> DatasetMeta:
    """Return ``meta`` without the facts that the metas of other iterators contradict.

    Args:
        meta: the meta of the first iterator.
        iterators: the iterators, with meta or without.
    """
    # A client's own meta may lack attributes. Copies have all.
    others = [
        MetaFactory.copy_dataset_meta(iterator.dataset_meta)
        for iterator in iterators
        if hasattr(iterator, "dataset_meta")
    ]
    contradicted: dict[str, Any] = {}
    for name in _SHARED_FACTS:
        if any(getattr(other, name) != getattr(meta, name) for other in others):
            contradicted[name] = None
    return replace(meta, **contradicted)
