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
from data_stack.testing.datasets import watch_for_pickles
from data_stack.testing.iterators import assert_same

_MAX_OFFSETS = 300


class CodecContract:
    """Inherit it in a test class, and define two fixtures: ``codec``, and ``values``, a list that it stores without loss."""

    def test_values_come_back(self, codec: Codec, values: list[Any]) -> None:
        for value in values:
            record = codec.encode(value)

            assert type(record) is bytes
            assert_same(codec.decode(record), value)

    def test_a_value_is_the_callers_own(self, codec: Codec, values: list[Any]) -> None:
        record = codec.encode(values[0])

        for part in _arrays_in(codec.decode(record)):
            assert part.flags.writeable
            part[...] = 0

        assert_same(codec.decode(record), values[0])

    def test_threads_may_share_it(self, codec: Codec, values: list[Any]) -> None:
        with ThreadPoolExecutor(4) as threads:
            decoded = list(threads.map(lambda value: codec.decode(codec.encode(value)), values * 8))

        assert_same(decoded, values * 8)

    def test_it_pickles_is_equal_and_has_a_short_repr(self, codec: Codec, values: list[Any]) -> None:
        again = pickle.loads(pickle.dumps(codec))  # noqa: S301  # our own pickle

        assert again == codec
        assert hash(again) == hash(codec)
        assert again.encode(values[0]) == codec.encode(values[0])
        assert len(repr(codec)) < 90

    def test_it_is_described_as_json(self, codec: Codec) -> None:
        assert json.loads(json.dumps(codec.to_json()))["codec"] == codec.name

    def test_what_it_does_not_store_is_refused(self, codec: Codec) -> None:
        with pytest.raises((TypeError, ValueError, OverflowError, DataStackError)):
            codec.encode(object())

    def test_records_that_are_cut_short_or_flipped_give_an_error_or_a_value(self, codec: Codec, values: list[Any]) -> None:
        record = codec.encode(values[0])
        offsets = range(0, len(record), max(1, len(record) // _MAX_OFFSETS))
        damaged = [record[:offset] for offset in offsets]
        damaged += [record[:offset] + bytes([record[offset] ^ 1 << offset % 8]) + record[offset + 1 :] for offset in offsets]

        with watch_for_pickles() as found:
            for each in damaged:
                with contextlib.suppress(Exception):  # of any kind: readers report it as damage of the record
                    codec.decode(each)

        assert found == [], "a codec never runs what it reads"

    def test_a_record_dataset_holds_its_values(self, codec: Codec, values: list[Any], tmp_path: Path) -> None:
        with RecordWriter(tmp_path, {"value": "mine"}, codecs={"mine": codec}) as writer:
            for value in values:
                writer.append({"value": value})

        with RecordReader(tmp_path, codecs={"mine": codec}) as reader:
            assert_same([sample["value"] for sample in reader], values)


def _arrays_in(value: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays in a value, or the value itself if it is one."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [value] if isinstance(value, np.ndarray) else [array for part in parts for array in _arrays_in(part)]
