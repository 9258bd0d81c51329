"""Samples that a cache keeps, in memory or in a store: values of all kinds, and the law that they
come back exactly.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from layer_laws import Samples
from layer_laws import exact as exact
from torch_or_stand_in import torch

from data_stack.dataset.iterator import DatasetIterator
from data_stack.exception import ConfigError


class Point(NamedTuple):
    x: Any
    y: Any


VALUES: dict[str, Callable[[int], Any]] = {
    "bool": lambda i: i % 2 == 0,
    "int": lambda i: i - 3,
    "large int": lambda i: 2**63 - 1 - i,
    "huge int": lambda i: 2**63 + i,
    "float": lambda i: [0.5, float("nan"), float("inf"), -0.0][i % 4],
    "complex": lambda i: complex(i, -1),
    "none": lambda i: None,
    "str": lambda i: ["", "é", "\ud800", "a\0"][i % 4] * (i % 3),
    "bytes": lambda i: b"\0x" * (i % 3),
    "numpy float32": lambda i: np.float32(i),
    "numpy bool": lambda i: np.bool_(i % 2),
    "numpy float64": lambda i: np.float64(i),
    "datetime": lambda i: np.datetime64("2020-01-01") + i,
    "numpy str": lambda i: np.str_("a" * i),
    "array": lambda i: np.full((2, 3), i, dtype=np.uint8),
    "big-endian array": lambda i: np.arange(3, dtype=">i4") + np.array(i, dtype=">i4"),
    "array of no dimension": lambda i: np.array(i),
    "empty array": lambda i: np.empty((0, 3), dtype=np.float32),
    "array of names": lambda i: np.array(["a", "bc"]),
    "record": lambda i: np.array([(i, 0.5)], dtype=[("a", "i4"), ("b", "f8")]),
    "objects": lambda i: np.array([i, "a", None], dtype=object),
    "ragged": lambda i: np.arange(i % 3),
    "tensor": lambda i: torch.full((2,), float(i)),
    "tensor of no dimension": lambda i: torch.tensor(i),
    "empty tensor": lambda i: torch.empty(0, 2),
    "bfloat16": lambda i: torch.full((2,), i, dtype=torch.bfloat16),
    "bool tensor": lambda i: torch.tensor([i % 2 == 0]),
    "ragged tensor": lambda i: torch.ones(i % 3),
    "list": lambda i: [i, i + 1],
    "nested": lambda i: {"a": (i, [None])},
    "int or none": lambda i: i if i % 3 else None,
    "int or bool": lambda i: i if i < 4 else i % 2 == 0,
    "float, later int": lambda i: float(i) if i < 5 else i,
    "int, later huge": lambda i: i if i < 5 else 2**70,
    "array, later longer": lambda i: np.zeros(2 if i < 5 else 3),
    "tensor, later another dtype": lambda i: torch.zeros(
        2, dtype=torch.float32 if i < 5 else torch.float64
    ),
    "str, later none": lambda i: "a" if i < 5 else None,
    "none, later str": lambda i: None if i < 5 else "a",
}


STRUCTURES: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "list": list,
    "named tuple": lambda values: Point(values[0], values[-1]),
    "dict": lambda values: {f"column {number}": value for number, value in enumerate(values)},
    "dict with other keys": lambda values: {1: values[0]},
    "ordered dict": lambda values: OrderedDict(a=values[0]),
    "bare": lambda values: values[0],
}


def outcome(read: Callable[..., Any], *arguments: Any) -> Any:
    """What is read, or that samples differ, and how."""
    try:
        return exact(read(*arguments))
    except ConfigError as error:
        return ConfigError, str(error)


def check_equal_to_list(iterator: DatasetIterator, samples: list[Any], indices: list[int]) -> None:
    """The law of every layer."""
    listed = Samples(samples)
    assert len(iterator) == len(samples)
    assert exact([iterator[i] for i in range(len(samples))]) == exact(samples)
    assert exact(list(iterator)) == exact(samples)
    assert exact(iterator.__getitems__(indices)) == exact([samples[i] for i in indices])
    expected = outcome(listed.read_batch, indices)
    assert outcome(iterator.read_batch, indices) == expected
    if expected[0] is ConfigError:
        return
    assert exact(iterator.read_batch([])) == exact(listed.read_batch([]))
    if not samples or not isinstance(samples[0], (tuple, list, dict)):
        return
    for key in (
        samples[0] if isinstance(samples[0], dict) else range(-len(samples[0]), len(samples[0]))
    ):
        for some in (None, indices, [], np.arange(len(samples)) % 2 == 0, slice(None, None, -2)):
            assert outcome(iterator.read_column, key, some) == outcome(
                listed.read_column, key, some
            )
