"""Reads Petastorm's pickled schema and indexes without running them, and writes such pickles."""

from __future__ import annotations

from data_stack.formats.parquet.pickled.known_globals import codec_makers, register_pickled_codec
from data_stack.formats.parquet.pickled.reading import read_pickled_indexes, read_pickled_schema
from data_stack.formats.parquet.pickled.values import PickledCodec, PickledField, PickledIndex, PickledSchema
from data_stack.formats.parquet.pickled.writing import write_pickled_indexes, write_pickled_schema

__all__ = [
    "PickledCodec",
    "PickledField",
    "PickledIndex",
    "PickledSchema",
    "codec_makers",
    "read_pickled_indexes",
    "read_pickled_schema",
    "register_pickled_codec",
    "write_pickled_indexes",
    "write_pickled_schema",
]
