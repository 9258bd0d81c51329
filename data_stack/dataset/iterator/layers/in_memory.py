"""The samples of an iterator, all read from the start and kept in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.contract import AccessedDatasetIterator, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.data_in_memory import digest_of_data_in_memory
from data_stack.dataset.iterator.fluent import FluentIterator
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.kept_columns import (
    KeptColumns,
    KeptColumnsAccess,
    read_columns,
)
from data_stack.dataset.iterator.layers.kept_samples import SampleListAccess
from data_stack.exception import DataStackError
from data_stack.io.progress import with_bar
from data_stack.util.functions import iterate_all

#: What the progress bar says.
_DESCRIPTION = "Loading iterator to memory"


@layer("in_memory")
class InMemoryDatasetIterator(AccessedDatasetIterator):
    """The samples of ``dataset_iterator``, read from first to last when this is made, then kept.

    Samples come back as they were read, type and all. Where the iterator below has columns of one
    dtype and shape (``SampleAccess.fixed_columns``: arrays, HDF5, records and Parquet of numbers;
    combinations of these, and what is zipped of them), each column is kept as one array: a million
    small samples then take the memory of their bytes, and stay shared with forked workers. All
    other samples are kept in a list. Without samples, the columns below are kept, with their types.

    Samples, batches and columns may be written to: they are copies, at any depth, by the rule of
    :func:`~data_stack.values.copies.copy_value`. Objects of other classes are not copied; a whole
    column of numbers is not copied either, but read-only.

    Its fingerprint is that of the source, ``dataset_iterator``, as the source was when it was read.
    If the source has changed since (an array was written to, a file replaced), the fingerprint is
    made of the samples themselves.

    ``underlying_iterators`` has the source, which therefore stays in memory. With
    ``keep_source=False`` it does not, and ``underlying_iterators`` is empty. A pickle holds the
    samples only, so that it reaches workers even where the source has open files: in its copy
    ``underlying_iterators`` is empty too.

    Args:
        dataset_iterator: the source; any iterable of samples.
        progress: whether to show a progress bar on stderr; None: if stderr is a terminal, or in a
            notebook.
        keep_source: whether ``underlying_iterators`` has ``dataset_iterator``.

    Raises:
        EarlyEndError: ``dataset_iterator`` yields fewer samples than its length says.
    """

    #: The samples as columns; None where they are kept in ``_samples``.
    _columns: KeptColumns | None

    #: The samples; not set where they are kept in ``_columns``.
    _samples: list[Sample]

    #: The fingerprint of the source that a pickle did not hold; None where no pickle was made.
    _known_fingerprint: str | None = None

    #: The fingerprint, once it was computed: the samples in memory never change.
    _kept_fingerprint: str | None = None

    #: The :func:`~data_stack.dataset.iterator.data_in_memory.digest_of_data_in_memory` of the
    #: source.
    _digest_of_sources = 0

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF | Iterable[Sample],
        *,
        progress: bool | None = False,
        keep_source: bool = True,
    ) -> None:
        self._stacked_on: list[Any] = []
        if keep_source:
            self._stacked_on = [dataset_iterator]
        # Before the source is read, so that a change while it is read counts, too.
        self._take_digest_of_sources()
        self._columns = None
        if isinstance(dataset_iterator, DatasetIteratorIF):
            source = access_to(dataset_iterator)
            self._columns = read_columns(source, progress, description=_DESCRIPTION)
        if self._columns is None:
            self._samples = _read_samples(dataset_iterator, progress)

    def make_access(self) -> SampleAccess:
        iterators = self._iterators_below()
        source = access_to(iterators[0]) if iterators else None
        if self._columns is None:
            return SampleListAccess(self._samples, source)
        return KeptColumnsAccess(self._columns, source)

    @property
    def _kept_samples(self) -> list[Sample] | None:
        """The samples themselves, which must not be changed; None where columns are kept."""
        return None if self._columns is not None else self._samples

    # ------------------------------------------------------------------ the source

    def has_changed_sources(self) -> bool:
        """Return whether arrays or lists of the source have other values than when they were read.

        The fingerprint of the source is then not that of the samples.
        """
        sources = self._iterators_below()
        return bool(sources) and digest_of_data_in_memory(sources[0]) != self._digest_of_sources

    def attach_source(self, source: Sequence[Any]) -> None:
        """Put back the ``underlying_iterators`` that a pickle of this iterator left behind."""
        self._stacked_on = list(source)
        self._take_digest_of_sources()

    def _take_digest_of_sources(self) -> None:
        iterators = self._iterators_below()
        if iterators:
            self._digest_of_sources = digest_of_data_in_memory(iterators[0])

    def _iterators_below(self) -> list[DatasetIteratorIF]:
        return [source for source in self._stacked_on if isinstance(source, DatasetIteratorIF)]

    def __getstate__(self) -> dict[str, Any]:
        # The source is not pickled; its fingerprint is, if it has one.
        source_fingerprint = self._known_fingerprint
        if source_fingerprint is None and self._iterators_below():
            with suppress(DataStackError):
                # Not self.fingerprint(): a client's class may have another method of that name.
                source_fingerprint = FluentIterator.fingerprint(self)
        state = dict(super().__getstate__())
        state["_stacked_on"] = []
        state["_known_fingerprint"] = source_fingerprint
        state["_kept_fingerprint"] = None
        return state


def _read_samples(samples: Iterable[Sample], progress: bool | None) -> list[Sample]:
    """Read samples that may differ in their columns."""
    sized: Any = samples if hasattr(samples, "__len__") else list(samples)
    n_samples = len(sized)
    one_by_one = iterate_all(sized, n_samples)
    return list(with_bar(one_by_one, progress, desc=_DESCRIPTION, total=n_samples))
