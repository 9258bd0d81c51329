"""Samples of an iterator, kept in a stored resource once they were read."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any

from data_stack.dataset.iterator.access import OneToOneAccess, access_to, own_access
from data_stack.dataset.iterator.contract import DatasetIteratorIF, Sample, as_iterator
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.iterator.layers.stored_samples import StoredSamples, write_samples
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.recipes.recipe import code_digest, fingerprint, instability_reason
from data_stack.exception import ConfigError, ResourceNotFoundError
from data_stack.io.identifiers import check_identifier
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.url import store_at
from data_stack.util.forks import ForkLock
from data_stack.util.logger import logger

_PAUSE_SECONDS = 0.2
# After this, a process that another one has been writing for goes on beside it.
_LEASE_SECONDS = 3600.0


@layer("stored_cache")
class StoredCacheDatasetIterator(LayerDatasetIterator):
    """The samples of ``dataset_iterator``, written once into a resource and read from there by every process.

    The constructor reads nothing. The first access to a sample reads all samples in order, with about 256 KiB in memory at a
    time, and publishes them atomically as one resource; :meth:`fill` does so at once, e.g. before workers are started. Other
    processes use that resource, by range, or by a memory map where the store has files. If two processes start at once, one
    waits for the other where the store has leases; otherwise both write the same.

    The resource holds the fingerprint of ``dataset_iterator`` (:meth:`fingerprint`) and the number of samples. If either has
    changed, it is written again, and the log says so. The compiled code of functions of modules counts too, but not that of
    functions they call, nor that of a dataset's ``open``: change ``version`` for these. An iterator of your own class, a lambda
    or a callable object has no fingerprint that another process can rely on, and needs a ``version``.

    Samples come back as they were, type and all, each time as new objects: None, Python's numbers, strings and bytes, numpy's
    scalars and arrays, torch's tensors without gradient, and tuples, lists, dicts and frozensets of such. A batch is one request.
    Values of different sizes are records, in which arrays become little-endian. Rows of a memory-mapped file become plain arrays.
    Reading never executes stored data, and every byte is checked against a checksum. The format:
    :mod:`data_stack.dataset.iterator.layers.stored_samples`.

    Put random layers above the cache: of those below it, it keeps the first draw.

    Args:
        dataset_iterator: what is read; it stays the caller's to close.
        storage: where the resource is kept: a path, a URL or a connector, as for ``data_stack.load``.
        identifier: its name; None for ``caches/`` and the fingerprint, so that different samples never meet. The cache that a
            recipe or another epoch makes of this one has a name of that kind.
        version: change it when the samples change and the fingerprint does not. Required where there is no reliable fingerprint.

    Raises:
        ConfigError: ``storage`` is not a store; ``dataset_iterator`` has no reliable fingerprint, and there is no
            ``version``; or, at the first access, a sample has a value of another type, the
            iterator returns more or fewer samples than its length, or the resource of that name is not a
            cache: it is not overwritten.
        MalformedIdentifierError: ``identifier`` is not in the grammar.
        DatasetFileCorruptError: at an access, the resource is damaged; deleting it lets it be written again.
        StorageError: at the first access, it could not be written; nothing was published.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        storage: StorageConnector | str | os.PathLike[str],
        identifier: str | None = None,
        *,
        version: str | None = None,
    ) -> None:
        storage = store_at(storage)
        if not isinstance(storage, StorageConnector):
            raise ConfigError(f"a stored cache needs a store: a path, a URL or a StorageConnector, not {storage!r:.80}")
        if version is None:
            reason = instability_reason(as_iterator(dataset_iterator))
            if reason is not None:
                raise ConfigError(
                    f"this stack has no reliable fingerprint ({reason}), so a stored cache could return outdated samples. "
                    f"Pass a version, cache(storage=…, version='1'), and another "
                    f"version whenever the samples change"
                )
        # the identifier is not in a recipe: a stranger's must not choose what is written, nor two epochs share a name
        super().__init__(dataset_iterator, storage=storage, version=version)
        self._given_identifier = None if identifier is None else check_identifier(identifier)

    def make_access(self) -> _StoredCacheAccess:
        return _StoredCacheAccess(as_iterator(self._dataset_iterator), identifier=self._given_identifier, **self._made_with)

    def fill(self) -> str:
        """Read and store all samples, unless that is done already.

        Returns:
            The identifier of the resource.
        """
        access: Any = own_access(self)
        access.open_stored()
        return self.identifier

    @property
    def identifier(self) -> str:
        """The name of the resource."""
        access: Any = own_access(self)
        return access.identifier  # type: ignore[no-any-return]  # that of this class


class _StoredCacheAccess(OneToOneAccess):
    """Access to samples in a stored resource, which is opened or written when the first one is asked for; the rest as there."""

    prefers_blocks = False  # it is written in order

    def __init__(
        self, source: DatasetIteratorIF, *, storage: StorageConnector, identifier: str | None, version: str | None
    ) -> None:
        super().__init__(access_to(source))
        self._source, self._storage, self._given_identifier, self._version = source, storage, identifier, version
        self._n_samples = self.below.n_samples
        self._stored: StoredSamples | None = None
        self._opening = ForkLock()

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return self._n_samples

    @property
    def identifier(self) -> str:
        """The name of the resource."""
        return self._given_identifier or f"caches/{self.fingerprint}"

    def sample(self, position: int) -> Sample:
        return (self._stored or self.open_stored()).sample(position)

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        return self.open_stored().samples(positions) if len(positions) else []

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return islice(self.open_stored().all_samples(), stop) if start == 0 and stop else super().iterate(start, stop)

    @cached_property
    def fingerprint(self) -> str:
        """What is stored: of the iterator, of the functions it calls, and of the version if there is one."""
        found: str = fingerprint(self._source)  # as an operation: a client's class may have a member of that name
        also = [code_digest(self._source), self._version]
        return hashlib.sha256("\n".join([found, *map(str, also)]).encode()).hexdigest() if any(also) else found

    def open_stored(self) -> StoredSamples:
        """The stored samples, which are written now if need be."""
        stored = self._stored
        if stored is None:
            with self._opening:
                stored = self._stored
                if stored is None:
                    stored = self._stored = self._find() or self._write()
        return stored

    def _find(self) -> StoredSamples | None:
        """The stored samples, if they are those of this iterator."""
        identifier = self.identifier
        try:
            stored = StoredSamples(self._storage, identifier)
        except ResourceNotFoundError:
            return None
        if (stored.fingerprint, len(stored)) != (self.fingerprint, self.n_samples):
            held = f"{len(stored)} samples with fingerprint {stored.fingerprint}"
            logger.warning("the cache %r in %r holds %s, which other samples replace", identifier, self._storage, held)
            return None
        return stored

    def _write(self) -> StoredSamples:
        """Store the samples, unless another process does so meanwhile."""
        identifier, started = self.identifier, time.monotonic()
        with self._storage.lease(identifier) as lease:
            while not lease.acquire() and time.monotonic() - started < _LEASE_SECONDS:
                found = self._find()
                if found is not None:
                    return found
                time.sleep(_PAUSE_SECONDS)
            found = self._find()  # another process may have been faster
            if found is None:
                logger.info("storing %d samples as %r in %r", self.n_samples, identifier, self._storage)
                with self._storage.create(identifier) as file:
                    write_samples(file, self._source, self.n_samples, self.fingerprint)
                found = self._find()
        if found is None:
            raise ConfigError(
                f"the cache {identifier!r} in {self._storage!r} was replaced by other samples as soon as it was stored; "
                f"give each cache an identifier of its own"
            )
        return found
