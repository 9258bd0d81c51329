"""Lines of standard input."""

from __future__ import annotations

import asyncio
import os

from data_stack.agents.standard_input import MAX_LINE_BYTES, StandardInput


def lines_of(data: bytes) -> list[str]:
    """Return the lines that are read of these bytes."""
    source, target = os.pipe()
    with os.fdopen(target, "wb") as file:
        file.write(data)

    async def read_all() -> list[str]:
        return [line async for line in StandardInput(source)]

    return asyncio.run(read_all())


def test_lines_arrive_in_order_and_the_input_ends() -> None:
    lines = lines_of(b"".join(b"line %d\n" % number for number in range(100)))

    assert lines == [f"line {number}" for number in range(100)]


def test_what_is_no_utf_8_is_replaced() -> None:
    assert lines_of(b"\xff\xc3\xa9\n") == ["\N{REPLACEMENT CHARACTER}é"]


def test_the_last_line_needs_no_end() -> None:
    assert lines_of(b"first\nlast") == ["first", "last"]


def test_a_line_that_is_too_long_ends_the_input() -> None:
    source, target = os.pipe()

    async def read_all() -> list[str]:
        writing = asyncio.to_thread(write_too_much)
        lines, _ = await asyncio.gather(collect(), writing)
        return lines

    async def collect() -> list[str]:
        return [line async for line in StandardInput(source)]

    def write_too_much() -> None:
        with os.fdopen(target, "wb", buffering=0) as file:
            file.write(b"first\n")
            for _ in range(1 + MAX_LINE_BYTES // 4096):
                file.write(b"x" * 4096)

    assert asyncio.run(read_all()) == ["first"]


def test_other_readers_of_standard_input_find_its_end() -> None:
    with StandardInput.opened():
        assert os.read(0, 1) == b""
