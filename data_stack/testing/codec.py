"""The test suite of codecs."""

from __future__ import annotations

import contextlib
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_stack.codecs import Codec
from data_stack.exception import DataStackError
from data_stack.formats.records import RecordReader, RecordWriter
from data_stack.testing.comparing import assert_same
from data_stack.testing.unpickling import watch_for_pickles

#: The maximum number of offsets at which a record is damaged.
_MAX_OFFSETS = 300

#: The number of characters that the repr of a codec must not reach: messages show it.
_MAX_LENGTH_OF_REPR = 90


class CodecContract:
    """What every codec promises.

    Inherit it in a test class, and define two fixtures: ``codec``, and ``values``, a list that it
    stores without loss.
    """

    def test_values_come_back(self, codec: Codec, values: list[Any]) -> None:
        """What ``encode`` returns is bytes, which ``decode`` turns into an equal value."""
        for value in values:
            record = codec.encode(value)

            assert type(record) is bytes
            assert_same(codec.decode(record), value)

    def test_a_value_is_the_callers_own(self, codec: Codec, values: list[Any]) -> None:
        """A caller may write into decoded arrays; later values do not change with them."""
        record = codec.encode(values[0])

        for array in _arrays_in(codec.decode(record)):
            assert array.flags.writeable
            array[...] = 0

        assert_same(codec.decode(record), values[0])

    def test_threads_may_share_it(self, codec: Codec, values: list[Any]) -> None:
        """Threads encode and decode by one codec at once."""
        many_values = values * 8

        with ThreadPoolExecutor(4) as threads:
            decoded = list(
                threads.map(lambda value: codec.decode(codec.encode(value)), many_values)
            )

        assert_same(decoded, many_values)

    def test_a_pickled_copy_is_equal(self, codec: Codec, values: list[Any]) -> None:
        """A copy made by pickle is equal, has the same hash, and encodes to the same bytes."""
        copy = pickle.loads(pickle.dumps(codec))  # noqa: S301  # our own pickle

        assert copy == codec
        assert hash(copy) == hash(codec)
        assert copy.encode(values[0]) == codec.encode(values[0])

    def test_it_has_a_short_repr_and_a_description(self, codec: Codec) -> None:
        """``to_json`` describes the codec in JSON, by its name and its options."""
        description = json.loads(json.dumps(codec.to_json()))

        assert description["codec"] == codec.name
        assert len(repr(codec)) < _MAX_LENGTH_OF_REPR

    def test_what_it_does_not_store_is_refused(self, codec: Codec) -> None:
        """A value of a type that the codec does not know is an error, not other bytes."""
        with pytest.raises((TypeError, ValueError, OverflowError, DataStackError)):
            codec.encode(object())

    def test_a_damaged_record_runs_no_code(self, codec: Codec, values: list[Any]) -> None:
        """A record that is cut short, or has a flipped bit, gives an error or a value.

        Any error will do: readers report it as damage of the record. No pickle is read, as a
        pickle runs the code of its author.
        """
        with watch_for_pickles() as unpickled_names:
            for damaged_record in _damage(codec.encode(values[0])):
                with contextlib.suppress(Exception):
                    codec.decode(damaged_record)

        assert unpickled_names == [], "a codec never runs what it reads"

    def test_a_record_dataset_holds_its_values(
        self, codec: Codec, values: list[Any], tmp_path: Path
    ) -> None:
        """The codec is the type of a column of records, under a name of the writer's choice."""
        with RecordWriter(tmp_path, {"value": "mine"}, codecs={"mine": codec}) as writer:
            for value in values:
                writer.append({"value": value})

        with RecordReader(tmp_path, codecs={"mine": codec}) as reader:
            assert_same([sample["value"] for sample in reader], values)


def _arrays_in(value: Any) -> list[np.ndarray[Any, Any]]:
    """Return the arrays in a value, or the value itself if it is one."""
    if isinstance(value, np.ndarray):
        return [value]
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (tuple, list)):
        parts = list(value)
    arrays = []
    for part in parts:
        arrays.extend(_arrays_in(part))
    return arrays


def _damage(record: bytes) -> list[bytes]:
    """Return damaged copies of a record: for each of many offsets, two.

    One copy ends before the offset, the other one has a flipped bit there.
    """
    step = max(1, len(record) // _MAX_OFFSETS)
    damaged_records = []
    for offset in range(0, len(record), step):
        flipped_bit = 1 << offset % 8
        flipped_byte = bytes([record[offset] ^ flipped_bit])
        damaged_records.append(record[:offset])
        damaged_records.append(record[:offset] + flipped_byte + record[offset + 1 :])
    return damaged_records
