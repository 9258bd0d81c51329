"""Record datasets: columns of records with random access, in Granular's files.

::

    import numpy as np

    from data_stack.formats import records

    spec = {"image": records.Column("array", "uint8", (28, 28)), "label": "i64"}
    with records.RecordWriter("train", spec) as writer:
        for image, label in zip(images, labels):
            writer.append({"image": image, "label": label})

    with records.open("train") as reader:       # as any iterator of data_stack: it stacks, splits, loads
        reader[17]["image"]                     # one sample, a dict
        reader.read_batch([3, 1, 4])["label"]   # columns, stacked

A folder, a storage connector, or the resources of a dataset can hold one. Each name is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_stack.codecs.codec import Codec, Column, FunctionCodec
    from data_stack.codecs.registry import codec_of
    from data_stack.formats.records.iterator_writer import inferred_spec, write_records
    from data_stack.formats.records.manifest import RecordsManifest
    from data_stack.formats.records.opening import open_records as open  # noqa: A004  # records.open("train")
    from data_stack.formats.records.reader import RecordReader
    from data_stack.formats.records.sharded import ShardedRecordReader
    from data_stack.formats.records.sharded_writer import ShardedRecordWriter
    from data_stack.formats.records.writer import RecordWriter

_NAMES = {
    "Codec": ("data_stack.codecs.codec", "Codec"),
    "Column": ("data_stack.codecs.codec", "Column"),
    "FunctionCodec": ("data_stack.codecs.codec", "FunctionCodec"),
    "RecordReader": ("data_stack.formats.records.reader", "RecordReader"),
    "RecordWriter": ("data_stack.formats.records.writer", "RecordWriter"),
    "RecordsManifest": ("data_stack.formats.records.manifest", "RecordsManifest"),
    "ShardedRecordReader": ("data_stack.formats.records.sharded", "ShardedRecordReader"),
    "ShardedRecordWriter": ("data_stack.formats.records.sharded_writer", "ShardedRecordWriter"),
    "codec_of": ("data_stack.codecs.registry", "codec_of"),
    "inferred_spec": ("data_stack.formats.records.iterator_writer", "inferred_spec"),
    "open": ("data_stack.formats.records.opening", "open_records"),
    "write_records": ("data_stack.formats.records.iterator_writer", "write_records"),
}

__all__ = [
    "Codec",
    "Column",
    "FunctionCodec",
    "RecordReader",
    "RecordWriter",
    "RecordsManifest",
    "ShardedRecordReader",
    "ShardedRecordWriter",
    "codec_of",
    "inferred_spec",
    "open",
    "write_records",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        module, attribute = _NAMES[name]
        return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
