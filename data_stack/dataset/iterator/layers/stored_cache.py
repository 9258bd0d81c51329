"""Samples of an iterator, kept in a stored resource once they were read, from which any sample is read by range.

The layout, in which every number is little-endian::

    0        8 bytes "DSsample", version (u32), 0 (u32)
    16       blocks of consecutive samples, one after the other: the end of each sample's record (u64), then the records
    …        index (JSON, ASCII): what the samples are of ("fingerprint"), and "blocks", of each block
                 its number of samples, offset, size and digest (hexadecimal, :mod:`data_stack.io.integrity`)
    end-32   offset and size of the index (u64), its digest (8 bytes), "DSsample"

A record is the length of a text (u64), the text (JSON, see :mod:`data_stack.codecs.plain_data`), and the bytes of the arrays,
tensors and bytes in the sample, which the text refers to by their offset. A block is checked against its digest before it is
first used.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import re
import struct
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate, islice
from typing import Any

import numpy as np

from data_stack.codecs.codec import import_optional
from data_stack.codecs.plain_data import PythonCodec, canonical_json, from_plain, to_plain
from data_stack.dataset.iterator.access import OneToOneAccess, access_to, own_access
from data_stack.dataset.iterator.blocks import is_plain_tensor
from data_stack.dataset.iterator.contract import DatasetIteratorIF, Sample, as_iterator
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.recipes.recipe import code_digest, fingerprint, instability_reason
from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceNotFoundError
from data_stack.io.identifiers import check_identifier
from data_stack.io.integrity import DIGEST_BYTES, block_digest
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.url import store_at
from data_stack.util.byte_cache import ByteCache
from data_stack.util.forks import ForkLock
from data_stack.util.logger import logger
from data_stack.util.polling import polls
from data_stack.util.untrusted_text import describe_format

_MAGIC = b"DSsample"
_VERSION = 5
_HEAD = struct.Struct("<8sII")
_TRAILER = struct.Struct(f"<QQ{DIGEST_BYTES}s8s")
_LENGTH = struct.Struct("<Q")

#: A block takes about so much memory: enough that a request costs little per byte, and little to read along with one sample.
_BLOCK_BYTES = 1 << 18
_MAX_IN_BLOCK = 1 << 16

_DTYPE = re.compile(r"[<>|][biufcmMSU]\d+(\[\w+\])?")

#: What decoding raises for bytes that no encoder wrote; RecursionError is a RuntimeError.
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RuntimeError, MemoryError, struct.error)


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
    Reading never executes stored data, and every byte is checked against a checksum.

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
                    f"this stack has no reliable fingerprint ({reason}), so a stored cache could return outdated samples. Pass a "
                    f"version, cache(storage=…, version='1'), and another version whenever the samples change"
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
    n_samples = 0  # as many as there were when this was made

    def __init__(
        self, source: DatasetIteratorIF, *, storage: StorageConnector, identifier: str | None, version: str | None
    ) -> None:
        super().__init__(access_to(source))
        self._source, self._storage, self._given_identifier, self._version = source, storage, identifier, version
        self.n_samples = self.below.n_samples
        self._stored: StoredSamples | None = None
        self._opening = ForkLock()

    @property
    def identifier(self) -> str:
        """The name of the resource."""
        return self._given_identifier or f"caches/{self.fingerprint}"

    def sample(self, position: int) -> Sample:
        return (self._stored or self.open_stored()).samples([position])[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        return self.open_stored().samples(positions.tolist()) if len(positions) else []

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return islice(self.open_stored().all_samples(), stop) if start == 0 and stop else super().iterate(start, stop)

    def prefetch(self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None) -> None:
        """Nothing: what is stored is not read below again."""

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
                stored = self._stored = self._stored or self._find() or self._write()
        return stored

    def _find(self) -> StoredSamples | None:
        """The stored samples, if they are those of this iterator."""
        try:
            stored = StoredSamples(self._storage, self.identifier)
        except ResourceNotFoundError:
            return None
        if (stored.fingerprint, stored.n_samples) == (self.fingerprint, self.n_samples):
            return stored
        held = f"{stored.n_samples} samples with fingerprint {stored.fingerprint}"
        logger.warning("the cache %r in %r holds %s, which other samples replace", self.identifier, self._storage, held)
        return None

    def _write(self) -> StoredSamples:
        """Store the samples, unless another process does so meanwhile."""
        identifier = self.identifier
        with self._storage.lease(identifier) as lease:
            found = None
            # after an hour, a process that another one has been writing for goes on beside it
            for _ in polls(3600, first=0.2, longest=5.0):
                if lease.acquire() or (found := self._find()) is not None:
                    break
            found = found or self._find()  # another process may have been faster
            if found is None:
                logger.info("storing %d samples as %r in %r", self.n_samples, identifier, self._storage)
                with self._storage.create(identifier) as file:
                    write_samples(file, self._source, self.n_samples, self.fingerprint)
                found = self._find()
        if found is None:
            raise ConfigError(f"the cache {identifier!r} in {self._storage!r} was replaced at once; give each its own identifier")
        return found


class _SampleCodec(PythonCodec):
    """Any values of Python's, numpy's and torch's; what is in arrays, tensors and bytes lies behind the text."""

    name = "sample"

    def encode(self, value: Any) -> bytes:
        parts: list[bytes] = []

        def first(value: Any) -> dict[str, Any] | None:
            if type(value) is bytes:
                dtype, shape, data = "bytes", [len(value)], value
            elif type(value) in (np.ndarray, np.memmap) and _DTYPE.fullmatch(value.dtype.str):
                dtype, shape, data = value.dtype.str, list(value.shape), value.tobytes()
            elif is_plain_tensor(value):
                values = value.resolve_conj().resolve_neg().contiguous().reshape(-1)
                dtype, shape, data = str(value.dtype), list(value.shape), values.view(_torch().uint8).numpy().tobytes()
            else:
                return None
            found = {"part": {"dtype": dtype, "shape": shape, "offset": sum(map(len, parts))}}
            parts.append(data)
            return found

        self._check(value)
        text = canonical_json(to_plain(value, self._describe, first)).encode("ascii")
        return b"".join([_LENGTH.pack(len(text)), text, *parts])

    def decode(self, record: bytes) -> Any:
        (n_text,) = _LENGTH.unpack_from(record)
        start = _LENGTH.size + n_text

        def part(content: Any) -> Any:
            dtype, shape, offset = content["dtype"], content["shape"], content["offset"]
            if not all(type(number) is int and number >= 0 for number in (*shape, offset)):
                raise ValueError(f"a part of the shape {shape!r:.80} at {offset!r:.40}")
            n_values, start_of_part = math.prod(shape), start + offset
            if dtype == "bytes":
                return record[start_of_part : start_of_part + n_values]
            if _DTYPE.fullmatch(dtype):
                return np.ndarray(shape, dtype, record, start_of_part).copy()
            torch = _torch()
            kind = getattr(torch, dtype.removeprefix("torch."))
            if not isinstance(kind, torch.dtype):
                raise ValueError(f"no dtype {dtype!r:.40}")
            data = bytearray(memoryview(record)[start_of_part : start_of_part + n_values * kind.itemsize])
            values = torch.frombuffer(data, dtype=kind) if data else torch.empty(0, dtype=kind)
            return values.reshape(shape)

        return from_plain(json.loads(record[_LENGTH.size : start]), {**self._makers(), "part": part})

    def _is_exact(self, value: Any) -> bool:
        return super()._is_exact(value) or is_plain_tensor(value)


