"""Samples in one stored resource: the format of a stored cache, from which any sample is read by range.

The layout, in which every number is little-endian::

    0        8 bytes "DSsample", version (u32), 0 (u32)
    16       blocks of consecutive samples, one after the other: the end of each sample's record (u64), then the records
    …        index (JSON, ASCII): what the samples are of ("fingerprint"), and "blocks", of each block
                 its number of samples, offset, size and digest (hexadecimal, :mod:`data_stack.io.integrity`)
    end-32   offset and size of the index (u64), its digest (8 bytes), "DSsample"

A record is the length of a text (u64),
the text (JSON, see :mod:`data_stack.codecs.plain_data`), and the bytes of the arrays, tensors and bytes in the sample, which the
text refers to by their offset. Reading never executes stored data. A block is checked against its digest before it is first
used, so that damage is an error.
"""

from __future__ import annotations

import io
import json
import math
import mmap
import os
import re
import struct
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import IO, Any

import numpy as np

from data_stack.codecs.plain_data import PythonCodec, canonical_json, from_plain, to_plain
from data_stack.dataset.iterator.contract import Sample
from data_stack.dataset.iterator.sample_columns import estimate_bytes, is_plain_tensor, torch_module
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.io.integrity import DIGEST_BYTES, block_digest
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.util.byte_cache import ByteCache

_MAGIC = b"DSsample"
_VERSION = 5
_HEAD = struct.Struct("<8sII")
_TRAILER = struct.Struct(f"<QQ{DIGEST_BYTES}s8s")
_LENGTH = struct.Struct("<Q")

#: A block takes about so much memory: enough that a request costs little per byte, and little to read along with one sample.
_BLOCK_BYTES = 1 << 18
_MAX_IN_BLOCK = 1 << 16
_MAX_FETCHED_BYTES = 32 << 20

_DTYPE = re.compile(r"[<>|][biufcmMSU]\d+(\[\w+\])?")

#: What decoding raises for bytes that no encoder wrote; RecursionError is a RuntimeError.
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RuntimeError, MemoryError, struct.error)


# ---------------------------------------------------------------------- one sample


@dataclass(frozen=True, repr=False)
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
                dtype, shape, data = str(value.dtype), list(value.shape), values.view(torch_module().uint8).numpy().tobytes()
            else:
                return None
            found = {"part": {"dtype": dtype, "shape": shape, "offset": sum(map(len, parts))}}
            parts.append(data)
            return found

        try:
            self._check(value)
            text = canonical_json(to_plain(value, self._describe, first)).encode("ascii")
        except (ValueError, RecursionError) as error:  # ConfigError is one; so is an int of more digits than Python writes
            raise ConfigError(str(error)) from error
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
                values = np.frombuffer(record, dtype, n_values, start_of_part) if n_values else np.empty(0, dtype)
                return values.reshape(shape).copy()
            torch = torch_module()
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


# ---------------------------------------------------------------------- writing


def write_samples(file: IO[bytes] | Any, samples: Iterable[Sample], n_samples: int, fingerprint: str) -> None:
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
    for block in _blocks(samples):
        records = [_encode(sample, n_written + number) for number, sample in enumerate(block)]
        data = np.cumsum(list(map(len, records)), dtype="<u8").tobytes() + b"".join(records)
        file.write(data)
        blocks.append((len(block), position, len(data), block_digest(data).hex()))
        n_written += len(block)
        position += len(data)
    if n_written != n_samples:
        raise ConfigError(f"the iterator to store has a length of {n_samples}, but returned {n_written} samples")
    index = json.dumps({"fingerprint": fingerprint, "blocks": blocks}).encode("ascii")
    file.write(index)
    file.write(_TRAILER.pack(position, len(index), block_digest(index), _MAGIC))


