"""Samples in one stored resource, as columns: the format of a stored cache, from which any sample is read by range.

The layout, in which every number is little-endian::

    0        8 bytes "DSsample", version (u32), 0 (u32)
    16       pieces: block after block of consecutive samples, of each block column after column, each from a multiple of 64 on
    …        index: length of the header (u64), the header (JSON, ASCII), then two tables:
                 of each block: number of samples (u64), which schema (u64)
                 of each piece: offset, size (u64), its digest (8 bytes, :mod:`data_stack.io.integrity`)
    end-32   offset and size of the index (u64), its digest (8 bytes), "DSsample"

The header says what the samples are of (``fingerprint``, ``n_samples``), and for each of its ``schemas`` how samples are put
together and what their columns are: rows of one dtype and shape, or values of different sizes, by the codec named: the end of
each value (u64), then the values.

Nothing that is read is run. A piece is held against its digest before it is first used, so that damage is an error.
"""

from __future__ import annotations

import base64
import functools
import io
import json
import mmap
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from typing import IO, Any, Union

import numpy as np

from data_stack.codecs.codec import Codec
from data_stack.codecs.plain import BytesCodec, Utf8Codec
from data_stack.codecs.plain_data import canonical_json
from data_stack.codecs.python_values import PythonCodec
from data_stack.dataset.iterator.contract import Sample
from data_stack.dataset.iterator.sample_columns import (
    SampleStructure,
    ValueKind,
    estimated_bytes,
    is_plain_tensor,
    kind_of,
    rows_of,
    stacked_rows,
    values_of,
)
from data_stack.dataset.iterator.stacking import Batch, Column, emptied, stack_samples, stack_values, value_of
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.io.integrity import DIGEST_BYTES, block_digest, digest_of_block
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.util.byte_cache import ByteCache

__all__ = ["OtherVersionError", "StoredSamples", "write_samples"]

_MAGIC = b"DSsample"
_VERSION = 4
_HEAD = struct.Struct("<8sII")
_TRAILER = struct.Struct(f"<QQ{DIGEST_BYTES}s8s")
_BLOCK = np.dtype([("n_samples", "<u8"), ("schema", "<u8")])
_PIECE = np.dtype([("offset", "<u8"), ("size", "<u8"), ("digest", f"V{DIGEST_BYTES}")])
_ALIGNMENT = 64

#: A block takes about so much memory: enough that a request costs little per byte, and little to read along with one sample.
_BLOCK_BYTES = 1 << 18
_MOST_FETCHED_BYTES = 32 << 20

_DTYPE = re.compile(r"[<>|][biufcmMSU]\d+(\[\w+\])?")
_TORCH_DTYPE = re.compile(r"[a-z]+[0-9a-z_]*")
_NUMBERS = ("bool", "int", "float", "complex")

#: What decoding raises of bytes that nobody encoded; RecursionError is a RuntimeError.
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RuntimeError, MemoryError, struct.error)


class OtherVersionError(DatasetFileCorruptError):
    """Samples were stored in another version of the format."""


# ---------------------------------------------------------------------- what a column is


@dataclass(frozen=True, repr=False)
class _SampleCodec(PythonCodec):
    """Any values of Python's, numpy's and torch's."""

    name = "sample"

    def _described(self, value: Any) -> dict[str, Any] | None:
        if not is_plain_tensor(value):
            return super()._described(value)
        kind = kind_of([value])
        data = rows_of(kind, [value]).tobytes()
        return {"tensor": {**_kind_described(kind), "base64": base64.b64encode(data).decode("ascii")}}

    def _makers(self) -> Mapping[str, Callable[[Any], Any]]:
        return {**super()._makers(), "tensor": _tensor}

    def _is_exact(self, value: Any) -> bool:
        return super()._is_exact(value) or is_plain_tensor(value)


def _tensor(content: Any) -> Any:
    kind = _checked_kind("tensor", content["dtype"], content["shape"])
    data = np.frombuffer(bytearray(base64.b64decode(content["base64"], validate=True)), dtype=np.uint8)
    return values_of(kind, data.reshape(1, kind.row_bytes))[0]


_ColumnKind = Union[ValueKind, Codec]
"""Rows of that kind, or values that the codec writes."""


@functools.cache
def _codec(name: str) -> Codec:
    from data_stack.codecs.npy import NpyCodec  # brings msgpack, which few programs need

    known = (Utf8Codec(errors="surrogatepass"), BytesCodec(), NpyCodec(), _SampleCodec())
    return {codec.name: codec for codec in known}[name]


