"""MosaicML Streaming: MDSWriter, StreamingDataset over a local folder."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy.typing as npt

from record_peers.system import BATCH, Batch, Reader, Sample, System, decoded, stacked
from record_peers.workload import Field, Schema, Workload


def _imported() -> Any:
    """The package. Its ``__init__`` imports ready-made data sets of pictures and text, for which it wants torchvision and an
    old transformers, gigabytes that nothing measured here touches: where they are missing, stand-ins take their names.
    """
    wanted = {
        "torchvision": (),
        "torchvision.datasets": ("VisionDataset", "CIFAR10"),
        "torchvision.transforms": (),
        "torchvision.transforms.functional": ("to_tensor",),
        "transformers": (),
        "transformers.feature_extraction_utils": ("BatchFeature",),
        "transformers.tokenization_utils_base": ("BatchEncoding",),
        "transformers.models": (),
        "transformers.models.auto": (),
        "transformers.models.auto.tokenization_auto": ("AutoTokenizer",),
    }
    stand_ins = []
    for package in ("torchvision", "transformers"):
        try:
            __import__(package)
        except (ImportError, RuntimeError):
            stand_ins += [name for name in wanted if name.split(".")[0] == package]
    for name in stand_ins:
        module = types.ModuleType(name)
        for attribute in wanted[name]:
            setattr(module, attribute, type(attribute, (), {}))
        sys.modules[name] = module
    try:
        import streaming
    finally:
        for name in stand_ins:
            del sys.modules[name]
    return streaming


streaming = _imported()


def _encoding(field: Field) -> str:
    if field.kind == "scalar":
        return {"<i8": "int64", "<i4": "int32"}[field.dtype]
    if field.kind == "array":
        dtype = {"<f4": "float32", "|u1": "uint8"}[field.dtype]
        return f"ndarray:{dtype}:{','.join(map(str, field.shape))}"
    return "bytes"  # its "jpeg" stores pictures of Pillow anew, and decodes by Pillow as we do here


class StreamingReader(Reader):
    """Samples by ``dataset[i]``."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._schema = schema
        self._dataset = streaming.StreamingDataset(local=str(folder), shuffle=False, batch_size=BATCH)
        self._jpegs = [field.name for field in schema.fields if field.kind == "jpeg"]

    def __len__(self) -> int:
        return int(self._dataset.size)

    def _decode(self, sample: Sample) -> Sample:
        for name in self._jpegs:
            sample[name] = decoded(sample[name])
        return sample

    def one(self, index: int) -> Sample:
        sample: Sample = self._dataset[index]
        return self._decode(sample) if self._jpegs else sample

    def batch(self, indices: npt.NDArray[Any]) -> Batch:
        return stacked([self.one(index) for index in indices.tolist()], self._schema)

    def records(self) -> Iterator[Sample]:
        return map(self._decode, map(self._dataset.get_item, range(len(self))))


def write(work: Workload, folder: Path) -> None:
    """Shards of 64 MiB, its default."""
    columns = {field.name: _encoding(field) for field in work.schema.fields}
    with streaming.MDSWriter(out=str(folder), columns=columns) as writer:
        for sample in work.samples():
            writer.write(sample)


# Opening again and again is not measured: each time opens the shared memory of all times before once more.
SYSTEMS = {"streaming": System(write, StreamingReader, measures=("write", "one", "batch", "records", "batches"))}
