"""A shuffle buffer for rows that must be taken one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any


def shuffle(rows: Iterator[Any], capacity: int, seed: object) -> Iterator[Any]:
    """Iterate over rows, drawn at random from a buffer.

    Args:
        rows: any number of rows.
        capacity: number of rows in the buffer; 0: no shuffling.
        seed: any value; ``str(seed)`` determines the order.
    """
    if capacity == 0:
        yield from rows
        return
    generator = random.Random(str(seed))  # noqa: S311  # the order is no secret
    buffer: list[Any] = []
    for row in rows:
        if len(buffer) < capacity:
            buffer.append(row)
            continue
        # The new row takes the place of the row that leaves the buffer.
        place = generator.randrange(capacity)
        yield buffer[place]
        buffer[place] = row
    # No more rows come: the remaining ones leave in a random order.
    generator.shuffle(buffer)
    yield from buffer
