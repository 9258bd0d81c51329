"""What no layer could mean is refused where it is asked for, and what samples lack where they are
read.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from layer_laws import Samples

from data_stack.dataset.encoders import ClassMapping, ContinuousEncoder, OneHotEncoder
from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
    ZippedDatasetIterator,
)
from data_stack.dataset.iterator.layers.fields import FieldsDatasetIterator
from data_stack.dataset.iterator.layers.mixed import MixedDatasetIterator
from data_stack.dataset.meta import DatasetMeta
from data_stack.exception import ConfigError
from data_stack.io.storage_connectors import InMemoryStorageConnector

Call = Callable[[], Any]

PAIRS: Any = SequenceDatasetIterator([[5, 6, 7], [0, 1, 0]])
TUPLES: Any = Samples([(1, 2, 3)])
DICTS: Any = Samples([{"a": 1, "b": 2}])


def of(*columns: Any) -> Any:
    return SequenceDatasetIterator([*columns])


def numbered(column: Any) -> Any:
    """Samples of their position and a value."""
    return of(range(len(column)), column)


def fitted(iterator: Any, encoders: Any) -> Any:
    return iterator.encode(encoders, fit_on=iterator)


def zipped(*parts: Any) -> DatasetIteratorIF:
    return ZippedDatasetIterator([Samples(part) for part in parts])


ZIPPED = [
    (zipped([{"a": 1}], [{"b": 1}], [{"a": 2}]), "iterators 0 and 2 both have a column 'a'"),
    (zipped([(1, 2)], [5], [{"a": 1}]), "iterator 0"),
    (zipped([{"a": 1}], [5]), "iterator 1"),
]
FIELDS: list[tuple[Call, str]] = [
    (lambda: FieldsDatasetIterator(TUPLES, []), ""),
    (lambda: FieldsDatasetIterator(TUPLES, "label"), ""),
    (lambda: TUPLES.select(1, 0, 1), ""),
    (lambda: TUPLES.rename(["a"]), ""),
    (lambda: TUPLES.rename({"a": 1}), ""),
    (lambda: TUPLES.as_dict("a", "b", "a"), ""),
    (lambda: TUPLES.select("a"), ""),
    (lambda: DICTS.select("c"), ""),
    (lambda: DICTS.as_tuple("a", "x"), ""),
    (lambda: DICTS.rename({"x": "y"}), ""),
    (lambda: DICTS.rename({"a": "b"}), ""),
    (lambda: Samples([5]).select("a"), ""),
    (lambda: Samples([1, 2, 3]).zip(Samples([1, 2, 3]), Samples([1, 2])), r"\[3, 3, 2\]"),
    (lambda: ZippedDatasetIterator([]), "at least one iterator"),
    *[(partial(iterator.read_batch, []), message) for iterator, message in ZIPPED],
    *[(partial(iterator.read_column, "a"), message) for iterator, message in ZIPPED],
    (lambda: PAIRS.take(-1), ""),
    (lambda: PAIRS.combine([PAIRS]), ""),
    (lambda: PAIRS.combine(pd.DataFrame({"x": [1]})), ""),
    (lambda: PAIRS.zip(None), ""),
    (lambda: CombinedDatasetIterator(PAIRS), ""),
    (lambda: of([1, 2], [0]), ""),
    (lambda: of(), ""),
    (lambda: of(pd.DataFrame({"a": [1]})), ""),
    (lambda: PAIRS.cache(identifier="x"), ""),
    (lambda: PAIRS.cache(9, storage=InMemoryStorageConnector()), ""),
]
POSITIONS: list[tuple[Call, str]] = [
    (lambda: PAIRS.filter(bool, column=1.5), ""),
    (
        lambda: PAIRS.filter(lambda image, label: label),
        r"receives 1 argument, a sample: .* filter\(predicate, column=",
    ),
    (
        lambda: PAIRS.filter(lambda label: label, column=[0, 1]),
        "receives 2 arguments, column 0 and column 1",
    ),
    *[
        (partial(PAIRS.filter, answer, column=0, batched=True), "samples 0 to 0 ")
        for answer in (
            lambda numbers: True,
            lambda numbers: numbers,
            lambda numbers: np.ones(len(numbers) + 1, dtype=bool),
        )
    ],
    *[
        (partial(of(column).sort, 0), "have no order")
        for column in (np.zeros((2, 2, 2)), np.array([1j, 2j]), np.zeros(2, dtype=[("a", int)]))
    ],
    *[
        (
            partial(numbered(labels).balance, seed=1, by=1),
            f"balanced by column 1.* position {position} ",
        )
        for labels, position in (
            ([0.0, 1.0, float("nan"), 1.0], 2),
            (["a", None, "b", "b"], 1),
            (["a", "b", "b", float("nan")], 3),
            ([np.zeros(2), np.zeros(3), np.zeros(2), np.zeros(2)], 0),
            (["a", [1, 2], "b", "b"], 1),
        )
    ],
    *[
        (partial(PAIRS.resample, 5, seed=1, weights=weights), "")
        for weights in (
            *([1, 2], [[1, 2, 3]], [1, -2, 3], [1, 2, float("nan")], [0, 0, 0]),
            *(["1", "2", "3"], [None, 1, 2], [1j, 2, 3], 5),
        )
    ],
    *[
        (partial(PAIRS.shard, rank, world), offender)
        for rank, world, offender in (
            (0, 0, "world"),
            (0, -1, "world"),
            (-1, 2, "rank in a world of 2"),
            (2, 2, "at most 1"),
            (0.0, 2, "rank"),
            (0, "2", "world"),
        )
    ],
    *[
        (partial(PAIRS.mix, PAIRS, proportions=proportions, seed=1, n_samples=5), "")
        for proportions in ([1], [1, -1], [float("nan"), 1], [1, None], [0, 0], [1, 1e-9])
    ],
    (lambda: PAIRS.mix(PAIRS[:0], proportions=[1, 2], seed=1, n_samples=5), ""),
    (lambda: MixedDatasetIterator([], [], 1), ""),
]
POSITIONS += [
    (lambda: Samples([(object(),)]).deduplicate(), r"builtins\.object"),
    (lambda: Samples([{"y": 1}]).deduplicate("x"), "no column 'x'"),
    (lambda: Samples([(1,)]).deduplicate([]), "at least one column"),
]
FUNCTIONS: list[tuple[Call, str]] = [
    (
        lambda: PAIRS.map(lambda image, label, tag: (image, label)),
        r"\(image, label, tag\) receives 1 argument, a sample: .* image, label = sample. Or map one column",
    ),
    (
        lambda: PAIRS.map(lambda image, random: image, column=0),
        "receives 1 argument, a value: .* needs a seed",
    ),
    (
        lambda: PAIRS.map(lambda sample: sample, seed=1),
        r"\(sample\) receives 2 arguments, a sample and a random generator",
    ),
    (lambda: PAIRS.map(lambda: 1, batched=True), "receives 1 argument, a batch"),
    (
        lambda: PAIRS.map(lambda a, b: (a, b), column=[0, 1]),
        r"column= names one column, got \[0, 1\]",
    ),
    *[
        (partial(PAIRS.map, str, columns=columns), "names of")
        for columns in ([], ["a", "a"], "ab", [1, 2], [""])
    ],
    (lambda: PAIRS.map(str, column=0, columns=["a"]), "one column keeps the names of all"),
]
ENCODINGS: list[tuple[Call, str]] = [
    (lambda: PAIRS.map_classes({0: "a"}, columns=1), ""),
    (lambda: PAIRS.one_hot(5), ""),
    (lambda: PAIRS.encode({}), ""),
    (lambda: PAIRS.encode({0: np.log}), ""),
    (lambda: PAIRS.encode({True: OneHotEncoder([1])}), ""),
    (lambda: PAIRS.encode({"label": OneHotEncoder([0])})[0], ""),
    (lambda: PAIRS.encode({1: OneHotEncoder([0]), -1: OneHotEncoder([0])})[0], ""),
    (lambda: fitted(PAIRS[:0], ContinuousEncoder()), ""),
    (lambda: fitted(PAIRS, dict.fromkeys([0, 1], ContinuousEncoder())), ""),
    (lambda: PAIRS[:0].one_hot(), ""),
    (
        lambda: of(np.ones((3, 2)), [0, 1, 0]).map_classes(
            ClassMapping({0: 1}, unmapped="drop"), columns=[0]
        ),
        "",
    ),
    (lambda: Samples([(1, "a"), (2, {})]).one_hot(), ""),
    (lambda: InformedDatasetIterator(PAIRS, DatasetMeta()).one_hot().one_hot(), ""),
]
WINDOWS: list[tuple[Call, str]] = [
    *[
        (partial(numbered(np.arange(5)).windows, **{"length": 2, **arguments}), "")
        for arguments in (
            {"length": 0},
            {"stride": 0},
            {"max_gap": 1},
            {"max_gap": -1, "order_by": 1},
            {"max_gap": np.timedelta64("NaT"), "order_by": 1},
            {"max_gap": timedelta(1), "order_by": 1},
            {"order_by": 9},
            {"length": 1, "offsets": {}},
            {"offsets": [0, 1]},
            {"offsets": {0: [0], 2: [0]}},
        )
    ],
    *[
        (partial(numbered(values).windows, 2, order_by=1, max_gap=max_gap), "column 1")
        for values, max_gap in (
            ([1, 2, None, 4], None),
            (np.array(["2020", "2021", "NaT", "2022"], dtype="M8[Y]"), None),
            ([1, 2, "x", 4], None),
            (["a", "b", "d", "c"], 1),
            (np.array(["2020", "2021", "2022", "2023"], dtype="M8[D]"), np.timedelta64(1, "M")),
            ([datetime(2020, 1, day) for day in range(1, 5)], 1),
        )
    ],
]
PACKS: list[tuple[Call, str]] = [
    *[
        (partial(of(tokens).pack, 2), message)
        for tokens, message in (
            (
                [[1, 2], [3.5, 1.0]],
                "document 1 must be a one-dimensional array .* of integers; it is 1-dimensional, of float64",
            ),
            ([[1], [1, 2], "a text"], "document 2 must be .* it is 'a text'"),
            ([[1], None], "document 1 .* it is None"),
            ([1, 2], "document 0 .* it is 0-dimensional, of int64"),
            ([[[1, 2]], [[3, 4]]], "document 0 .* it is 2-dimensional"),
            (
                [np.array([1], "int64"), np.array([1, 1], "uint64")],
                "of int64 and uint64 have no common integer dtype; map",
            ),
            ([np.array([True, False])], "document 0 .* of bool"),
        )
    ],
    *[
        (partial(of([np.ones(3, np.uint8)]).pack, **{"length": 2, **arguments}), message)
        for arguments, message in (
            ({"length": 0}, "length must be at least 1, got 0"),
            ({"length": 2.5}, "length must be an integer"),
            ({"length": 2**31}, "length must be at most"),
            (
                {"end_token": 256},
                "end_token, of uint8 as the documents, must be at most 255, got 256",
            ),
            ({"end_token": -1}, "end_token, .* at least 0"),
            ({"end_token": "<eos>"}, "end_token must be an integer"),
            ({"seed": "a"}, "the seed of a packed iterator must be an integer"),
            ({"seed": 1, "epoch": -1}, "the epoch of a packed iterator must be at least 0"),
        )
    ],
]


@pytest.mark.parametrize(
    ("call", "message"), [*FIELDS, *POSITIONS, *FUNCTIONS, *ENCODINGS, *WINDOWS, *PACKS]
)
def test_what_cannot_be_meant_is_refused_at_once(call: Call, message: str) -> None:
    with pytest.raises(ConfigError, match=message or None):
        call()


@pytest.mark.parametrize(
    ("iterator", "message"),
    [
        (TUPLES.select(3), ""),
        (TUPLES.select(2, -1), ""),
        (TUPLES.as_dict("a", "b"), ""),
        (DICTS.as_dict("x", "y"), ""),
        (Samples(["text"]).as_tuple(), ""),
        (Samples([np.ones(3)]).as_dict("a", "b", "c"), ""),
        (Samples([(1, 2), {"a": 1}]).as_tuple(), ""),
        (
            TUPLES.map(tuple, columns=["a", "b"]),
            "must return tuples of 2 columns; its function returned 3 columns",
        ),
        *ZIPPED,
    ],
)
def test_missing_columns_are_refused_when_a_sample_is_read(
    iterator: DatasetIteratorIF, message: str
) -> None:
    every = range(len(iterator))

    for read in (
        list,
        lambda it: [it[i] for i in every],
        lambda it: it.__getitems__(every),
        lambda it: it.read_batch(every),
    ):
        with pytest.raises(ConfigError, match=message or None):
            read(iterator)
