"""The test suites of codecs, encoders, engines, retrievers."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pytest

from data_stack.codecs import Codec
from data_stack.dataset.encoders import Encoder, encoder_from_state
from data_stack.exception import (
    ConfigError,
    CorruptSourceError,
    DataStackError,
    ModelNotTrainedError,
    RetrievalError,
)
from data_stack.formats.records import RecordReader, RecordWriter
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import Limits, RetrievedResource, Transfer, retrieve
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.testing.comparing import assert_same, assert_same_bits
from data_stack.testing.dataset import watch_for_pickles
from data_stack.testing.processes import call_in_process


class CodecContract:
    """Inherit it in a test class, and define two fixtures: ``codec``, and ``values``, a list that it stores without loss."""

    def test_values_come_back(self, codec: Codec, values: list[Any]) -> None:
        for value in values:
            record = codec.encode(value)

            assert type(record) is bytes
            assert_same(codec.decode(record), value)

    def test_a_value_is_the_callers_own(self, codec: Codec, values: list[Any]) -> None:
        record = codec.encode(values[0])

        for part in _arrays_in(codec.decode(record)):
            assert part.flags.writeable
            part[...] = 0

        assert_same(codec.decode(record), values[0])

    def test_threads_may_share_it(self, codec: Codec, values: list[Any]) -> None:
        with ThreadPoolExecutor(4) as threads:
            decoded = list(threads.map(lambda value: codec.decode(codec.encode(value)), values * 8))

        assert_same(decoded, values * 8)

    def test_it_pickles_is_equal_and_has_a_short_repr_and_a_description(
        self, codec: Codec, values: list[Any]
    ) -> None:
        again = pickle.loads(pickle.dumps(codec))  # noqa: S301  # our own pickle

        assert (again, hash(again)) == (codec, hash(codec))
        assert again.encode(values[0]) == codec.encode(values[0])
        assert len(repr(codec)) < 90
        assert json.loads(json.dumps(codec.to_json()))["codec"] == codec.name

    def test_what_it_does_not_store_is_refused(self, codec: Codec) -> None:
        with pytest.raises((TypeError, ValueError, OverflowError, DataStackError)):
            codec.encode(object())

    def test_records_that_are_cut_short_or_flipped_give_an_error_or_a_value(
        self, codec: Codec, values: list[Any]
    ) -> None:
        record = codec.encode(values[0])
        offsets = range(0, len(record), max(1, len(record) // 300))
        damaged = [record[:offset] for offset in offsets]
        damaged += [
            record[:offset] + bytes([record[offset] ^ 1 << offset % 8]) + record[offset + 1 :]
            for offset in offsets
        ]

        with watch_for_pickles() as found:
            for each in damaged:
                with contextlib.suppress(
                    Exception
                ):  # of any kind: readers report it as damage of the record
                    codec.decode(each)

        assert found == [], "a codec never runs what it reads"

    def test_a_record_dataset_holds_its_values(
        self, codec: Codec, values: list[Any], tmp_path: Path
    ) -> None:
        with RecordWriter(tmp_path, {"value": "mine"}, codecs={"mine": codec}) as writer:
            for value in values:
                writer.append({"value": value})

        with RecordReader(tmp_path, codecs={"mine": codec}) as reader:
            assert_same([sample["value"] for sample in reader], values)


def _arrays_in(value: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays in a value, or the value itself if it is one."""
    parts = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, (tuple, list))
        else ()
    )
    return (
        [value]
        if isinstance(value, np.ndarray)
        else [array for part in parts for array in _arrays_in(part)]
    )


class EncoderContract:
    """Inherit it in a test class, and define two fixtures: ``encoder``, a new one, and ``column``, which it learns and encodes.

    The column has two values at least, and a value may be encoded alone.
    """

    @pytest.fixture
    def fitted(self, encoder: Encoder, column: Any) -> Encoder:
        """The encoder, fitted on the column."""
        return encoder.fit(column, fitted_on="f" * 64)

    def test_each_row_is_encoded_as_in_a_batch(self, fitted: Encoder, column: Any) -> None:
        before = copy.deepcopy(column)

        batch = fitted.transform(column)

        assert len(batch) == len(column)
        assert_same_bits(
            np.concatenate([fitted.transform(column[i : i + 1]) for i in range(len(column))]), batch
        )
        nothing = fitted.transform(column[:0])
        assert (nothing.shape, nothing.dtype) == ((0, *batch.shape[1:]), batch.dtype)
        assert fitted.output_size in (None, np.size(batch[0]))
        assert fitted.output_names is None or len(fitted.output_names) == fitted.output_size
        assert_same(np.asarray(column), np.asarray(before))

    def test_a_state_is_json_and_rebuilds_the_encoder_bit_by_bit(
        self, fitted: Encoder, column: Any
    ) -> None:
        rebuilt = rebuild(json.loads(json.dumps(fitted.state())), fitted)

        assert rebuilt == fitted
        for name in ("is_fitted", "fitted_on", "output_names", "class_names"):
            assert getattr(rebuilt, name) == getattr(fitted, name)
        assert (rebuilt.state(), rebuilt.fingerprint()) == (fitted.state(), fitted.fingerprint())
        assert_same_bits(rebuilt.transform(column), fitted.transform(column))

    def test_another_process_encodes_alike(self, fitted: Encoder, column: Any) -> None:
        again, encoded = call_in_process(_transform, fitted, column)

        assert again == fitted
        assert_same_bits(encoded, fitted.transform(column))

    def test_an_encoder_that_has_something_to_learn_says_that_it_is_not_fitted(
        self, encoder: Encoder, column: Any
    ) -> None:
        if encoder.is_fitted:
            assert encoder.fit(()) is encoder  # nothing is read
            return
        for use in (encoder.transform, encoder.inverse):
            with pytest.raises(ModelNotTrainedError, match=r"is not fitted: call encoder.fit"):
                use(column)
        with pytest.raises(ConfigError, match="empty"):
            encoder.fit(column[:0])
        unfitted = rebuild(encoder.state(), encoder)
        assert (encoder.is_fitted, unfitted.is_fitted) == (False, False)
        assert unfitted == encoder
        assert "not fitted" in repr(encoder)

    def test_a_damaged_state_is_an_error_of_ours(self, fitted: Encoder) -> None:
        state = fitted.state()

        for part, wrong in (
            ("config", {"no such option": 1}),
            ("config", []),
            ("learned", []),
            ("fitted_on", 7),
            ("more", 1),
        ):
            with pytest.raises(ConfigError):
                rebuild({**state, part: wrong}, fitted)
        if state["learned"]:
            with pytest.raises(ConfigError):
                rebuild({**state, "learned": {}}, fitted)


