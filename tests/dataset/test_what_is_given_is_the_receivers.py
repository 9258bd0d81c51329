"""Whatever is written into what a layer in memory, a cache, batches or a loader gave, the next
epoch gives the same again.
"""

from __future__ import annotations

import collections
import copy
import datetime
import decimal
import fractions
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from layer_laws import exact
from PIL import Image
from torch_or_stand_in import torch

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.loader import Loader
from data_stack.values.copies import copy_value

N = 7


class Pair(NamedTuple):
    left: Any
    right: Any


class Words(list[Any]):
    """A list of a client's, with a constructor of its own and an attribute."""

    def __init__(self, language: str, *words: Any) -> None:
        super().__init__(words)
        self.notes = [language]


class Fields(dict[str, Any]):
    """A dict of a client's."""


class Structure(tuple[Any, ...]):
    """A tuple of a client's."""


@dataclass
class Example:
    """A sample of a client's."""

    boxes: Any
    tags: list[str] = field(default_factory=list)


RECORD = np.dtype([("number", "i4"), ("words", "O"), ("inner", [("list", "O"), ("pair", "O", 2)])])


def record(k: int) -> Any:
    return np.array((k, ["a"], ([k], [{"k": k}, [k]])), RECORD)


def objects_of(k: int) -> list[Any]:
    """Values of all kinds that may be written into."""
    filled = np.empty(2, object)
    filled[:] = [[k], {"k": [k]}]
    masked = np.ma.masked_array([k, 1, 2], mask=[False, True, False])
    image = Image.new("P", (2, 2), k)
    image.putpalette([k, 1, 2] * 256)
    return [
        np.full(2, k),
        np.rec.array([(k, 2)], dtype=[("a", "i4"), ("b", "i4")]),
        masked,
        filled,
        record(k),
        record(k)[()],
        np.array([record(k)[()]] * 2, RECORD),
        bytearray(b"ab"),
        [k],
        Words("en", [k]),
        Fields(a=[k]),
        Structure([[k]]),
        {"k": [k]},
        {k},
        collections.OrderedDict(b=[k], a=[1]),
        collections.defaultdict(list, a=[k]),
        collections.Counter({"a": k}),
        collections.deque([[k], [1]], maxlen=2),
        collections.UserDict({"a": [k]}),
        collections.UserList([[k]]),
        Pair([k], {}),
        Example([k], ["tag"]),
        torch.full((2,), float(k)),
        torch.full((2,), float(k), requires_grad=True),
        torch.nn.Parameter(torch.full((2,), float(k))),
        torch.eye(2).to_sparse(),
        torch.full((2,), float(k), requires_grad=True) * 2,
        Image.new("RGB", (2, 2), (k, 1, 2)),
        image,
        pd.Series([k, 1]),
        pd.DataFrame({"a": [k, 1]}),
    ]


CONSTANTS = [
    None, True, 1, 1.5, 2j, "text", b"bytes", range(3), slice(1), frozenset({1}),
    datetime.datetime(2024, 1, 1), datetime.date(2024, 1, 1), decimal.Decimal("1.10"),
    fractions.Fraction(1, 3), uuid.UUID(int=1), np.int8(3), np.datetime64("2024-01-01"),
    np.str_("a"), datetime.timezone.utc,
]  # fmt: skip


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
        "classes": [
            (
                collections.OrderedDict(b=[k], a={k}),
                collections.deque([[k]], maxlen=3),
                Words("en", [k]),
                Fields(a=[k]),
                Example([k], ["tag"]),
            )
            for k in range(N)
        ],
        "records": [(record(k)[()], np.array([record(k)[()]], RECORD)) for k in range(N)],
        "objects": [(np.array([[k], {"k": k}, {k}], object), k) for k in range(N)],
    }
    return samples[kind]


KINDS = ["arrays", "ragged", "nested", "tensors", "named", "classes", "records", "objects"]
#: What a stored cache does not take.
NOT_STORED = ("nested", "named", "classes", "records", "objects")


def scribble(value: Any, depth: int = 0) -> None:
    """Write into all of it that can be written to."""
    if isinstance(value, np.ndarray):
        for each in value.reshape(-1) if value.dtype.hasobject else ():
            scribble(each, depth + 1)
        if value.flags.writeable and value.size:
            value[...] = None if value.dtype == object else np.zeros((), value.dtype)
    elif isinstance(value, np.void):
        for name in value.dtype.names or ():
            scribble(value[name], depth + 1)
            value[name] = np.zeros((), value.dtype[name])[()]
    elif isinstance(value, (collections.deque, Example)):
        for each in value if isinstance(value, collections.deque) else vars(value).values():
            scribble(each, depth + 1)
        if isinstance(value, collections.deque):
            value.append("scribbled")
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
    "column": lambda given: given.read_column(_key(given)),
    "column at positions": lambda given: given.read_column(_key(given), [0, 2, 1]),
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
    if layer == "stored cache" and kind in NOT_STORED:
        return  # it takes no bytearrays, named tuples and records
    for way in WAYS:
        check(LAYERS[layer](as_iterator(samples_of(kind))), way)