def _kind_for(values: Sequence[Any]) -> _ColumnKind:
    """How to write these values of a column."""
    kind = kind_of(values)
    if kind.is_fixed and (kind.name == "tensor" or _DTYPE.fullmatch(kind.dtype.str)):
        return kind
    if kind.name in ("str", "bytes"):
        return _codec("utf8" if kind.name == "str" else "bytes")
    are_arrays = all(type(value) in (np.ndarray, np.memmap) and _DTYPE.fullmatch(value.dtype.str) for value in values)
    return _codec("npy" if are_arrays else "sample")


def _kind_described(kind: _ColumnKind) -> dict[str, Any]:
    if isinstance(kind, Codec):
        return {"codec": kind.name}
    dtype = kind.dtype if kind.name == "tensor" else kind.dtype.str
    return {"rows": kind.name, "dtype": dtype, "shape": list(kind.shape)}


def _checked_kind(name: Any, dtype: Any, extents: Any) -> ValueKind:
    is_tensor, shape = name == "tensor", tuple(extents)
    if name not in ("array", "scalar", "tensor", *_NUMBERS) or not (_TORCH_DTYPE if is_tensor else _DTYPE).fullmatch(dtype):
        raise ValueError(f"rows of {name!r:.40} and dtype {dtype!r:.40}")
    if any(type(extent) is not int or extent < 0 for extent in shape) or (shape and name in ("scalar", *_NUMBERS)):
        raise ValueError(f"rows of the shape {shape!r:.80}")
    kind = ValueKind(name, dtype if is_tensor else np.dtype(dtype), shape)
    np.empty((0, *kind.shape), dtype=kind.row_dtype)  # refuses what no array can be, which zeros would hide
    return kind


def _schema_of_description(described: Any) -> tuple[SampleStructure, list[_ColumnKind]]:
    """How samples are put together, and what their columns are.

    Raises:
        ValueError, TypeError, LookupError: that describes nothing of ours.
    """
    form, keys, columns = described["form"], tuple(described["keys"]), described["columns"]
    expected = {"bare": 1, "dict": len(keys), "tuple": len(columns), "list": len(columns)}[form]
    if not columns or len(columns) != expected or len(set(keys)) != len(keys) or not all(isinstance(key, str) for key in keys):
        raise ValueError(f"samples of {len(columns)} columns {keys!r:.80}")
    kinds: list[_ColumnKind] = [
        _codec(each["codec"]) if "codec" in each else _checked_kind(each["rows"], each["dtype"], each["shape"])
        for each in columns
    ]
    return SampleStructure(form, len(columns), keys), kinds


# ---------------------------------------------------------------------- writing


def write_samples(
    file: IO[bytes] | Any, samples: Iterable[Sample], n_samples: int, fingerprint: str, *, most_in_block: int = 1 << 16
) -> None:
    """Write samples to ``file``, from its start, with a block of them in memory at a time.

    Args:
        file: what has ``write``.
        samples: as many as stated.
        n_samples: how many.
        fingerprint: what they are samples of.
        most_in_block: the most samples of a block, which takes about 256 KiB or one sample.

    Raises:
        ConfigError: a sample has a value that cannot be written, or there are more or fewer samples.
    """
    schemas: dict[str, int] = {}
    blocks: list[tuple[int, int]] = []
    pieces: list[tuple[int, int, bytes]] = []
    n_written, position = 0, _HEAD.size
    file.write(_HEAD.pack(_MAGIC, _VERSION, 0))
    for block in _blocks(samples, most_in_block):
        schema, encoded = _encoded_block(block, n_written)
        for data in encoded:
            padding = -position % _ALIGNMENT
            file.write(bytes(padding))
            file.write(data)
            pieces.append((position + padding, len(data), block_digest(data)))
            position += padding + len(data)
        blocks.append((len(block), schemas.setdefault(schema, len(schemas))))
        n_written += len(block)
    if n_written != n_samples:
        raise ConfigError(f"the iterator to be stored says that it has {n_samples} samples, and gave {n_written}")
    described = {"fingerprint": fingerprint, "n_samples": n_samples, "n_blocks": len(blocks)}
    header = canonical_json({**described, "schemas": list(map(json.loads, schemas))}).encode("ascii")
    tables = np.array(blocks, dtype=_BLOCK).tobytes() + np.array(pieces, dtype=_PIECE).tobytes()
    index = struct.pack("<Q", len(header)) + header + tables
    file.write(index)
    file.write(_TRAILER.pack(position, len(index), block_digest(index), _MAGIC))


