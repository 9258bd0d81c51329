"""Two datasets compared sample by sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Samples

import data_stack
from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import MetaFactory
from data_stack.exception import ConfigError


def numbers(ids: Any, targets: Any = None) -> DatasetIteratorIF:
    """Samples of an id, a picture of it, and a target."""
    ids = np.asarray(list(ids), np.int64)
    pictures = np.repeat(ids, 4).reshape(-1, 2, 2)
    if targets is None:
        targets = ids % 3
    return SequenceDatasetIterator([pictures, np.asarray(targets, np.int64), ids])


def with_meta(iterator: DatasetIteratorIF) -> DatasetIteratorIF:
    meta = MetaFactory.get_dataset_meta("n", "n", None, MetaFactory.get_iterator_meta(0, 1, 1))
    return InformedDatasetIterator(iterator, meta)


def test_added_removed_moved_relabelled_samples_have_their_positions() -> None:
    first = {"train": with_meta(numbers([0, 1, 2, 3])), "test": with_meta(numbers([4, 5]))}
    second = {
        "train": with_meta(numbers([0, 4, 3], [0, 1, 9])),
        "test": with_meta(numbers([5, 7, 5])),
    }

    found = data_stack.diff(first, second)

    assert found.counts == {"added": 2, "removed": 2, "moved": 1, "relabelled": 1, "changed": 0}
    assert found.removed.tolist() == [[0, 1], [0, 2]]
    assert found.added.tolist() == [[1, 1], [1, 2]]
    moved_from, moved_to = found.moved
    assert moved_from.tolist() == [[1, 0]]
    assert moved_to.tolist() == [[0, 1]]
    relabelled_from, relabelled_to = found.relabelled
    assert relabelled_from.tolist() == [[0, 3]]
    assert relabelled_to.tolist() == [[0, 2]]
    assert found.to_dict()["splits"] == {
        "train": {"first": 4, "second": 3},
        "test": {"first": 2, "second": 3},
    }


def test_samples_of_one_key_are_changed_and_their_columns_named() -> None:
    first = [{"id": n, "text": f"t{n}", "size": n} for n in range(5)]
    second = [{"id": n, "text": f"t{n}", "size": n * 2} for n in (4, 2, 1, 0)] + [
        {"id": 9, "text": "t9", "size": 1}
    ]

    found = data_stack.diff(Samples(first), Samples(second), key="id")

    assert found.counts == {"added": 1, "removed": 1, "moved": 0, "relabelled": 0, "changed": 3}
    assert found.changed_columns == {"size": 3}
    in_first, in_second = found.changed
    assert in_first[:, 1].tolist() == [1, 2, 4]
    assert in_second[:, 1].tolist() == [2, 1, 0]


def test_a_key_that_identifies_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"3 samples have the value of sample 0 of split ''"):
        data_stack.diff(numbers([0, 3, 6]), numbers([1]), key=1)
    with pytest.raises(ConfigError, match="'nix'"):
        data_stack.diff(Samples([{"a": 1}]), Samples([{"a": 1}]), key="nix")


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5)))
def test_each_sample_is_counted_once(first: list[int], second: list[int]) -> None:
    found = data_stack.diff(numbers(first), numbers(second))

    counts = found.counts
    paired = found.n_equal + counts["moved"] + counts["relabelled"] + counts["changed"]
    assert paired + counts["removed"] == len(first)
    assert paired + counts["added"] == len(second)
    assert found.n_equal == sum(min(first.count(n), second.count(n)) for n in set(first))


def test_a_page_shows_samples_and_escapes_their_labels() -> None:
    page = data_stack.diff(Samples([{"a": "<script>"}]), Samples([{"a": "b"}])).to_html()

    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "Added" in page
    assert "Removed" in page


def test_the_command_says_whether_datasets_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from data_stack.cli.main import main

    store = ["--storage", str(tmp_path / "store")]
    equal = main(["diff", "digits", "digits@1.0.0", *store])
    differ = main(["diff", "digits", "iris", *store, "--json"])

    assert (equal, differ) == (0, 1)
    assert "the datasets are equal" in capsys.readouterr().out
