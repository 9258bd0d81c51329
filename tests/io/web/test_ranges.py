"""Which sent part of a file answers which request."""

from __future__ import annotations

import pytest

from data_stack.io.web.ranges import ByteRange, SentRange


@pytest.mark.parametrize(
    ("start", "stop", "size"), [(10, 20, 100), (10, 20, None), (10, 15, 15), (10, 15, None)]
)
def test_a_part_may_end_early_only_with_the_file(start: int, stop: int, size: int | None) -> None:
    assert SentRange(start, stop, size).is_all_of(ByteRange(10, 20))


@pytest.mark.parametrize(
    ("start", "stop", "size"),
    [(9, 20, 100), (11, 20, 100), (10, 10, 10), (10, 21, 100), (10, 15, 100)],
)
def test_another_part_is_no_answer(start: int, stop: int, size: int | None) -> None:
    assert not SentRange(start, stop, size).is_all_of(ByteRange(10, 20))


@pytest.mark.parametrize(
    ("stop", "size", "is_all"), [(99, 99, True), (99, 100, False), (99, None, False)]
)
def test_an_open_part_ends_with_the_file(stop: int, size: int | None, is_all: bool) -> None:
    assert SentRange(10, stop, size).is_all_of(ByteRange(10)) == is_all