def _blocks(samples: Iterable[Sample], most_in_block: int) -> Iterator[list[Sample]]:
    """Samples in lists that take about as much memory as a block should; as many in each where samples are alike."""
    source = iter(samples)
    first = list(islice(source, 1))
    most = max(1, min(most_in_block, _BLOCK_BYTES // max(1, estimated_bytes(first))))
    block: list[Sample] = []
    n_bytes = 0
    for sample in chain(first, source):
        sample_bytes = estimated_bytes(sample)
        if block and (len(block) == most or n_bytes + sample_bytes > 2 * _BLOCK_BYTES):
            yield block
            block, n_bytes = [], 0
        block.append(sample)
        n_bytes += sample_bytes
    if block:
        yield block


def _encoded_block(samples: list[Sample], first: int) -> tuple[str, list[bytes]]:
    """The schema of a block as JSON, and its columns as bytes; ``first`` is the number of its first sample."""
    structure = SampleStructure.of(samples[0])
    columns = None if structure.form == "named" else structure.columns_of(samples)
    if columns is None:
        structure, columns = SampleStructure("bare"), [samples]
    kinds = list(map(_kind_for, columns))
    encoded = []
    for number, (kind, values) in enumerate(zip(kinds, columns, strict=True)):
        if isinstance(kind, ValueKind):
            encoded.append(rows_of(kind, values).tobytes())
        else:
            where = "of sample" if structure.form == "bare" else f"of column {number} of sample"
            encoded.append(_encoded_values(kind, values, first, where))
    described = {"form": structure.form, "keys": list(structure.keys), "columns": list(map(_kind_described, kinds))}
    return canonical_json(described), encoded


def _encoded_values(codec: Codec, values: Sequence[Any], first: int, where: str) -> bytes:
    encoded = []
    for number, value in enumerate(values):
        try:
            encoded.append(codec.encode(value))
        except ConfigError as error:
            raise ConfigError(
                f"the value {where} {first + number} cannot be kept in a store: {error}. Replace it below the cache, "
                f"e.g. by map(), with numbers, strings, bytes, arrays, or lists, tuples and dicts of such"
            ) from error
    ends = np.cumsum(list(map(len, encoded)), dtype="<u8")
    return ends.tobytes() + b"".join(encoded)


# ---------------------------------------------------------------------- reading

_Slots = list[tuple[int, Any, list[int]]]
"""Blocks to read: (block, which of the wanted samples it has, where they are in it)."""


class StoredSamples:
    """Samples that :func:`write_samples` wrote into a resource; what is read of it is what is asked for.

    Threads may share it, and a fork may go on with it. It does not pickle.

    Args:
        storage: where the resource is; it stays the caller's.
        identifier: its name.

    Raises:
        ResourceNotFoundError: there is none.
        ConfigError: it is something else.
        OtherVersionError: it was written in another version of the format.
        DatasetFileCorruptError: it is damaged; also raised when a damaged part is first read.
    """

    def __init__(self, storage: StorageConnector, identifier: str) -> None:
        self._storage, self._identifier = storage, identifier
        self._name = f"the samples stored as {identifier!r} in {storage!r}"
        with storage.get_resource(identifier) as resource:
            size = resource.size
            head, trailer = _read_at(resource, 0, _HEAD.size), _read_at(resource, max(0, size - _TRAILER.size), _TRAILER.size)
            if head[: len(_MAGIC)] != _MAGIC:
                raise ConfigError(
                    f"resource {identifier!r} in {storage!r} is no cache of samples, and is not overwritten; "
                    f"give the cache another identifier"
                )
            if len(head) == _HEAD.size and (version := _HEAD.unpack(head)[1]) != _VERSION:
                raise OtherVersionError(f"{self._name} are in version {version} of their format; this is version {_VERSION}")
            if size < _HEAD.size + _TRAILER.size or trailer[-len(_MAGIC) :] != _MAGIC:
                raise self._damaged(f"it ends after {size:,} bytes, before its end")
            end, index_bytes, digest, _ = _TRAILER.unpack(trailer)
            if end < _HEAD.size or end + index_bytes != size - _TRAILER.size:
                raise self._damaged(f"it has {size:,} bytes, which are not those that were written")
            index = _read_at(resource, end, index_bytes)
            if block_digest(index) != digest:
                raise self._damaged("its index does not have its digest")
            self._mapped = _mapped(resource, head, trailer)
        self._fetched: ByteCache[int, bytes] = ByteCache(_MOST_FETCHED_BYTES, len)
        try:
            self._take_index(index, end)
        except _MALFORMED as error:
            raise self._damaged(f"its index is none of ours ({str(error)[:200]})") from error

    def __len__(self) -> int:
        return self.n_samples

    def _damaged(self, what: str) -> DatasetFileCorruptError:
        return DatasetFileCorruptError(f"{self._name} are damaged: {what}. Delete the resource, and it is written anew")

    def _take_index(self, index: bytes, end: int) -> None:
        (header_bytes,) = struct.unpack_from("<Q", index)
        header = json.loads(index[8 : 8 + header_bytes].decode("ascii"))
        self.fingerprint, self.n_samples = str(header["fingerprint"]), int(header["n_samples"])
        self._schemas = list(map(_schema_of_description, header["schemas"]))
        blocks = np.frombuffer(index, _BLOCK, int(header["n_blocks"]), 8 + header_bytes)
        pieces = np.frombuffer(index, _PIECE, offset=8 + header_bytes + blocks.nbytes)
        lengths: list[int] = blocks["n_samples"].tolist()
        self._starts = list(accumulate(lengths, initial=0))
        if self._starts[-1] != self.n_samples or 0 in lengths:
            raise ValueError(f"blocks of {self._starts[-1]} samples, not of {self.n_samples}")
        self._schema_of: list[int] = blocks["schema"].tolist()
        of_blocks = [self._schemas[number] for number in self._schema_of]
        self._first_pieces = list(accumulate([len(kinds) for _, kinds in of_blocks], initial=0))
        self._offsets: list[int] = pieces["offset"].tolist()
        self._sizes: list[int] = pieces["size"].tolist()
        self._digests = pieces["digest"].tobytes()
        if self._first_pieces[-1] != len(pieces):
            raise ValueError(f"{len(pieces)} pieces of {self._first_pieces[-1]} columns")
        column_kinds = [(kind, length) for (_, kinds), length in zip(of_blocks, lengths, strict=True) for kind in kinds]
        for offset, size, (kind, length) in zip(self._offsets, self._sizes, column_kinds, strict=True):
            if offset + size > end or size < length * (kind.row_bytes if isinstance(kind, ValueKind) else 8):
                raise ValueError(f"a piece of {size} bytes at {offset} with {length} values")
        self._is_checked = bytearray(len(pieces))  # of a mapped file

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Sample:
        """The sample at an int position in ``[0, len(self))``."""
        block = bisect_right(self._starts, position) - 1
        return self._of_block(block, [position - self._starts[block]], self._pieces([block]))[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        """The samples at ``positions``, all of them read together."""
        by_block = self._by_block(positions)
        pieces = self._pieces([block for block, _, _ in by_block])
        found: list[Any] = [None] * len(positions)
        for block, slots, within in by_block:
            for slot, sample in zip(slots.tolist(), self._of_block(block, within, pieces), strict=True):
                found[slot] = sample
        return found

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        """The samples at ``positions`` as columns."""
        if len(positions) == 0:
            return emptied(self.batch(np.zeros(1, dtype=np.intp))) if self.n_samples else ()
        if len(self._schemas) > 1:
            return stack_samples(self.samples(positions))
        structure, kinds = self._schemas[0]
        by_block = self._by_block(positions)
        pieces = self._pieces([block for block, _, _ in by_block])
        return structure.batch_of([self._column(number, by_block, len(positions), pieces) for number in range(len(kinds))])

    def column(self, key: int | str, positions: IndexArrayOfInts | None) -> Column:
        """One column of the samples at ``positions``, of all for None; no other is read."""
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.intp)
        if len(positions) == 0:
            return self.column(key, np.zeros(1, dtype=np.intp))[:0] if self.n_samples else np.empty(0)
        numbers = {structure.column_at(key) for structure, _ in self._schemas}
        number = numbers.pop()
        if numbers or number is None:
            return stack_values([value_of(sample, key) for sample in self.samples(positions)])
        by_block = self._by_block(positions)
        return self._column(number, by_block, len(positions), self._pieces([block for block, _, _ in by_block], number))

    def all_samples(self) -> Iterator[Sample]:
        """All samples in order, a block at a time."""
        for start, stop in zip(self._starts[:-1], self._starts[1:], strict=True):
            yield from self.samples(np.arange(start, stop, dtype=np.intp))

    # ------------------------------------------------------------------ inside

    def _by_block(self, positions: IndexArrayOfInts) -> _Slots:
        """Which blocks have the samples at ``positions``, of which there is one at least."""
        blocks = np.searchsorted(self._starts, positions, side="right") - 1
        order = np.argsort(blocks, kind="stable")
        wanted, firsts = np.unique(blocks[order], return_index=True)
        slots = zip(wanted.tolist(), np.split(order, firsts[1:]), strict=True)
        return [(block, each, (positions[each] - self._starts[block]).tolist()) for block, each in slots]

    def _column(self, number: int, by_block: _Slots, n_samples: int, pieces: Mapping[int, Any]) -> Column:
        """One column, which all schemas have at this number."""
        kinds = {kinds[number] for _, kinds in self._schemas}
        kind = kinds.pop()
        if not kinds and isinstance(kind, ValueKind):
            rows = np.empty((n_samples, *kind.row_shape), kind.row_dtype)
            for block, slots, within in by_block:
                rows[slots] = self._rows(kind, block, number, pieces)[within]
            return stacked_rows(kind, rows)
        values: list[Any] = [None] * n_samples
        for block, slots, within in by_block:
            for slot, value in zip(slots.tolist(), self._values(block, number, within, pieces), strict=True):
                values[slot] = value
        return stack_values(values)

    def _of_block(self, block: int, within: list[int], pieces: Mapping[int, Any]) -> list[Sample]:
        structure, kinds = self._schemas[self._schema_of[block]]
        return structure.samples_of([self._values(block, number, within, pieces) for number in range(len(kinds))])

    def _rows(self, kind: ValueKind, block: int, column: int, pieces: Mapping[int, Any]) -> Any:
        shape = (self._starts[block + 1] - self._starts[block], *kind.row_shape)
        return np.ndarray(shape, kind.row_dtype, pieces[self._first_pieces[block] + column])

    def _values(self, block: int, column: int, within: list[int], pieces: Mapping[int, Any]) -> list[Any]:
        """The values of a column at places in a block."""
        kind = self._schemas[self._schema_of[block]][1][column]
        if isinstance(kind, ValueKind):
            return values_of(kind, self._rows(kind, block, column, pieces).take(within, axis=0))
        data = pieces[self._first_pieces[block] + column]
        ends = np.frombuffer(data, "<u8", self._starts[block + 1] - self._starts[block])
        values: list[Any] = []
        try:
            for place in within:
                start = int(ends[place - 1]) if place else 0
                values.append(kind.decode(bytes(data[ends.nbytes + start : ends.nbytes + int(ends[place])])))
        except _MALFORMED as error:
            where = f"value {within[len(values)]} of column {column} of block {block}"
            raise self._damaged(f"{where} is no {kind.name} ({str(error)[:200]})") from error
        return values

    def _pieces(self, blocks: Sequence[int], column: int | None = None) -> dict[int, Any]:
        """The bytes of what these blocks have of a column (None: of all), by the number of the piece; read in one request."""
        if column is None:
            numbers = [each for block in blocks for each in range(self._first_pieces[block], self._first_pieces[block + 1])]
        else:
            numbers = [self._first_pieces[block] + column for block in blocks]
        if self._mapped is not None:
            return {number: self._mapped_piece(self._mapped, number) for number in numbers}
        found: dict[int, Any] = self._fetched.get_many(numbers)
        missing = [number for number in numbers if number not in found]
        ranges = [(self._offsets[number], self._sizes[number]) for number in missing]
        for number, data in zip(missing, self._storage.read_ranges(self._identifier, ranges) if ranges else (), strict=True):
            self._check(number, data)
            self._fetched.put(number, data)
            found[number] = data
        return found

    def _mapped_piece(self, mapped: mmap.mmap, number: int) -> memoryview:
        """A piece of a mapped file, which is checked when it is first used."""
        data = memoryview(mapped)[self._offsets[number] : self._offsets[number] + self._sizes[number]]
        if not self._is_checked[number]:
            self._check(number, data)
            self._is_checked[number] = 1
        return data

    def _check(self, number: int, data: Any) -> None:
        if block_digest(data) != digest_of_block(self._digests, number):
            raise self._damaged(f"the {self._sizes[number]} bytes from {self._offsets[number]} on differ from their digest")


def _read_at(resource: StreamedResource, offset: int, size: int) -> bytes:
    """A range of a resource, also of a third party's that can only seek."""
    if hasattr(resource, "read_at"):
        return resource.read_at(offset, size)
    resource.seek(offset)
    return resource.read(size)


def _mapped(resource: StreamedResource, head: bytes, trailer: bytes) -> mmap.mmap | None:
    """The whole resource in memory, as far as the operating system gives it; None where it is no file."""
    try:
        handle = resource.fileno()
        if os.fstat(handle).st_size != resource.size:
            return None
        mapped = mmap.mmap(handle, resource.size, access=mmap.ACCESS_READ)
    except (AttributeError, io.UnsupportedOperation, OSError, ValueError):
        return None
    # a third party's resource may be what it reads out of a file, such as a compressed one
    return mapped if mapped[: len(head)] == head and mapped[-len(trailer) :] == trailer else None
