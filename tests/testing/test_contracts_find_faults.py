"""The contract suites find what they are there to find."""

from __future__ import annotations

import inspect
import io
import itertools
import json
import pickle
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain_connector import FilesConnector

from data_stack.codecs import Codec
from data_stack.dataset.encoders import Encoder
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.engines import PreparationEngine
from data_stack.io.retriever import Transfer
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.io.storage_connectors.storable import binary_chunks
from data_stack.testing import (
    CodecContract,
    DatasetIteratorContract,
    EncoderContract,
    EngineContract,
    LayerContract,
    RetrieverContract,
    StorageConnectorContract,
)
from data_stack.testing.comparing import assert_same
from data_stack.testing.layer import PlainIterator


def failing_tests(suite: Any, **fixtures: Callable[[], Any]) -> set[str]:
    """Return the names of the tests of a suite that fail, each with fixtures of its own.

    Args:
        suite: the contract.
        fixtures: make the values of fixtures and parameters. Tests with other ones are left out,
            and so are those that need another process.
    """
    failed = set()
    for name, test in inspect.getmembers(suite, inspect.ismethod):
        parameters = inspect.signature(test).parameters
        if not name.startswith("test_") or "another_process" in name:
            continue
        if not fixtures.keys() >= parameters.keys():
            continue
        try:
            test(**{parameter: fixtures[parameter]() for parameter in parameters})
        except pytest.skip.Exception:
            pass
        except (Exception, pytest.fail.Exception):
            failed.add(name)
    return failed


# ---------------------------------------------------------------------- stores


class NaiveConnector(FilesConnector):
    """Stores files as the original DataStack did: in place, under any name.

    Anything that exists is a resource.
    """

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


