"""Iterators and transforms for worker processes to work with."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np


class Numbers:
    """The samples 0 to ``n - 1``."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: int) -> int:
        return index


class Mixed:
    """Samples with every kind of value a column can be made of."""

    def __len__(self) -> int:
        return 150

    def __getitem__(self, index: int) -> dict[str, Any]:
        values: dict[str, Any] = {
            "integer": index,
            "float": index / 7,
            "flag": index % 2 == 0,
            "complex": complex(index, 1),
            "image": np.full((5, 4), index, dtype=np.uint8),
            "turned": np.arange(12.0).reshape(3, 4).T + index,
            "empty": np.empty((0, 3)),
            "date": np.datetime64("2020-01-01") + np.timedelta64(index, "D"),
            "text": f"é{index}" * (index % 3),
            "surrogate": "\udc80" + str(index),
            "blob": bytes([index]) * (index % 11),
            "long blob": bytes([index]) * 9000,
            "ragged": np.arange(index % 5),
            "maybe": None if index % 2 else index,
            "record": np.array((index, 0.5), dtype=[("a", "<i4"), ("b", ">f8")]),
            "fixed": np.bytes_(b"ab%d" % index),
        }
        return values


class Unruly(Exception):
    """An exception that does not survive pickling."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class Told:
    """A transform that calls one of its methods when it gets a certain batch.

    Args:
        what: the name of the method.
        at: the first sample of the batch.
        file: the file that ``wait_for_file`` waits for.
    """

    def __init__(self, what: str, at: int, file: Path | None = None) -> None:
        self.what = what
        self.at = at
        self.file = file

    def __call__(self, batch: Any) -> Any:
        if batch[0] == self.at:
            getattr(self, self.what)()
        return batch

    def fail_unruly(self) -> NoReturn:
        raise Unruly(1, 2)

    def leave(self) -> NoReturn:
        sys.exit(3)

    def drop_dead(self) -> NoReturn:
        os._exit(3)

    def wait_for_file(self) -> None:
        assert self.file is not None
        while not self.file.exists():
            time.sleep(0.01)

    def sleep_long(self) -> None:
        time.sleep(600)


def strange(batch: Any, rng: np.random.Generator) -> Any:
    """A batch of all that is not a plain array."""
    import torch

    array = np.arange(20.0).reshape(4, 5)
    frozen = np.arange(3000)
    frozen.flags.writeable = False
    return {
        "batch": batch,
        "drawn": rng.random(3),
        "cut": array[:, ::2],
        "frozen": frozen,
        "shared": [array, array],
        "tensor": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T,
        "no tensor": torch.zeros((0, 3)),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "text": [{"words": ["a" * 100] * 10} for _ in range(4)],
        "masked": np.ma.masked_array([1, 2], mask=[True, False]),
    }
