"""Keeps the samples of an iterator in a store once they were read."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_bases import CacheAccess
from data_stack.dataset.iterator.access_of_iterator import access_to, own_access
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF, Sample
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.recipes.fingerprint import fingerprint
from data_stack.dataset.recipes.stability import code_digest, instability_reason
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    ResourceChangedError,
    ResourceNotFoundError,
    UnfilledCacheError,
)
from data_stack.formats.records.reader import RecordReader
from data_stack.formats.records.writer import RecordWriter
from data_stack.formats.sample_codec import SampleCodec
from data_stack.io.identifiers import check_identifier
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.url import store_at
from data_stack.util.forks import fork_lock
from data_stack.util.logger import logger
from data_stack.util.polling import polls

#: The only column, and the type of its records.
_SAMPLE = SampleCodec.name
_CODECS = {_SAMPLE: SampleCodec()}

#: The folder in the store if a user names none.
_DEFAULT_FOLDER = "caches"

#: How long a process waits for another process that writes the same samples.
_MAX_WAIT_SECONDS = 3600


@layer("stored_cache")
class StoredCacheDatasetIterator(LayerDatasetIterator):
    """The samples of an iterator, which are written once into a store, and read from there.

    The constructor reads nothing. The first access to a sample reads all samples in order, with a
    few MiB in memory at a time, and publishes them when they are complete; :meth:`fill` does so at
    once, e.g. before workers are started. Other processes read them by range, or by a memory map
    where the store has files. If two processes start at once, one waits for the other where the
    store has leases; otherwise both write the same.

    The records lie in a folder named by the fingerprint of ``dataset_iterator``
    (:meth:`fingerprint`), so that a cache never returns the samples of another iterator. The
    fingerprint covers the compiled code of the functions that the iterator calls, with the global
    variables, functions and classes of the program that the code uses. It does not cover the code
    of installed packages, nor that of a dataset's ``open``: change ``version`` when that code
    changes. These have no fingerprint that another process can rely on, and need a ``version``: an
    iterator of your own class, a lambda, a callable object, and a function that uses what cannot be
    compared, such as an open file.

    Samples come back with their values and types, each time as new objects. They may consist of
    None, Python's numbers, strings and bytes, numpy's scalars and arrays, torch's tensors without
    gradient, and tuples, lists, dicts and frozensets of these. Arrays become little-endian, and
    rows of a memory-mapped file become plain arrays. A batch is one request. Reading never executes
    stored data, and every byte is checked against a checksum.

    Put random layers above the cache. A random layer below it is drawn from once, when the cache is
    written.

    Args:
        dataset_iterator: the iterator to read, which is not closed.
        storage: where the samples are kept: a path, a URL or a connector, as for
            ``data_stack.load``.
        identifier: the folder in it with the folders of fingerprints; None for ``caches``. The
            cache that a recipe or another epoch makes of this one lies in ``caches``.
        version: change it when the samples change and the fingerprint does not. Required where
            there is no reliable fingerprint.

    Raises:
        ConfigError: ``storage`` is not a store; ``dataset_iterator`` has no reliable fingerprint,
            and there is no ``version``; or, at the first access, a sample has a value of another
            type, the iterator returns fewer samples than its length, or the records are of
            another number of samples.
        MalformedIdentifierError: ``identifier`` is not in the grammar.
        DatasetFileCorruptError: at an access, the records are damaged; deleting them lets them be
            written again.
        UnfilledCacheError: at the first access, a sample is damaged; none was published.
        StorageError: at the first access, the records could not be written; none was published.
        ResourceChangedError: at the first access, a file was replaced, or an array written to,
            while it was read; none was published.
    """

    #: The folder of the caches that the caller named; None if none was named.
    _given_identifier: str | None

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
            raise ConfigError(
                "a stored cache needs a store: a path, a URL or a StorageConnector, "
                f"not {storage!r:.80}"
            )
        if version is None:
            reason = instability_reason(as_iterator(dataset_iterator))
            if reason is not None:
                raise ConfigError(
                    f"this stack has no reliable fingerprint ({reason}), so a stored cache could "
                    "return outdated samples. Pass a version, cache(storage=…, version='1'), "
                    "and another version whenever the samples change"
                )
        # The identifier is not an argument of the layer, so that it is not in a recipe: the recipe
        # of a stranger must not choose where to write, and two epochs must not share a folder.
        self._given_identifier = None if identifier is None else check_identifier(identifier)
        super().__init__(dataset_iterator, storage=storage, version=version)

    def make_access(self) -> _StoredCacheAccess:
        return _StoredCacheAccess(
            as_iterator(self._dataset_iterator),
            identifier=self._given_identifier,
            **self._made_with,
        )

    def fill(self) -> str:
        """Read and store all samples, unless that is done already.

        Returns:
            The folder of the records in the store.
        """
        access: Any = own_access(self)
        access.open_stored()
        return self.identifier

    @property
    def identifier(self) -> str:
        """The folder of the records in the store."""
        access: Any = own_access(self)
        return access.identifier  # type: ignore[no-any-return]  # that of this class


class _StoredCacheAccess(CacheAccess):
    """Access to records in a store, which are opened or written when the first sample is needed.

    Args:
        source: the iterator to read.
        storage: the store.
        identifier: the folder in it with the folders of fingerprints; None for ``caches``.
        version: as for :class:`StoredCacheDatasetIterator`.
    """

    #: The samples are written in order.
    prefers_blocks = False

    #: The number of samples when the access was made.
    n_samples = 0

    #: The iterator to read.
    _source: DatasetIteratorIF

    #: The store.
    _storage: StorageConnector

    #: The folder in the store with the folders of fingerprints.
    _folder: str

    #: What the user calls this state of the samples; None without.
    _version: str | None

    #: Access to the records; None until they are opened or written.
    _stored: SampleAccess | None

    #: Held by the thread that opens or writes the records.
    _opening: threading.Lock

    def __init__(
        self,
        source: DatasetIteratorIF,
        *,
        storage: StorageConnector,
        identifier: str | None,
        version: str | None,
    ) -> None:
        super().__init__(access_to(source))
        self._source = source
        self._storage = storage
        self._folder = identifier or _DEFAULT_FOLDER
        self._version = version
        self.n_samples = self.below.n_samples
        self._stored = None
        self._opening = fork_lock()

    @property
    def identifier(self) -> str:
        """The folder of the records."""
        return f"{self._folder}/{self.fingerprint}.records"

    def sample(self, position: int) -> Sample:
        return (self._stored or self.open_stored()).sample(position)[_SAMPLE]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        # Without a position, nothing is written.
        if not len(positions):
            return []
        return [record[_SAMPLE] for record in self.open_stored().samples(positions)]

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return (record[_SAMPLE] for record in self.open_stored().iterate(start, stop))

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        """Do nothing: what is stored is not read below again."""

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the iterator, of the functions that it calls, and of the version."""
        return self._fingerprint_now()

    def _fingerprint_now(self) -> str:
        """Compute the fingerprint; :meth:`_check_unchanged` compares it with the first one."""
        # The function, not the method: a client's class may have a member of that name.
        fingerprint_of_source: str = fingerprint(self._source)
        digest_of_code = code_digest(self._source)
        if not digest_of_code and not self._version:
            return fingerprint_of_source
        parts = [fingerprint_of_source, str(digest_of_code), str(self._version)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def open_stored(self) -> SampleAccess:
        """Return access to the records, which are written now if need be."""
        if self._stored is not None:
            return self._stored
        with self._opening:
            # Another thread may have opened them while this one waited.
            if self._stored is None:
                self._stored = self._find() or self._write()
            return self._stored

    def _find(self) -> SampleAccess | None:
        """Return access to the records; None if they are not there.

        Raises:
            ConfigError: the records are of another number of samples. Where only the user's version
                tells samples apart, they changed and the version did not.
        """
        try:
            stored = access_to(RecordReader(self._storage, prefix=self.identifier, codecs=_CODECS))
        except ResourceNotFoundError:
            return None
        if stored.n_samples != self.n_samples:
            raise ConfigError(
                f"the cache {self.identifier!r} has {stored.n_samples} samples, "
                f"but the iterator has {self.n_samples}: the samples changed since they were "
                f"stored; pass another version than {self._version!r} or delete the cache"
            )
        return stored

    def _check_unchanged(self) -> None:
        """Check that what was read has not changed since its fingerprint was taken.

        Otherwise, samples would be stored under the fingerprint of others.

        Raises:
            ResourceChangedError: a file was replaced, or an array written to.
        """
        if instability_reason(self._source) is not None:
            # Its fingerprint does not tell. The user changes the version when the samples change.
            return
        now = self._fingerprint_now()
        if now != self.fingerprint:
            raise ResourceChangedError(
                self.identifier, f"the fingerprint {self.fingerprint[:16]}…", f"{now[:16]}…"
            )

    def _write(self) -> SampleAccess:
        """Store the samples, unless another process does so meanwhile."""
        identifier = self.identifier
        with self._storage.lease(identifier) as lease:
            self._await_turn(lease)
            # Another process may have been faster.
            stored = self._find()
            if stored is None:
                self._write_records(identifier)
                stored = self._find()
        if stored is None:
            raise ConfigError(
                f"the cache {identifier!r} in {self._storage!r} was deleted at once; cache again"
            )
        return stored

    def _await_turn(self, lease: Any) -> None:
        """Wait until this process has the lease, or another one has stored the samples.

        After an hour, a process goes on beside one that is still writing.
        """
        for _ in polls(_MAX_WAIT_SECONDS, first=0.2, longest=5.0):
            if lease.acquire() or self._find() is not None:
                return

    def _write_records(self, identifier: str) -> None:
        """Store all samples.

        Raises:
            ConfigError: the iterator returns fewer samples than its length.
            ResourceChangedError: what was read has changed meanwhile.
        """
        logger.info("storing %d samples as %r in %r", self.n_samples, identifier, self._storage)
        with RecordWriter(
            self._storage, {_SAMPLE: _SAMPLE}, prefix=identifier, codecs=_CODECS
        ) as writer:
            for sample in self._samples_below():
                writer.append({_SAMPLE: sample})
            if len(writer) != self.n_samples:
                raise ConfigError(
                    f"the iterator to store has {self.n_samples} samples, "
                    f"but returned {len(writer)}"
                )
            self._check_unchanged()

    def _samples_below(self) -> Iterator[Sample]:
        """Iterate over all samples to store.

        Raises:
            UnfilledCacheError: a sample is damaged.
        """
        try:
            yield from self.below.iterate(0, self.n_samples)
        except DatasetFileCorruptError as error:
            raise UnfilledCacheError(
                f"the cache {self.identifier!r} holds all samples or none, and one is damaged, so "
                f"none was stored: {error}. Leave that sample out below the cache"
            ) from error