def _blocks(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    """Samples in lists that take about as much memory as a block should, or one sample."""
    block: list[Sample] = []
    n_bytes = 0
    for sample in samples:
        block.append(sample)
        n_bytes += estimate_bytes(sample)
        if n_bytes >= _BLOCK_BYTES or len(block) == _MAX_IN_BLOCK:
            yield block
            block, n_bytes = [], 0
    if block:
        yield block


def _encode(sample: Sample, number: int) -> bytes:
    try:
        return _CODEC.encode(sample)
    except ConfigError as error:
        raise ConfigError(
            f"sample {number} cannot be kept in a store: {error}. Replace that value below the cache, "
            f"e.g. by map(), with numbers, strings, bytes, arrays, or lists, tuples and dicts of such"
        ) from error


# ---------------------------------------------------------------------- reading


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
        self._storage, self._identifier = storage, identifier
        self._name = f"the samples stored as {identifier!r} in {storage!r}"
        with storage.get_resource(identifier) as resource:
            size = resource.size
            head, trailer = _read_at(resource, 0, _HEAD.size), _read_at(resource, max(0, size - _TRAILER.size), _TRAILER.size)
            if head[: len(_MAGIC)] != _MAGIC:
                raise ConfigError(
                    f"resource {identifier!r} in {storage!r} is not a cache of samples; it was not overwritten; "
                    f"pass another identifier"
                )
            if len(head) == _HEAD.size and (version := _HEAD.unpack(head)[1]) != _VERSION:
                raise DatasetFileCorruptError(f"{self._name} are of format {version}, not {_VERSION}; delete the resource")
            try:
                end, index_bytes, digest, magic = _TRAILER.unpack(trailer)
                if magic != _MAGIC or end < _HEAD.size or end + index_bytes != size - _TRAILER.size:
                    raise ValueError(f"it has {size:,} bytes, which are not those that were written")
                index = _read_at(resource, end, index_bytes)
                if block_digest(index) != digest:
                    raise ValueError("its index does not have its digest")
                self._take_index(json.loads(index), end)
            except _MALFORMED as error:
                raise self._damage_error(str(error)[:200]) from error
            self._mapped = _map(resource, head, trailer)
        # of a mapped file all views that were checked are kept, which take no memory
        self._fetched: ByteCache[int, Any] = ByteCache(_MAX_FETCHED_BYTES if self._mapped is None else sys.maxsize, len)

    def __len__(self) -> int:
        return self.n_samples

    def _damage_error(self, what: str) -> DatasetFileCorruptError:
        return DatasetFileCorruptError(f"{self._name} are damaged: {what}. Delete the resource to have it written again")

    def _take_index(self, index: Any, end: int) -> None:
        self.fingerprint, blocks = str(index["fingerprint"]), index["blocks"]
        for length, offset, size, _ in blocks:
            is_int = type(length) is type(offset) is type(size) is int
            if not (is_int and length > 0 and offset >= 0 and offset + size <= end and size >= length * 8):
                raise ValueError(f"a block of {size} bytes at {offset} with {length} samples")
        self._starts: list[int] = list(accumulate([block[0] for block in blocks], initial=0))
        self._ranges: list[tuple[int, int]] = [(offset, size) for _, offset, size, _ in blocks]
        self._digests = [bytes.fromhex(block[3]) for block in blocks]
        self.n_samples: int = self._starts[-1]

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Sample:
        """The sample at an int position in ``[0, len(self))``."""
        block = bisect_right(self._starts, position) - 1
        return self._decode(block, [position - self._starts[block]], self._read([block]))[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        """The samples at ``positions``, of which there is one at least, all of them read together."""
        blocks = np.searchsorted(self._starts, positions, side="right") - 1
        order = np.argsort(blocks, kind="stable")
        wanted, firsts = np.unique(blocks[order], return_index=True)
        data = self._read(wanted.tolist())
        found: list[Any] = [None] * len(positions)
        for block, slots in zip(wanted.tolist(), np.split(order, firsts[1:]), strict=True):
            within = (positions[slots] - self._starts[block]).tolist()
            for slot, sample in zip(slots.tolist(), self._decode(block, within, data), strict=True):
                found[slot] = sample
        return found

    def all_samples(self) -> Iterator[Sample]:
        """All samples in order, a block at a time."""
        for start, stop in zip(self._starts[:-1], self._starts[1:], strict=True):
            yield from self.samples(np.arange(start, stop, dtype=np.intp))

    # ------------------------------------------------------------------ inside

    def _decode(self, block: int, within: Sequence[int], data: Mapping[int, Any]) -> list[Sample]:
        """The samples at places in a block."""
        ends = np.frombuffer(data[block], "<u8", self._starts[block + 1] - self._starts[block])
        samples: list[Sample] = []
        try:
            for place in within:
                start = int(ends[place - 1]) if place else 0
                samples.append(_CODEC.decode(bytes(data[block][ends.nbytes + start : ends.nbytes + int(ends[place])])))
        except _MALFORMED as error:
            number = self._starts[block] + within[len(samples)]
            raise self._damage_error(f"sample {number} cannot be decoded ({str(error)[:200]})") from error
        return samples

    def _read(self, blocks: Sequence[int]) -> dict[int, Any]:
        """The bytes of blocks by their numbers, read in one request; they are checked when they are first used."""
        found: dict[int, Any] = self._fetched.get_many(blocks)
        missing = [block for block in blocks if block not in found]
        ranges = [self._ranges[block] for block in missing]
        if self._mapped is not None:
            mapped = memoryview(self._mapped)
            fetched: Iterable[Any] = [mapped[offset : offset + size] for offset, size in ranges]
        else:
            fetched = self._storage.read_ranges(self._identifier, ranges) if ranges else ()
        for block, data in zip(missing, fetched, strict=True):
            if block_digest(data) != self._digests[block]:
                offset, size = self._ranges[block]
                raise self._damage_error(f"the {size} bytes from {offset} on differ from their digest")
            self._fetched.put(block, data)
            found[block] = data
        return found


def _read_at(resource: StreamedResource, offset: int, size: int) -> bytes:
    """A range of a resource, also of a third party's that can only seek."""
    resource.seek(offset)
    return resource.read(size)


def _map(resource: StreamedResource, head: bytes, trailer: bytes) -> mmap.mmap | None:
    """The whole resource in memory, if the operating system can map it; None where it is not a file."""
    try:
        handle = resource.fileno()
        if os.fstat(handle).st_size != resource.size:
            return None
        mapped = mmap.mmap(handle, resource.size, access=mmap.ACCESS_READ)
    except (AttributeError, io.UnsupportedOperation, OSError, ValueError):
        return None
    # a third party's resource may be what it reads out of a file, such as a compressed one
    return mapped if mapped[: len(head)] == head and mapped[-len(trailer) :] == trailer else None
