"""A shuffle buffer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any


def shuffle(rows: Iterator[Any], capacity: int, seed: object) -> Iterator[Any]:
    """Iterate over rows, drawn at random from a buffer.

    Args:
        rows: any number of rows.
        capacity: size of the buffer; 0: no shuffling.
        seed: its text determines the order.
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