def rebuild(state: Any, encoder: Encoder) -> Encoder:
    """The encoder of a state, of the class of ``encoder`` or a built-in one."""
    return encoder_from_state(state, {encoder.kind: type(encoder)})


def _transform(encoder: Encoder, column: Any) -> Any:
    return encoder, encoder.transform(column)


Publish: TypeAlias = Callable[[str, bytes], str]
Store: TypeAlias = InMemoryStorageConnector
_DATA = hashlib.shake_128(b"source").digest(3_000_001)


class RetrieverContract:
    """Inherit it in a test class, name the scheme, and define :meth:`fetch` and the fixture ``publish``.

    Attributes:
        scheme: of the sources.
    """

    scheme: ClassVar[str]

    def fetch(self, source: str, transfer: Transfer) -> None:
        """Fetch a source, by your function."""
        raise NotImplementedError(f"{type(self).__name__} must define fetch(source, transfer)")

    @pytest.fixture
    def publish(self) -> Publish:
        """Puts bytes under a name such as ``"a.bin"`` where they can be fetched, and returns the source."""
        raise NotImplementedError(f"{type(self).__name__} must define the fixture `publish`")

    @pytest.fixture
    def store(self) -> Store:
        """Where resources arrive."""
        return InMemoryStorageConnector()

    def retrieve(
        self, store: Store, definitions: Sequence[ResourceDefinition]
    ) -> list[RetrievedResource]:
        """Retrieve with the function, almost without waiting between attempts."""
        limits = Limits(n_retries=1, backoff_seconds=0.01, max_wait_seconds=0.1)
        return retrieve(
            definitions, store, fetchers={self.scheme: self.fetch}, limits=limits, progress=False
        )

    def test_all_bytes_of_several_sources_arrive(self, store: Store, publish: Publish) -> None:
        parts = {f"raw/{size}": _DATA[:size] for size in (0, 1, 1000, len(_DATA))}

        arrived = self.retrieve(
            store,
            [_definition(publish(name[4:], data), data, name) for name, data in parts.items()],
        )

        assert all(each.verified for each in arrived)
        assert {name: store.get_resource(name).read() for name in parts} == parts

    def test_a_missing_source_is_an_error_that_says_so(
        self, store: Store, publish: Publish
    ) -> None:
        with pytest.raises(RetrievalError) as caught:
            self.retrieve(store, [_definition(publish("a.bin", _DATA) + ".missing", _DATA)])

        ((_, said),) = caught.value.attempts
        assert said
        assert not isinstance(caught.value, CorruptSourceError)
        assert store.list_resources() == []

    def test_a_mirror_is_asked_where_a_source_is_missing(
        self, store: Store, publish: Publish
    ) -> None:
        definition = _definition(publish("a.bin", _DATA), _DATA)

        self.retrieve(
            store,
            [
                replace(
                    definition, source=f"{definition.source}.missing", mirrors=(definition.source,)
                )
            ],
        )

        assert store.get_resource("raw/data").read() == _DATA

    @pytest.mark.parametrize("promised", [_DATA[:-1], _DATA + b"x", _DATA[:-1] + b"x"])
    @pytest.mark.parametrize("has_size", [False, True])
    def test_other_bytes_than_promised_are_refused(
        self, store: Store, publish: Publish, promised: bytes, has_size: bool
    ) -> None:
        definition = _definition(publish("a.bin", _DATA), promised)

        with pytest.raises(RetrievalError):
            self.retrieve(store, [replace(definition, size=len(promised) if has_size else None)])

        assert store.list_resources() == []


def _definition(source: str, data: bytes, identifier: str = "raw/data") -> ResourceDefinition:
    return ResourceDefinition(identifier, source, sha256=hashlib.sha256(data).hexdigest())