def described(value: Any) -> Any:
    """Type and content of any of the values above."""
    if isinstance(value, (np.void, np.ma.MaskedArray)):
        return type(value), value.dtype, repr(value)
    if isinstance(value, np.ndarray):
        return type(value), value.dtype, [described(each) for each in value.ravel().tolist()]
    if isinstance(value, torch.Tensor):
        return (
            type(value),
            value.requires_grad,
            value.layout,
            value.tolist() if value.layout is torch.strided else repr(value),
        )
    if isinstance(value, Image.Image):
        return type(value), value.mode, value.tobytes(), value.getpalette()
    attributes = getattr(value, "__dict__", None)
    return type(value), repr(value), repr(attributes)


@pytest.mark.parametrize("number", range(len(objects_of(1))))
def test_a_copy_is_of_the_same_class_and_content(number: int) -> None:
    value = objects_of(1)[number]

    copied = copy_value(value)

    assert copied is not value
    assert described(copied) == described(value) == described(objects_of(1)[number])


def _edit(value: Any) -> None:
    """Change what lies deepest in a value."""
    if isinstance(value, torch.Tensor):
        with torch.no_grad():
            (value._values() if value.is_sparse else value).zero_()
    elif isinstance(value, Image.Image):
        value.paste(9, (0, 0, 1, 1)) if value.mode == "P" else value.putpixel((0, 0), (9, 9, 9))
        if value.mode == "P":
            value.putpalette([9, 9, 9] * 256)
    elif isinstance(value, np.recarray):
        value["a"] = 9
    elif isinstance(value, (np.void, np.ndarray)) and value.dtype.names:
        for each in np.atleast_1d(value):
            each["words"].append(9)
            each["inner"]["list"].append(9)
            each["inner"]["pair"][0]["k"] = 9
    elif isinstance(value, (pd.Series, pd.DataFrame)):
        value.iloc[0] = 9
    elif isinstance(value, np.ndarray) and value.dtype == object:
        value[0].append(9)
        value[1]["k"].append(9)
    elif isinstance(value, np.ndarray):
        value[...] = 9
    elif isinstance(value, (Pair, Example)):
        (value.left if isinstance(value, Pair) else value.boxes).append(9)
    elif isinstance(value, Words):
        value[0].append(9)
        value.notes.append("de")
    elif isinstance(value, (set, collections.Counter)):
        value.update([99])
    elif isinstance(value, bytearray) or value == [1]:
        value.append(9)
    else:
        values = value.values() if hasattr(value, "values") else value
        next(iter(values)).append(9)


@pytest.mark.parametrize("number", range(len(objects_of(1))))
def test_editing_a_copy_leaves_the_value(number: int) -> None:
    value = objects_of(1)[number]
    copied = copy_value(value)

    _edit(copied)

    assert described(copied) != described(value)
    assert described(value) == described(objects_of(1)[number])


@pytest.mark.parametrize("value", CONSTANTS, ids=repr)
def test_what_cannot_be_written_into_is_not_copied(value: Any) -> None:
    assert copy_value(value) is value


def test_objects_of_other_classes_are_given_as_they_are() -> None:
    lock = threading.Lock()

    assert copy_value((lock, [lock]))[0] is lock


def test_an_array_of_objects_in_memory_keeps_its_values() -> None:
    ragged = np.empty(2, object)
    ragged[:] = [np.zeros(1), np.zeros(2)]

    kept = as_iterator(ragged).in_memory()

    assert exact(list(kept)) == exact([np.zeros(1), np.zeros(2)])
    assert exact(copy.deepcopy(kept)[1]) == exact(np.zeros(2))


def test_a_whole_column_of_numbers_is_lent_read_only() -> None:
    numbers = np.arange(N)

    for kept in (as_iterator(numbers).cache(), as_iterator(numbers).in_memory()):
        column = kept.map(lambda value: (value,)).cache().read_column(0)
        assert column.tolist() == numbers.tolist()
    assert SequenceDatasetIterator([numbers]).cache().read_column(0).flags.writeable is False
    assert numbers.flags.writeable


def test_columns_given_by_an_iterator_are_read_once() -> None:
    given: Any = zip([1, 2], [3, 4], strict=True)
    others: Any = zip([1, 2], [3, 5], strict=True)
    one = SequenceDatasetIterator(given)
    other = SequenceDatasetIterator(others)

    assert list(one) == [(1, 2), (3, 4)]
    assert one.fingerprint() != other.fingerprint()
    assert one.fingerprint() == SequenceDatasetIterator([(1, 3), (2, 4)]).fingerprint()
    assert one.recipe()["reproducible"]
