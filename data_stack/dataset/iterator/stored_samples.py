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
each value (u64), then the values. Rows of a later block are followed by zeros where those of the first one take more room, so
that all rows of a mapped file are one array.

Nothing that is read is run. A piece is held against its digest before it is first used, so that damage is an error.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from typing import IO, Any

import numpy as np

from data_stack.codecs.plain_data import canonical_json
from data_stack.dataset.iterator.contract import Sample
from data_stack.dataset.iterator.sample_columns import (
    Rows,
    SampleStructure,
    ValueKind,
    estimated_bytes,
    rows_of,
    stacked_rows,
    values_of,
)
from data_stack.dataset.iterator.stacking import Batch, Column, emptied, stack_samples, stack_values, value_of
from data_stack.dataset.iterator.stored_kinds import (
    MALFORMED,
    ColumnKind,
    described_schema,
    kind_for,
    kind_of_description,
    structure_of,
)
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceChangedError
from data_stack.io.integrity import DIGEST_BYTES, block_digest, digest_of_block
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.util.byte_cache import ByteCache

__all__ = ["OtherVersionError", "StoredSamples", "write_samples"]

_MAGIC = b"DSsample"
_VERSION = 3
_HEAD = struct.Struct("<8sII")
_TRAILER = struct.Struct(f"<QQ{DIGEST_BYTES}s8s")
_BLOCK = np.dtype([("n_samples", "<u8"), ("schema", "<u8")])
_PIECE = np.dtype([("offset", "<u8"), ("size", "<u8"), ("digest", f"V{DIGEST_BYTES}")])
_ALIGNMENT = 64

#: A block takes about so much memory: enough that a request costs little per byte, and little to read along with one sample.
_BLOCK_BYTES = 1 << 18
_MOST_FETCHED_BYTES = 32 << 20


class OtherVersionError(DatasetFileCorruptError):
    """Samples were stored in another version of the format."""


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
    writer = _Writer(file)
    for block in _blocks(samples, most_in_block):
        writer.write_block(block)
    if writer.n_samples != n_samples:
        raise ConfigError(f"the iterator to be stored says that it has {n_samples} samples, and gave {writer.n_samples}")
    writer.finish(fingerprint)


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


class _Writer:
    """Writes blocks of samples, then what says where they are."""

    def __init__(self, file: Any) -> None:
        self.n_samples = 0
        self._file = file
        self._schemas: dict[str, int] = {}
        self._blocks: list[tuple[int, int]] = []
        self._pieces: list[tuple[int, int, bytes]] = []
        # by the form of samples and the column's number: the rows that came first, and how many bytes they had
        self._first_rows: dict[tuple[str, int], tuple[ValueKind, int]] = {}
        self._position = _HEAD.size
        file.write(_HEAD.pack(_MAGIC, _VERSION, 0))

    def write_block(self, samples: list[Sample]) -> None:
        """Append a block of samples."""
        structure = SampleStructure.of(samples[0])
        columns = structure.columns_of(samples)
        if columns is None:
            structure, columns = SampleStructure("bare"), [samples]
        kinds = []
        for number, values in enumerate(columns):
            rows_before, n_bytes = self._first_rows.get((structure.form, number), (None, 0))
            kind = kind_for(values, rows_before)
            where = f"of column {number} of sample" if structure.form != "bare" else "of sample"
            data = _encoded(kind, values, self.n_samples, where)
            if isinstance(kind, ValueKind):
                self._first_rows.setdefault((structure.form, number), (kind, len(data)))
            self._write_piece(data.ljust(n_bytes, b"\0") if kind == rows_before else data)
            kinds.append(kind)
        schema = canonical_json(described_schema(structure, kinds))
        self._blocks.append((len(samples), self._schemas.setdefault(schema, len(self._schemas))))
        self.n_samples += len(samples)

    def _write_piece(self, data: bytes) -> None:
        padding = -self._position % _ALIGNMENT
        self._file.write(bytes(padding))
        self._file.write(data)
        self._pieces.append((self._position + padding, len(data), block_digest(data)))
        self._position += padding + len(data)

    def finish(self, fingerprint: str) -> None:
        """Append the index."""
        described = {"fingerprint": fingerprint, "n_samples": self.n_samples, "n_blocks": len(self._blocks)}
        header = canonical_json({**described, "schemas": list(map(json.loads, self._schemas))}).encode("ascii")
        tables = np.array(self._blocks, dtype=_BLOCK).tobytes() + np.array(self._pieces, dtype=_PIECE).tobytes()
        index = struct.pack("<Q", len(header)) + header + tables
        self._file.write(index)
        self._file.write(_TRAILER.pack(self._position, len(index), block_digest(index), _MAGIC))


