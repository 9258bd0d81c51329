"""LMDB: a value a sample, keys by number, all reads in one transaction."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import numpy.typing as npt

from record_peers.system import BATCH, Batch, Reader, Sample, System, decoded, stacked, unpack
from record_peers.workload import Field, Schema, Workload

_KEY = struct.Struct(">I")
_CODES = {"<i8": "q", "<i4": "i", "<f4": "f", "|u1": "B"}


class LMDBReader(Reader):
    """Fields end to end in each value, taken out by ``struct`` and ``numpy.frombuffer``, or the
    only blob.

    Args:
        schema: what the samples are.
        folder: where they lie.
        joined: a batch joins its values and is one structured array; else it stacks samples.
    """

    def __init__(self, schema: Schema, folder: Path, *, joined: bool) -> None:
        self._schema, self._is_packed, self._joined = schema, schema.packed is not None, joined
        self._environment = lmdb.open(
            str(folder), readonly=True, lock=False, readahead=False, max_readers=16
        )
        self._transaction = self._environment.begin()
        self._sample = _unpacker(schema.fields) if self._is_packed else self._blob

    def __len__(self) -> int:
        return self._schema.n

    def one(self, index: int) -> Sample:
        return self._sample(self._transaction.get(_KEY.pack(index)))

    def _blob(self, value: bytes) -> Sample:
        (field,) = self._schema.fields
        return {field.name: decoded(value) if field.kind == "jpeg" else value}

    def batch(self, indices: npt.NDArray[Any]) -> Batch:
        get, pack = self._transaction.get, _KEY.pack
        if self._is_packed and not self._joined:
            return stacked(
                [self._sample(get(pack(index))) for index in indices.tolist()], self._schema
            )
        return unpack([get(pack(index)) for index in indices.tolist()], self._schema)

    def records(self) -> Iterator[Sample]:
        return map(self._sample, self._transaction.cursor().iternext(keys=False, values=True))

    def batches(self) -> Iterator[Batch]:
        values = self._transaction.cursor().iternext(keys=False, values=True)
        while run := list(islice(values, BATCH)):
            yield unpack(run, self._schema)

    def close(self) -> None:
        self._transaction.abort()
        self._environment.close()


def _unpacker(fields: tuple[Field, ...]) -> Any:
    """A function that takes the fields out of a value; arrays are views of it."""
    scalars = [field for field in fields if field.kind == "scalar"]
    arrays = [field for field in fields if field.kind == "array"]
    dtype = np.dtype([(field.name, field.dtype, field.shape) for field in fields])
    assert dtype.fields is not None
    layout = "<" + "".join(
        _CODES[field.dtype]
        if field.kind == "scalar"
        else f"{int(np.prod(field.shape)) * np.dtype(field.dtype).itemsize}x"
        for field in fields
    )
    unpack_scalars, names = struct.Struct(layout).unpack, [field.name for field in scalars]
    (array,) = arrays  # each workload has one
    start, count, kind, shape = (
        dtype.fields[array.name][1],
        int(np.prod(array.shape)),
        np.dtype(array.dtype),
        array.shape,
    )
    one_dimension = len(shape) == 1

    def sample(value: bytes) -> Sample:
        found: Sample = dict(zip(names, unpack_scalars(value), strict=True))
        view = np.frombuffer(value, kind, count, start)
        found[array.name] = view if one_dimension else view.reshape(shape)
        return found

    return sample


def write(work: Workload, folder: Path) -> None:
    """One transaction, ``putmulti(append=True)``; committing makes it durable, as always."""
    size = (
        sum(len(record) for record in work.packed_records())
        if work.schema.packed is None
        else work.record_array.nbytes
    )
    with (
        lmdb.open(str(folder), map_size=3 * size + (64 << 20)) as environment,
        environment.begin(write=True) as transaction,
    ):
        with transaction.cursor() as cursor:
            cursor.putmulti(
                (
                    (_KEY.pack(number), record)
                    for number, record in enumerate(work.packed_records())
                ),
                append=True,
            )


SYSTEMS = {
    "lmdb": System(write, partial(LMDBReader, joined=False)),
    # by hand, values joined into one structured array: nothing of LMDB's does that, so it is no
    # peer but a limit
    "lmdb, joined": System(
        write, partial(LMDBReader, joined=True), kind="limit", measures=("batch",), packed_only=True
    ),
}