_CODEC = _SampleCodec()
_torch = partial(import_optional, "torch", "reading kept samples that are tensors", "torch", "torch")


def write_samples(file: Any, samples: Iterable[Sample], n_samples: int, fingerprint: str) -> None:
    """Write samples to ``file``, from its start, with a block of them in memory at a time.

    Args:
        file: what has ``write``.
        samples: as many as stated.
        n_samples: how many.
        fingerprint: what they are samples of.

    Raises:
        ConfigError: a sample has a value that cannot be written, or there are more or fewer samples.
    """
    blocks: list[tuple[int, int, int, str]] = []
    n_written, position = 0, _HEAD.size
    file.write(_HEAD.pack(_MAGIC, _VERSION, 0))
    for records in _blocks(samples):
        data = np.cumsum(list(map(len, records)), dtype="<u8").tobytes() + b"".join(records)
        file.write(data)
        blocks.append((len(records), position, len(data), block_digest(data).hex()))
        n_written += len(records)
        position += len(data)
    if n_written != n_samples:
        raise ConfigError(f"the iterator to store has a length of {n_samples}, but returned {n_written} samples")
    index = json.dumps({"fingerprint": fingerprint, "blocks": blocks}).encode("ascii")
    file.write(index + _TRAILER.pack(position, len(index), block_digest(index), _MAGIC))


def _blocks(samples: Iterable[Sample]) -> Iterator[list[bytes]]:
    """The records of samples, in lists that take as much memory as a block should, or one record."""
    records: list[bytes] = []
    n_bytes = 0
    for number, sample in enumerate(samples):
        try:
            records.append(_CODEC.encode(sample))
        except (ValueError, RecursionError) as error:  # such as of an int of more digits than Python writes
            raise ConfigError(
                f"sample {number} cannot be kept in a store: {error}. Replace that value below the cache, "
                f"e.g. by map(), with numbers, strings, bytes, arrays, or lists, tuples and dicts of such"
            ) from error
        n_bytes += len(records[-1])
        if n_bytes >= _BLOCK_BYTES or len(records) == _MAX_IN_BLOCK:
            yield records
            records, n_bytes = [], 0
    if records:
        yield records


