"""The contract suites find what they are there to find."""

from __future__ import annotations

import inspect
import io
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain_connector import FilesConnector

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.engines import PreparationEngine
from data_stack.io.storage_connectors.storable import binary_chunks
from data_stack.testing import DatasetIteratorContract, EngineContract, StorageConnectorContract
from data_stack.testing.comparing import assert_same
from data_stack.testing.layer import PlainIterator


class NaiveConnector(FilesConnector):
    """As the original DataStack stored files: in place, with any name; anything that exists is a resource."""

    def set_resource(self, identifier: str, resource: Any) -> None:
        path = self.folder / str(identifier)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            time.sleep(0.002)  # so that who reads meanwhile is sure to see it
            file.writelines(binary_chunks(resource))

    def opened(self, path: Path) -> Any:
        time.sleep(0.001)  # so that a reader is not done before a writer has begun
        return super().opened(path)

    def has_resource(self, identifier: str) -> bool:
        return (self.folder / str(identifier)).exists()


class ShiftedIterator(SequenceDatasetIterator):
    """Gives the next sample in a batch, wraps around at its end, and holds a handle."""

    def __init__(self) -> None:
        super().__init__([list(range(5)), list(range(5))])
        self._handle = io.BufferedReader(io.BytesIO())  # type: ignore[arg-type,unused-ignore]

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index % 5 if isinstance(index, int) else index)

    def read_batch(self, indices: Any) -> Any:
        return super().read_batch([(index + 1) % 5 for index in indices])

    def read_column(self, key: Any, indices: Any = None) -> Any:
        return np.zeros(5)


def failing_tests(suite: Any, **fixtures: Callable[[], Any]) -> set[str]:
    """The names of the tests of a suite that fail, each with fixtures of its own."""
    failed = set()
    for name, test in inspect.getmembers(suite, inspect.ismethod):
        parameters = set(inspect.signature(test).parameters)
        if (
            name.startswith("test_")
            and parameters <= set(fixtures)
            and "another_process" not in name
        ):
            try:
                test(**{parameter: fixtures[parameter]() for parameter in parameters})
            except (Exception, pytest.fail.Exception):
                failed.add(name)
            except pytest.skip.Exception:
                pass
    return failed


def test_a_naive_connector_fails_where_it_is_naive(tmp_path: Path) -> None:
    numbers = iter(range(1000))

    failed = failing_tests(
        StorageConnectorContract(),
        connector=lambda: NaiveConnector(tmp_path / str(next(numbers))),
        identifier=lambda: "old",
        size=lambda: 1,
    )

    assert failed >= {
        "test_nothing_is_seen_of_what_is_being_stored",
        "test_what_breaks_off_while_being_stored_changes_nothing",
        "test_a_resource_can_be_stored_over_itself",
        "test_what_is_missing_and_a_folder_are_no_resources",
        "test_an_identifier_outside_of_the_grammar_is_refused",
        "test_readers_see_the_old_resource_or_the_new_one",
    }


def test_a_wrong_iterator_fails_where_it_is_wrong() -> None:
    iterator: Callable[[], DatasetIteratorIF] = ShiftedIterator

    failed = failing_tests(
        DatasetIteratorContract(),
        iterator=iterator,
        indexable=iterator,
        expected=lambda: [(i, i) for i in range(5)],
    )

    assert failed >= {
        "test_a_position_outside_is_an_index_error",
        "test_batches_are_read_in_the_order_asked_for",
        "test_columns_are_read_in_the_order_asked_for",
        "test_it_pickles",
    }
    assert "test_iterating_gives_all_samples_in_order_each_time" not in failed


class NaiveEngine(PreparationEngine):
    """Takes no second attempt, goes on without what failed, and keeps all results."""

    leaves_process = False

    def run(self, work: Any, tasks: Any, *, title: str) -> Generator[tuple[str, Any], None, None]:
        with ThreadPoolExecutor(2) as pool:
            results = {name: pool.submit(work, task) for name, task in tasks.items()}
            yield from (
                (name, result.result())
                for name, result in results.items()
                if result.exception() is None
            )


def test_a_naive_engine_fails_where_it_is_naive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixtures: Any = {
        "engine": NaiveEngine,
        "tmp_path": lambda: tmp_path,
        "monkeypatch": lambda: monkeypatch,
    }

    failed = failing_tests(EngineContract(), **fixtures)

    assert failed == {"test_two_thousand_results_are_not_kept", "test_nothing_is_left_over"}


def test_an_unknown_number_equals_itself_alone() -> None:
    assert_same({"age": float("nan")}, {"age": float("nan")})

    with pytest.raises(AssertionError):
        assert_same({"age": float("nan")}, {"age": 7.0})


class TestDictSamplesOfAThirdParty(DatasetIteratorContract):
    has_views = False

    @pytest.fixture
    def iterator(self) -> DatasetIteratorIF:
        return PlainIterator([{"image": np.full((2, 2), i), "label": i} for i in range(5)])

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [{"image": np.full((2, 2), i), "label": i} for i in range(5)]
