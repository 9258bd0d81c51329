"""A buffer that mixes what passes through it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any


def shuffle(rows: Iterator[Any], capacity: int, seed: object) -> Iterator[Any]:
    """The rows, drawn from a buffer of ``capacity`` of them.

    Args:
        rows: in any number.
        capacity: 0 leaves the order as it is.
        seed: its text decides the order.
    """
    draws = random.Random(str(seed))  # noqa: S311  # no secret
    buffer: list[Any] = []
    for row in rows:
        if len(buffer) < capacity:
            buffer.append(row)
            continue
        place = draws.randrange(capacity) if capacity else None
        yield row if place is None else buffer[place]
        if place is not None:
            buffer[place] = row
    draws.shuffle(buffer)
    yield from buffer
