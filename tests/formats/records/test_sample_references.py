"""The references of a sample, as ``refs.bag`` stores them."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from data_stack.formats.records.layout import MAX_RECORDS
from data_stack.formats.records.sample_references import pack_references, parse_references


def test_references_come_back_as_first_and_count() -> None:
    packed = pack_references([7, (3, 2), (5, 0)])

    assert parse_references(packed, [False, True, True]) == [(7, 1), (3, 2), (0, 0)]


def test_an_empty_sequence_is_stored_as_an_empty_list() -> None:
    assert msgpack.unpackb(pack_references([0, (9, 0)])) == [0, []]


@pytest.mark.parametrize(
    "entry", [-1, MAX_RECORDS + 1, True, None, 1.5, [1], [1, 2, 3], [1, -1], [1, True], [1, 2]]
)
def test_invalid_numbers_of_records_are_refused(entry: Any) -> None:
    with pytest.raises(ValueError, match="neither the number of a record"):
        parse_references(msgpack.packb([entry]), [False])


@pytest.mark.parametrize("entry", [0, [1], [1, 2, 3], [1, -1], [MAX_RECORDS + 1, 1], [True, 1]])
def test_invalid_sequences_are_refused(entry: Any) -> None:
    with pytest.raises(ValueError, match="first and count of a sequence"):
        parse_references(msgpack.packb([entry]), [True])


@pytest.mark.parametrize("content", [[], [1, 2], 1])
def test_every_column_needs_an_entry(content: Any) -> None:
    with pytest.raises(ValueError, match="an entry for each column"):
        parse_references(msgpack.packb(content), [False])
