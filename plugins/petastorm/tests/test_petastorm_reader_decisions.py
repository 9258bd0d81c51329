"""What a reader decides before it reads: fields, shuffling, sizes of chunks and shards."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from data_stack_petastorm.any_reader import (
    check_reader,
    fills_nulls,
    is_at_end,
    is_endless,
    restart,
    seed_of,
)
from data_stack_petastorm.reader.chunk_size import choose_chunk_size
from data_stack_petastorm.reader.field_choices import check_choices, pattern_of
from data_stack_petastorm.reader.shuffling import Shuffling
from data_stack_petastorm.shards import Sharding

from data_stack.exception import ConfigError, LoaderStateError
from data_stack.formats.parquet import Field, Schema
from data_stack.loader import BlockShuffled, InOrder

# ------------------------------------------------------------------ fields


@pytest.mark.parametrize(
    ("choice", "matching", "others"),
    [
        ("id", ["id"], ["id2", "ID"]),
        ("id.*", ["id", "id2"], ["my_id"]),
        ("(?i)id", ["id", "ID"], ["id2"]),
        ("speed (km", ["speed (km"], ["speed "]),
        ("a.c", ["abc", "a.c"], ["ac"]),
        (re.compile("id", re.IGNORECASE), ["Id"], ["id2"]),
        (Field("a.c", "int64"), ["a.c"], ["abc"]),
    ],
)
def test_a_choice_matches_whole_names(choice: Any, matching: list[str], others: list[str]) -> None:
    joined = f"{pattern_of(choice)}|{pattern_of('another')}"

    for name in [*matching, "another"]:
        assert re.fullmatch(joined, name)
    for name in others:
        assert not re.fullmatch(joined, name)


def test_choices_are_a_list_of_fields_and_names() -> None:
    assert check_choices(None) == []
    assert check_choices(("id", "name")) == ["id", "name"]
    for senseless in ("id", {"id": 1}, 3):
        with pytest.raises(ConfigError, match="schema_fields"):
            check_choices(senseless)
    with pytest.raises(ConfigError, match="got 3"):
        pattern_of(3)


# ------------------------------------------------------------------ order and sizes


def test_a_capacity_is_rounded_up_to_row_groups() -> None:
    in_order = Shuffling(row_groups=True, rows=False, n_mixed=2)
    lengths = np.array([10, 10, 4])

    assert in_order.with_capacity(0, lengths) == in_order
    assert in_order.with_capacity(1, lengths) == in_order
    assert in_order.with_capacity(5, lengths) == Shuffling(True, True, 2)
    assert in_order.with_capacity(17, lengths) == Shuffling(True, True, 3)
    for senseless in (-1, 2.5, None):
        with pytest.raises(ConfigError, match="shuffling_queue_capacity"):
            in_order.with_capacity(senseless, lengths)


def test_an_order_shuffles_only_what_is_asked_for() -> None:
    lengths = np.array([5, 5, 5, 5])

    def order(**options: Any) -> np.ndarray[Any, Any]:
        made = Shuffling(**{"row_groups": False, "rows": False, "n_mixed": 1, **options})
        return made.make_order(lengths).indices(np.arange(20), 20, 1, 0).reshape(4, 5)

    assert isinstance(Shuffling(False, False, 1).make_order(lengths), InOrder)
    assert isinstance(Shuffling(True, False, 1).make_order(lengths), BlockShuffled)
    assert np.array_equal(order().ravel(), np.arange(20))
    assert np.array_equal(order(row_groups=True) % 5, np.tile(np.arange(5), (4, 1)))
    assert np.array_equal(order(rows=True) // 5, np.repeat(np.arange(4), 5).reshape(4, 5))
    assert not np.array_equal(order(rows=True).ravel(), np.arange(20))


def test_a_chunk_has_four_mebibytes_or_512_rows() -> None:
    number = Field("id", "int64")
    image = Field("image", "uint8", (1024, 1024))
    frames = Field("frames", "uint8", (None, 1024, 1024))

    assert choose_chunk_size(Schema("s", [number]), 1) == 512
    # A value counts at least 8 bytes, so an image counts 8 MiB.
    assert choose_chunk_size(Schema("s", [number, image]), 1) == 1
    assert choose_chunk_size(Schema("s", [frames]), 1) == 1
    assert choose_chunk_size(Schema("s", [Field("v", "float64", (1024,))]), 1) == 512
    assert choose_chunk_size(Schema("s", [Field("v", "float64", (1024,))]), 4) == 128


@pytest.mark.parametrize(
    ("uneven", "in_last_step"), [("pad", [2, 2, 1]), ("drop", [1, 1, 1]), ("keep", [2, 2, 1])]
)
def test_sizes_of_shards_count_each_row_once(uneven: Any, in_last_step: list[int]) -> None:
    # Two steps of three batches of four, and five rows.
    sizes = Sharding(3, 4, uneven).sizes(29)

    assert sizes.in_full_steps == 8
    assert sizes.in_last_step.tolist() == in_last_step


def test_the_sharding_of_a_state_is_that_of_its_order() -> None:
    order = {"order": "shards", "n_shards": 3, "batch_size": 8, "uneven": "drop"}

    assert Sharding.of_state({"order": order}) == Sharding(3, 8, "drop")
    for state in (None, {}, {"order": None}, {"order": {"order": "shuffled"}}):
        assert Sharding.of_state(state) == Sharding(1, 1, "pad")


@pytest.mark.parametrize(
    "damage", [{"n_shards": None}, {"batch_size": 0}, {"n_shards": -1}, {"uneven": "none"}]
)
def test_damaged_shards_of_a_state_are_refused(damage: dict[str, Any]) -> None:
    order = {"order": "shards", "n_shards": 3, "batch_size": 8, "uneven": "drop", **damage}

    with pytest.raises(LoaderStateError, match="invalid shards"):
        Sharding.of_state({"order": order})


def test_shards_of_a_state_without_their_number_are_refused() -> None:
    with pytest.raises(LoaderStateError, match="n_shards"):
        Sharding.of_state({"order": {"order": "shards"}})


# ------------------------------------------------------------------ readers of others


class ForeignReader:
    """A reader with nothing but what Petastorm's adapters ask for."""

    batched_output = False

    def __init__(self) -> None:
        self.n_resets = 0

    def reset(self) -> None:
        self.n_resets += 1


def test_a_foreign_reader_has_neutral_defaults() -> None:
    reader = ForeignReader()

    check_reader(reader)
    assert not fills_nulls(reader)
    assert not is_at_end(reader)
    assert is_endless(reader)
    assert seed_of(reader) == 0
    restart(reader)
    assert reader.n_resets == 1


def test_a_url_is_no_reader() -> None:
    with pytest.raises(ConfigError, match="expected a reader, got str"):
        check_reader("file:///data")