def test_a_naive_connector_fails_where_it_is_naive(tmp_path: Path) -> None:
    folders = (tmp_path / str(number) for number in itertools.count())

    failed = failing_tests(
        StorageConnectorContract(),
        connector=lambda: NaiveConnector(next(folders)),
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


# ---------------------------------------------------------------------- iterators and layers


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


def test_a_wrong_iterator_fails_where_it_is_wrong() -> None:
    iterator: Callable[[], DatasetIteratorIF] = ShiftedIterator

    failed = failing_tests(
        DatasetIteratorContract(),
        iterator=iterator,
        indexable=iterator,
        expected=lambda: [(number, number) for number in range(5)],
    )

    assert failed >= {
        "test_a_position_outside_is_an_index_error",
        "test_batches_are_read_in_the_order_asked_for",
        "test_columns_are_read_in_the_order_asked_for",
        "test_it_pickles",
    }
    assert "test_iterating_gives_all_samples_in_order_each_time" not in failed


class SpoilingLayer(PlainIterator):
    """Writes into the samples below it, and does not say what it is stacked on."""

    def __getitem__(self, index: int) -> Any:
        sample = self.samples[index]
        sample["label"] = -1
        return sample


def test_a_spoiling_layer_fails_where_it_spoils() -> None:
    samples = [{"label": number} for number in range(5)]
    source = PlainIterator([{"label": number} for number in range(5)])

    failed = failing_tests(
        LayerContract(),
        iterator=lambda: SpoilingLayer(source.samples),
        source=lambda: source,
        samples=lambda: samples,
    )

    assert failed >= {"test_it_is_stacked_on_its_source", "test_it_leaves_its_source_as_it_is"}


class TestDictSamplesOfAThirdParty(DatasetIteratorContract):
    has_views = False

    @pytest.fixture
    def iterator(self, expected: list[Any]) -> DatasetIteratorIF:
        return PlainIterator(expected)

    @pytest.fixture
    def expected(self) -> list[Any]:
        samples = []
        for number in range(5):
            samples.append({"image": np.full((2, 2), number), "label": number})
        return samples


def test_an_unknown_number_equals_itself_alone() -> None:
    assert_same({"age": float("nan")}, {"age": float("nan")})

    with pytest.raises(AssertionError):
        assert_same({"age": float("nan")}, {"age": 7.0})


# ---------------------------------------------------------------------- engines


class NaiveEngine(PreparationEngine):
    """Takes no second attempt, goes on without what failed, and keeps all results."""

    leaves_process = False

    def run(self, work: Any, tasks: Any, *, title: str) -> Generator[tuple[str, Any], None, None]:
        with ThreadPoolExecutor(2) as pool:
            futures = {name: pool.submit(work, task) for name, task in tasks.items()}
            for name, future in futures.items():
                if future.exception() is None:
                    yield name, future.result()


def test_a_naive_engine_fails_where_it_is_naive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = failing_tests(
        EngineContract(),
        engine=NaiveEngine,
        tmp_path=lambda: tmp_path,
        monkeypatch=lambda: monkeypatch,
    )

    assert failed == {"test_two_thousand_results_are_not_kept", "test_nothing_is_left_over"}


# ---------------------------------------------------------------------- codecs and encoders


class PicklingCodec(Codec):
    """Stores JSON, and reads a pickle whenever it decodes.

    The pickle is never a damaged one, which could crash this process.
    """

    name = "pickling"
    _pickled_class = pickle.dumps(complex)

    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def decode(self, record: Any) -> Any:
        pickle.loads(self._pickled_class)
        return json.loads(record)


class SharingCodec(Codec):
    """Decodes arrays that share the memory of the record."""

    name = "sharing"

    def encode(self, value: Any) -> bytes:
        return bytes(memoryview(value))

    def decode(self, record: Any) -> Any:
        return np.frombuffer(record, np.int64)


def failing_tests_of_codec(codec: Codec, value: Any, tmp_path: Path) -> set[str]:
    return failing_tests(
        CodecContract(),
        codec=lambda: codec,
        values=lambda: [value],
        tmp_path=lambda: tmp_path,
    )


def test_a_codec_that_reads_pickles_fails(tmp_path: Path) -> None:
    failed = failing_tests_of_codec(PicklingCodec(), [1, 2], tmp_path)

    assert failed == {"test_a_damaged_record_runs_no_code"}


def test_a_codec_that_shares_memory_fails(tmp_path: Path) -> None:
    failed = failing_tests_of_codec(SharingCodec(), np.arange(3), tmp_path)

    assert failed == {"test_a_value_is_the_callers_own"}


class NothingToLearn(Encoder):
    """An encoder without a state."""

    kind = "naive"

    def __init__(self) -> None:
        self._remember({})

    def config(self) -> dict[str, Any]:
        return {}


class BatchwiseEncoder(NothingToLearn):
    """Divides by the largest value of the column that it encodes."""

    def _transform(self, column: Any) -> Any:
        return column / column.max()


class SpoilingEncoder(NothingToLearn):
    """Writes into the column that it encodes."""

    def _transform(self, column: Any) -> Any:
        column += 1
        return column


@pytest.mark.parametrize(
    ("encoder_class", "expected_failures"),
    [
        (
            BatchwiseEncoder,
            {
                "test_each_row_is_encoded_as_in_a_batch",
                "test_no_rows_are_encoded_as_an_empty_batch",
            },
        ),
        (SpoilingEncoder, {"test_encoding_leaves_the_column_as_it_is"}),
    ],
)
def test_a_naive_encoder_fails_where_it_is_naive(
    encoder_class: type[Encoder], expected_failures: set[str]
) -> None:
    failed = failing_tests(
        EncoderContract(),
        encoder=encoder_class,
        fitted=encoder_class,
        column=lambda: np.array([1.0, 2.0, 4.0]),
    )

    assert failed >= expected_failures


# ---------------------------------------------------------------------- retrievers


class ForgivingRetriever(RetrieverContract):
    """Sends nothing if a source is missing, and no error either."""

    scheme = "forgiving"
    contents: dict[str, bytes]

    def fetch(self, source: str, transfer: Transfer) -> None:
        transfer.restart()
        transfer.write(self.contents.get(source, b""))


def test_a_retriever_that_hides_a_missing_source_fails() -> None:
    suite = ForgivingRetriever()
    suite.contents = {}

    def publish(name: str, data: bytes) -> str:
        source = f"forgiving:{name}"
        suite.contents[source] = data
        return source

    failed = failing_tests(
        suite,
        store=InMemoryStorageConnector,
        publish=lambda: publish,
        promised=lambda: b"other bytes",
        has_size=lambda: False,
    )

    assert failed == {"test_a_missing_source_is_an_error_that_says_so"}
