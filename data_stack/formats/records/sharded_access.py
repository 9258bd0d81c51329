"""Access to the samples of a record dataset in shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from data_stack.dataset.iterator import Batch, ColumnKey, Sample, SampleAccess, access_to
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.iterator.blocks import MAX_KEPT_REMOTE_BYTES
from data_stack.dataset.iterator.layers.combined_access import CombinedAccess
from data_stack.dataset.iterator.origins import Origin
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.formats.records.reader import RecordReader
from data_stack.formats.records.record_access import RecordAccess
from data_stack.formats.records.record_offsets import as_record_numbers
from data_stack.util.executor import waiting

#: The maximum number of requests that are sent at once.
_REQUESTS_AT_ONCE = 32


class ShardedAccess(CombinedAccess):
    """Access to records in shards: a batch is one request to each shard.

    Args:
        readers: the readers of the shards.
    """

    #: The names of the columns to read.
    _keys: list[str]

    #: Access to the first shard, whose columns are declared as those of all shards.
    _first: SampleAccess

    def __init__(self, readers: Sequence[RecordReader]) -> None:
        lengths = [len(reader) for reader in readers]
        super().__init__([access_to(reader) for reader in readers], lengths)
        self._keys = list(readers[0].spec)
        self._first = access_to(readers[0])

    @cached_property
    def _n_remote_bytes(self) -> float:
        """The size of all samples that are read from a store. Finding out may take a request."""
        n_bytes = 0.0
        for part in self.parts:
            if isinstance(part, RecordAccess):
                n_bytes += part.remote_bytes() * part.n_samples
        return n_bytes

    @cached_property
    def prefers_blocks(self) -> bool:  # type: ignore[override]  # read-only here
        """Whether the cache of the store cannot hold all samples."""
        return self._n_remote_bytes > MAX_KEPT_REMOTE_BYTES

    def origins(self, position: int) -> Sequence[Origin]:
        # The shards are one source. The location of a record names its shard.
        return SampleAccess.origins(self, position)

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        self._fetch(positions, self._keys)
        return super().samples(positions)

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[Any]:
        if positions is not None:
            self._fetch(positions, keys)
        if self.n_samples == 0:
            # The first shard knows dtypes and shapes without a sample.
            return self._first.columns(keys, positions)
        return super().columns(keys, positions)

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if len(positions) == 0:
            columns = self.columns(self._keys, positions)
            return dict(zip(self._keys, columns, strict=True))
        self._fetch(positions, self._keys)
        return super().batch(positions)

    def _fetch(self, positions: IndexArrayOfInts, keys: Sequence[ColumnKey]) -> None:
        """Fetch at once what several shards of a remote store have of samples."""
        if not self._n_remote_bytes:
            return
        requests = self._requests(positions)
        if len(requests) <= 1:
            return
        fetches: list[Callable[[], object]] = []
        for request in requests:
            part = request.source
            if not isinstance(part, RecordAccess):
                continue
            if not part.await_prefetched(request.positions):
                fetches += part.fetches(as_record_numbers(request.positions), keys)
        for _ in waiting.map(_call, fetches, at_once=_REQUESTS_AT_ONCE):
            pass

    # ------------------------------------------------------------------ description

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        # The first batch is not to wait until the columns of all remote shards are open.
        return self._n_remote_bytes == 0 and super().fixed_columns

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        return self._first.declare_columns()

    def content_fingerprint(self) -> list[Any]:
        return [part.content_fingerprint() for part in self.parts]


def _call(fetch: Callable[[], object]) -> object:
    return fetch()