class StoredSamples:
    """Samples that :func:`write_samples` wrote into a resource; what is read of it are the blocks with what is asked for.

    Threads may share it, and a fork may go on with it. It does not pickle.

    Args:
        storage: where the resource is; it stays the caller's.
        identifier: its name.

    Raises:
        ResourceNotFoundError: it does not exist.
        ConfigError: it is something else.
        DatasetFileCorruptError: it is damaged, or of another version of the format; also when a damaged part is first read.
    """

    def __init__(self, storage: StorageConnector, identifier: str) -> None:
        self._name = f"the samples stored as {identifier!r} in {storage!r}"
        with storage.get_resource(identifier) as resource:
            start = max(0, resource.size - _TRAILER.size)
            head, trailer = resource.read_ranges([(0, _HEAD.size), (start, _TRAILER.size)])
            if head[: len(_MAGIC)] != _MAGIC:
                raise ConfigError(f"resource {identifier!r} in {storage!r} is no cache of samples; pass another identifier")
            if len(head) == _HEAD.size and (version := _HEAD.unpack(head)[1]) != _VERSION:
                raise DatasetFileCorruptError(f"{self._name}: it {describe_format(version, _VERSION)}. Or delete the resource")
            try:
                end, n_index, digest, magic = _TRAILER.unpack(trailer)
                index = resource.read_at(end, n_index) if magic == _MAGIC and end + n_index == start else b""
                if block_digest(index) != digest:
                    raise ValueError("its index is not where it was written, or does not have its digest")
                self._take_index(json.loads(index), end)
            except _MALFORMED as error:
                raise self._damage_error(str(error)[:200]) from error
            mapped = _map(resource, head, trailer)
        self._read_ranges = mapped or partial(storage.read_ranges, identifier)
        # of a mapped file all views that were checked are kept, which take no memory
        self._fetched: ByteCache[int, Any] = ByteCache(sys.maxsize if mapped else 32 << 20, len)

    def _take_index(self, index: Any, end: int) -> None:
        self.fingerprint, self._blocks = str(index["fingerprint"]), index["blocks"]
        for length, offset, size, _ in self._blocks:
            is_int = type(length) is type(offset) is type(size) is int
            if not (is_int and length > 0 and offset >= 0 and offset + size <= end and size >= length * 8):
                raise ValueError(f"a block of {size} bytes at {offset} with {length} samples")
        self._starts: list[int] = list(accumulate([block[0] for block in self._blocks], initial=0))
        self.n_samples: int = self._starts[-1]

    def _damage_error(self, what: str) -> DatasetFileCorruptError:
        return DatasetFileCorruptError(f"{self._name} are damaged: {what}. Delete the resource to have it written again")

    def samples(self, positions: Sequence[int]) -> list[Sample]:
        """The samples at ``positions``, of which there is one at least, all of them read together."""
        blocks = [bisect_right(self._starts, position) - 1 for position in positions]
        data = self._read(list(dict.fromkeys(blocks)))
        return [self._decode(block, position, data[block]) for block, position in zip(blocks, positions, strict=True)]

    def all_samples(self) -> Iterator[Sample]:
        """All samples in order, a block at a time."""
        for start, stop in zip(self._starts[:-1], self._starts[1:], strict=True):
            yield from self.samples(range(start, stop))

    def _decode(self, block: int, position: int, data: Any) -> Sample:
        """The sample at a position, from the bytes of its block."""
        place, records = position - self._starts[block], 8 * (self._starts[block + 1] - self._starts[block])
        start, end = _LENGTH.unpack_from(data, 8 * place - 8)[0] if place else 0, _LENGTH.unpack_from(data, 8 * place)[0]
        try:
            return _CODEC.decode(bytes(data[records + start : records + end]))
        except _MALFORMED as error:
            raise self._damage_error(f"sample {position} cannot be decoded ({str(error)[:200]})") from error

    def _read(self, blocks: Sequence[int]) -> dict[int, Any]:
        """The bytes of blocks by their numbers, read in one request; they are checked when they are first used."""
        found: dict[int, Any] = self._fetched.get_many(blocks)
        missing = [block for block in blocks if block not in found]
        ranges = [(self._blocks[block][1], self._blocks[block][2]) for block in missing]
        for block, data in zip(missing, self._read_ranges(ranges) if ranges else (), strict=True):
            _, offset, size, digest = self._blocks[block]
            if block_digest(data).hex() != digest:
                raise self._damage_error(f"the {size} bytes from {offset} on differ from their digest")
            self._fetched.put(block, data)
            found[block] = data
        return found


def _map(resource: StreamedResource, head: bytes, trailer: bytes) -> Callable[[Sequence[tuple[int, int]]], list[Any]] | None:
    """What reads ranges of a resource that is in memory as a whole; None where the operating system cannot map it."""
    try:
        mapped = mmap.mmap(resource.fileno(), resource.size, access=mmap.ACCESS_READ)
    except (AttributeError, OSError, ValueError):  # it is not a file
        return None
    # a third party's resource may be what it reads out of a file, such as a compressed one
    if mapped[: len(head)] != head or mapped[-len(trailer) :] != trailer:
        return None
    view = memoryview(mapped)
    return lambda ranges: [view[offset : offset + size] for offset, size in ranges]
