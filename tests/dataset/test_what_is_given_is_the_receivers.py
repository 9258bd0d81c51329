"""Whatever is written into what a layer in memory, a cache, batches or a loader gave, the next epoch gives the same again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from layer_laws import exact

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.contract import as_iterator
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.loader import Loader

N = 7


class Pair(NamedTuple):
    left: Any
    right: Any


def samples_of(kind: str) -> list[Any]:
    rng = np.random.default_rng(0)
    ragged = [rng.integers(1, 9, size=k % 3 + 1) for k in range(N)]
    samples: dict[str, list[Any]] = {
        "arrays": [(np.full((2, 3), k), k) for k in range(N)],
        "ragged": [(each, "word") for each in ragged],
        "nested": [
            {
                "box": {"xy": [k, {"deep": np.ones(2)}], "tags": {"a", str(k)}},
                "raw": bytearray(b"ab"),
            }
            for k in range(N)
        ],
        "tensors": [(torch.full((3,), k + 1), k) for k in range(N)],
        "named": [Pair([k], {"k": np.ones(k % 2 + 1)}) for k in range(N)],
    }
    return samples[kind]


KINDS = ["arrays", "ragged", "nested", "tensors", "named"]


def scribble(value: Any, depth: int = 0) -> None:
    """Write into all of it that can be written to."""
    if isinstance(value, np.ndarray):
        for each in value.reshape(-1) if value.dtype == object else ():
            scribble(each, depth + 1)
        if value.flags.writeable and value.size:
            value[...] = None if value.dtype == object else np.zeros((), value.dtype)
    elif isinstance(value, torch.Tensor):
        value.zero_()
    elif isinstance(value, dict):
        for each in list(value.values()):
            scribble(each, depth + 1)
        value["scribbled"] = True
    elif isinstance(value, (list, tuple)):
        for each in value:
            scribble(each, depth + 1)
        if isinstance(value, list):
            value.append("scribbled")
    elif isinstance(value, set):
        value.add("scribbled")
    elif isinstance(value, bytearray):
        value += b"scribbled"


LAYERS: dict[str, Callable[[DatasetIteratorIF], Any]] = {
    "in memory": lambda source: source.in_memory(),
    "cache": lambda source: source.cache(),
    "bounded cache": lambda source: source.cache(max_bytes=3000),
    "stored cache": lambda source: source.in_memory().cache(
        storage=InMemoryStorageConnector(), version="1"
    ),
    "batches": lambda source: source.batch(3),
    "windows": lambda source: source.windows(2),
    "n-grams": lambda source: source.windows(2, offsets={0: None, 1: None}),
    "n-grams of columns": lambda source: source.windows(
        2, offsets={0: [_key(source)], 1: [_key(source)]}
    ),
    "view of a cache": lambda source: source.cache().shuffle(seed=1),
}

WAYS: dict[str, Callable[[Any], Any]] = {
    "one by one": lambda given: [given[k] for k in range(len(given))],
    "iteration": lambda given: list(given),
    "list": lambda given: given.__getitems__(list(range(len(given)))),
    "batch": lambda given: given.read_batch(list(range(len(given)))),
    "loader inline": lambda given: list(Loader(given, 3, worker_kind="inline")),
    "loader threads": lambda given: list(Loader(given, 2, worker_kind="threads", workers=2)),
    "loader, torch": lambda given: list(Loader(given, 3, worker_kind="inline").torch()),
}


def _key(given: Any) -> Any:
    return next(iter(given[0])) if isinstance(given[0], dict) else 0


def check(given: Any, way: str) -> None:
    expected = exact(WAYS[way](given))
    for _ in range(2):
        scribble(WAYS[way](given))

    assert exact(WAYS[way](given)) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", LAYERS)
def test_what_a_layer_gave_may_be_written_into(layer: str, kind: str) -> None:
    if layer == "stored cache" and kind in ("nested", "named"):
        return  # it takes no bytearrays and no named tuples
    for way in WAYS:
        check(LAYERS[layer](as_iterator(samples_of(kind))), way)