def _encoded(kind: ColumnKind, values: Sequence[Any], first: int, where: str) -> bytes:
    if isinstance(kind, ValueKind):
        return rows_of(kind, values).tobytes()
    encoded = []
    for number, value in enumerate(values):
        try:
            encoded.append(kind.encode(value))
        except ConfigError as error:
            raise ConfigError(
                f"the value {where} {first + number} cannot be kept in a store: {error}. Replace it below the cache, "
                f"e.g. by map(), with numbers, strings, bytes, arrays, or lists, tuples and dicts of such"
            ) from error
    ends = np.cumsum(list(map(len, encoded)), dtype="<u8")
    return ends.tobytes() + b"".join(encoded)


# ---------------------------------------------------------------------- reading


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
            head, self._trailer = _read_at(resource, 0, _HEAD.size), _read_end(resource)
            if head[: len(_MAGIC)] != _MAGIC:
                raise ConfigError(
                    f"resource {identifier!r} in {storage!r} is no cache of samples, and is not overwritten; "
                    f"give the cache another identifier"
                )
            if len(head) == _HEAD.size and (version := _HEAD.unpack(head)[1]) != _VERSION:
                raise OtherVersionError(f"{self._name} are in version {version} of their format; this is version {_VERSION}")
            if size < _HEAD.size + _TRAILER.size or self._trailer[-len(_MAGIC) :] != _MAGIC:
                raise self._damaged(f"it ends after {size:,} bytes, before its end")
            end, index_bytes, digest, _ = _TRAILER.unpack(self._trailer)
            if end < _HEAD.size or end + index_bytes != size - _TRAILER.size:
                raise self._damaged(f"it has {size:,} bytes, which are not those that were written")
            index = _read_at(resource, end, index_bytes)
            if block_digest(index) != digest:
                raise self._damaged("its index does not have its digest")
            self._mapped = _mapped(resource, head, self._trailer)
        self._fetched: ByteCache[int, bytes] = ByteCache(_MOST_FETCHED_BYTES, len)
        try:
            self._take_index(index, end)
            self._views = self._found_views()
        except MALFORMED as error:
            raise self._damaged(f"its index is none of ours ({str(error)[:200]})") from error

    def __len__(self) -> int:
        return self.n_samples

    def _damaged(self, what: str) -> DatasetFileCorruptError:
        return DatasetFileCorruptError(f"{self._name} are damaged: {what}. Delete the resource, and it is written anew")

    # ------------------------------------------------------------------ the index

    def _take_index(self, index: bytes, end: int) -> None:
        (header_bytes,) = struct.unpack_from("<Q", index)
        header = json.loads(index[8 : 8 + header_bytes].decode("ascii"))
        self.fingerprint, self.n_samples = str(header["fingerprint"]), int(header["n_samples"])
        self._described = header["schemas"]
        self._schemas = [(structure_of(each), list(map(kind_of_description, each["columns"]))) for each in self._described]
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

    def _found_views(self) -> list[tuple[ValueKind, Rows]] | None:
        """The rows of each column, shape ``(n_blocks, samples of a block, …)``, if all that a mapped file has is such rows."""
        lengths = {stop - start for start, stop in zip(self._starts[:-2], self._starts[1:-1], strict=True)}
        kinds = self._schemas[0][1] if len(self._schemas) == 1 else []
        rows = [kind for kind in kinds if isinstance(kind, ValueKind)]
        if self._mapped is None or not rows or len(rows) < len(kinds) or len(lengths) > 1:
            return None
        n_blocks, per_block = len(self._starts) - 1, max(lengths, default=self.n_samples)
        views = []
        for number, kind in enumerate(rows):
            offsets = np.array(self._offsets[number :: len(rows)], dtype=np.int64)
            step = int(offsets[1] - offsets[0]) if n_blocks > 1 else 0
            is_even = bool((np.diff(offsets) == step).all())
            if not is_even or min(self._sizes[number :: len(rows)]) < per_block * kind.row_bytes:
                return None
            within = np.empty((0, per_block, *kind.row_shape), dtype=kind.row_dtype)
            shape, strides = (n_blocks, *within.shape[1:]), (step, *np.empty(within.shape[1:], kind.row_dtype).strides)
            views.append((kind, np.ndarray(shape, kind.row_dtype, self._mapped, int(offsets[0]), strides)))
        self._per_block = per_block
        return views

    def adopt_classes(self, read: Callable[[int], Sample]) -> bool:
        """Take the classes of named tuples from samples that ``read`` gives at a position; False if they are others."""
        for number, (structure, kinds) in enumerate(self._schemas):
            if structure.form == "named":
                actual = SampleStructure.of(read(self._starts[self._schema_of.index(number)]))
                if described_schema(actual, kinds) != self._described[number]:
                    return False
                self._schemas[number] = actual, kinds
        return True

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Sample:
        """The sample at an int position in ``[0, len(self))``."""
        block = bisect_right(self._starts, position) - 1
        return self._of_block(block, [position - self._starts[block]], self._pieces([block]))[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        """The samples at ``positions``, all of them read together."""
        return self._gathered(positions, None)

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        """The samples at ``positions`` as columns."""
        if len(positions) == 0:
            return emptied(self.batch(np.zeros(1, dtype=np.intp))) if self.n_samples else ()
        if self._views is None:
            return stack_samples(self.samples(positions))
        return self._schemas[0][0].batch_of([self._stacked(self._views, number, positions) for number in range(len(self._views))])

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
        if self._views is not None:
            return self._stacked(self._views, number, positions)
        return stack_values(self._gathered(positions, number))

    def all_samples(self) -> Iterator[Sample]:
        """All samples in order, a block at a time."""
        for start, stop in zip(self._starts[:-1], self._starts[1:], strict=True):
            yield from self.samples(np.arange(start, stop, dtype=np.intp))

    # ------------------------------------------------------------------ inside

    def _stacked(self, views: Sequence[tuple[ValueKind, Rows]], number: int, positions: IndexArrayOfInts) -> Column:
        """One column out of the views."""
        blocks, within = np.divmod(positions, self._per_block)
        pieces = blocks * len(views) + number
        flags = np.frombuffer(self._is_checked, dtype=np.uint8)
        for piece in np.unique(pieces[flags[pieces] == 0]).tolist():
            self._piece(piece)
        kind, rows = views[number]
        return stacked_rows(kind, rows[blocks, within])

    def _gathered(self, positions: IndexArrayOfInts, column: int | None) -> list[Any]:
        """The values of one column at ``positions``, of which there is one at least; of None: the samples."""
        blocks = np.searchsorted(self._starts, positions, side="right") - 1
        by_block = np.argsort(blocks, kind="stable")
        wanted, firsts = np.unique(blocks[by_block], return_index=True)
        pieces = self._pieces(wanted.tolist(), column)
        found: list[Any] = [None] * len(positions)
        for block, slots in zip(wanted.tolist(), np.split(by_block, firsts[1:]), strict=True):
            within = (positions[slots] - self._starts[block]).tolist()
            if column is None:
                values = self._of_block(block, within, pieces)
            else:
                values = self._values(block, column, within, pieces)
            for slot, value in zip(slots.tolist(), values, strict=True):
                found[slot] = value
        return found

    def _of_block(self, block: int, within: list[int], pieces: Mapping[int, Any]) -> list[Sample]:
        structure, kinds = self._schemas[self._schema_of[block]]
        return structure.samples_of([self._values(block, number, within, pieces) for number in range(len(kinds))])

    def _values(self, block: int, column: int, within: list[int], pieces: Mapping[int, Any]) -> list[Any]:
        """The values of a column at places in a block."""
        kind = self._schemas[self._schema_of[block]][1][column]
        data = pieces[self._first_pieces[block] + column]
        n_values = self._starts[block + 1] - self._starts[block]
        if isinstance(kind, ValueKind):
            return values_of(kind, np.ndarray((n_values, *kind.row_shape), kind.row_dtype, data).take(within, axis=0))
        ends = np.frombuffer(data, "<u8", n_values)
        values: list[Any] = []
        try:
            for place in within:
                start = int(ends[place - 1]) if place else 0
                values.append(kind.decode(bytes(data[ends.nbytes + start : ends.nbytes + int(ends[place])])))
        except MALFORMED as error:
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
            return {number: self._piece(number) for number in numbers}
        found: dict[int, Any] = self._fetched.get_many(numbers)
        missing = [number for number in numbers if number not in found]
        ranges = [(self._offsets[number], self._sizes[number]) for number in missing]
        for number, data in zip(missing, self._storage.read_ranges(self._identifier, ranges) if ranges else (), strict=True):
            self._check(number, data)
            self._fetched.put(number, data)
            found[number] = memoryview(data)
        return found

    def _piece(self, number: int) -> memoryview:
        """A piece of a mapped file, which is checked when it is first used."""
        offset, size = self._offsets[number], self._sizes[number]
        data = memoryview(self._mapped)[offset : offset + size]  # type: ignore[arg-type]  # there is one
        if not self._is_checked[number]:
            self._check(number, data)
            self._is_checked[number] = 1
        return data

    def _check(self, number: int, data: Any) -> None:
        if block_digest(data) == digest_of_block(self._digests, number):
            return
        with self._storage.get_resource(self._identifier) as resource:
            trailer = _read_end(resource)
        if trailer != self._trailer:
            raise ResourceChangedError(self._identifier, f"the end {self._trailer.hex()}", f"the end {trailer.hex()}")
        raise self._damaged(f"the {self._sizes[number]} bytes from {self._offsets[number]} on differ from their digest")


def _read_at(resource: StreamedResource, offset: int, size: int) -> bytes:
    """A range of a resource, also of a third party's that can only seek."""
    if hasattr(resource, "read_at"):
        return resource.read_at(offset, size)
    resource.seek(offset)
    return resource.read(size)


def _read_end(resource: StreamedResource) -> bytes:
    return _read_at(resource, max(0, resource.size - _TRAILER.size), _TRAILER.size)


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
