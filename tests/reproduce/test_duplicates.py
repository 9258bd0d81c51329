"""Samples that occur twice are found, all of them and nothing else, within and between splits."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
    blocks,
)
from data_stack.dataset.meta import DatasetMeta
from data_stack.exception import ConfigError
from data_stack.reproduce.duplicates import find_duplicates


def of(samples: Any, targets: Any = None) -> DatasetIteratorIF:
    columns = [samples, [0] * len(samples) if targets is None else targets]
    return InformedDatasetIterator(SequenceDatasetIterator(columns), DatasetMeta())


def test_samples_differ_by_their_labels_single_columns_do_not() -> None:
    splits = {"train": of([1, 2], ["cat", "dog"]), "test": of([1, 2], ["cat", "cat"])}

    whole, by_sample = find_duplicates(splits), find_duplicates(splits, columns=0)

    assert whole.between[0].n_distinct == 1
    assert by_sample.between[0].n_distinct == 2


SPLITS = st.lists(st.lists(st.integers(0, 6), max_size=12), min_size=1, max_size=4)


@given(SPLITS)
def test_duplicates_equal_those_of_comparing_all_pairs(contents: list[list[int]]) -> None:
    by_name = {str(name): of(content) for name, content in enumerate(contents)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_MAX_SAMPLES", 3)
        report = find_duplicates(by_name, columns=0, max_positions=100)

    for found, content in zip(report.within, contents, strict=True):
        assert found.positions == tuple(
            (content.index(x), at) for at, x in enumerate(content) if x in content[:at]
        )
        assert found.n_repeats == len(found.positions)
    pairs = [(a, b) for a in range(len(contents)) for b in range(a + 1, len(contents))]
    for pair, (a, b) in zip(report.between, pairs, strict=True):
        shared = set(contents[a]) & set(contents[b])
        assert (pair.first, pair.second) == (str(a), str(b))
        assert pair.n_in_first == sum(sample in shared for sample in contents[a])
        assert pair.n_in_second == sum(sample in shared for sample in contents[b])
        assert set(pair.positions) == {
            (contents[a].index(sample), contents[b].index(sample)) for sample in shared
        }
        assert list(pair.positions) == sorted(pair.positions)


def test_the_report_comes_in_every_format() -> None:
    report = find_duplicates({"<train|>": of([1, 1, 2], [0, 1, 0]), "test\n": of([2])}, columns=0)

    from_json = json.loads(json.dumps(report.to_dict()))

    assert from_json["is_leaking"] is True
    assert from_json["between"][0]["positions"] == [[2, 0]]
    assert "<train|>, test\\n  " in str(report)
    assert "There is leakage." in str(report)
    ElementTree.fromstring(report.to_html().replace("<style scoped>", "<style>"))


@pytest.mark.parametrize(
    ("splits", "columns", "message"),
    [
        ({}, None, "split"),
        ({"a": of([1])}, [], "columns"),
        ({"a": of([1]), "b": of([1])}, 7, "split 'a'"),
        ({"a": of([1]), "b": of([object()])}, None, "split 'b'"),
    ],
)
def test_a_split_that_cannot_be_compared_is_named(splits: Any, columns: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_duplicates(splits, columns)
