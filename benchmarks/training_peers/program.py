"""What a training program is to the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BATCH = {"images": 128, "tokens": 16, "tables": 4096}  # by the first word of a case
N_WORKERS = 2
WINDOW = 1024


@dataclass(frozen=True)
class Program:
    """One way to read the data of a case.

    Attributes:
        kind: "ours", "peer" or "limit".
        epochs: returns a function that begins an epoch: an iterator of batches of torch tensors.
        prepare: writes the data in the peer's format into a new folder, from the data of the case;
            None if it reads these.
        settings: what the page says of the way it is used.
    """

    kind: str
    epochs: Callable[[Path, Path], Callable[[], Iterator[Any]]]
    prepare: Callable[[Path, Path], None] | None = None
    settings: str = field(default="", kw_only=True)
