"""litdata: optimize(), StreamingDataset over a local folder."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litdata
import numpy.typing as npt
import torch

from record_peers.system import BATCH, Batch, Reader, Sample, System, decoded, stacked
from record_peers.workload import Schema, Workload

try:
    from torchvision.io import ImageReadMode, decode_jpeg  # what its own JPEG fields are decoded by
except (ImportError, RuntimeError):  # the wheels on PyPI need CUDA
    decode_jpeg = None


def _picture(jpeg: bytes) -> Any:
    """A picture by torchvision, or where that is not to be had by Pillow."""
    if decode_jpeg is None:
        return decoded(jpeg)
    return decode_jpeg(torch.frombuffer(bytearray(jpeg), dtype=torch.uint8), ImageReadMode.RGB).permute(1, 2, 0).numpy()


class LitdataReader(Reader):
    """Samples by ``dataset[i]``, decoded one by one: ``batch_decode`` would decode 256 for each random sample."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._schema = schema
        self._cache = tempfile.TemporaryDirectory()
        options: dict[str, Any] = {"cache_dir": self._cache.name, "shuffle": False}
        self._at_random = litdata.StreamingDataset(str(folder), batch_decode=0, **options)
        self._in_order = litdata.StreamingDataset(str(folder), **options)
        self._jpegs = [field.name for field in schema.fields if field.kind == "jpeg"]

    def __len__(self) -> int:
        return len(self._at_random)

    def _decode(self, sample: Sample) -> Sample:
        return {name: _picture(value) if name in self._jpegs else value for name, value in sample.items()}

    def one(self, index: int) -> Sample:
        sample: Sample = self._at_random[index]
        return self._decode(sample) if self._jpegs else sample

    def batch(self, indices: npt.NDArray[Any]) -> Batch:
        return stacked([self.one(index) for index in indices.tolist()], self._schema)

    def records(self) -> Iterator[Sample]:
        # A generator: iter() of its iterator, which islice calls, would begin anew.
        if not self._jpegs:
            yield from self._in_order
        else:
            yield from map(self._decode, self._in_order)

    def batches(self) -> Iterator[Batch]:
        samples = self.records()
        while batch := list(itertools.islice(samples, BATCH)):
            yield stacked(batch, self._schema)

    def close(self) -> None:
        self._cache.cleanup()


def write(work: Workload, folder: Path) -> None:
    """Chunks of 64 MB."""

    def samples(_: int) -> Iterator[Sample]:  # litdata takes generator functions, nothing that calls one
        yield from work.samples()

    logging.getLogger("litdata").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        litdata.optimize(samples, [0], str(folder), chunk_bytes="64MB", num_workers=1, start_method="fork", verbose=False)


SYSTEMS = {"litdata": System(write, LitdataReader)}
