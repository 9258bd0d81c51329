"""Documents of tokens packed into sequences."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Columns, Samples, as_plain, check_all_ways_agree
from writing import append_all

import data_stack
from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIterator,
    InformedDatasetIteratorIF,
    SequenceDatasetIterator,
    access_to,
)
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.exception import ConfigError, LoadingError
from data_stack.formats import records
from data_stack.loader import BlockShuffled, Loader

KEYS = ["tokens", "segment_ids", "positions"]


def pack(
    documents: list[Any], length: int, end_token: int | None = None, drop_last: bool = True
) -> list[dict[str, list[int]]]:
    """Sequences of documents, token by token."""
    tokens = []
    for number, document in enumerate(documents):
        ended = [*document, *([] if end_token is None or not len(document) else [end_token])]
        tokens += [(int(token), number, place) for place, token in enumerate(ended)]
    sequences = []
    for start in range(0, len(tokens), length):
        part = tokens[start : start + length]
        if len(part) < length and drop_last:
            break
        seen = list(dict.fromkeys(number for _, number, _ in part))
        rows = [(token, seen.index(number) + 1, place) for token, number, place in part]
        rows += [(0, 0, 0)] * (length - len(part))
        sequences.append(dict(zip(KEYS, map(list, zip(*rows, strict=True)), strict=True)))
    return sequences


def as_arrays(sequences: list[dict[str, list[int]]], dtype: str) -> list[Any]:
    return [
        {key: np.array(each[key], dtype if key == "tokens" else "int32") for key in KEYS}
        for each in sequences
    ]


def documents_of(*lengths: int, dtype: str = "int64") -> list[Any]:
    counter = itertools.count(1)
    return [np.array([next(counter) for _ in range(length)], dtype) for length in lengths]


def held(documents: list[Any]) -> DatasetIteratorIF:
    return SequenceDatasetIterator([documents, list(range(len(documents)))]).as_dict(
        "text", "number"
    )


def informed(
    iterator: DatasetIteratorIF, *names: str, sample_pos: int = 0
) -> InformedDatasetIteratorIF:
    meta = DatasetMeta(
        IteratorMeta(sample_pos=sample_pos),
        target_kind="label",
        class_names=("a", "b"),
        column_names=names,
    )
    return InformedDatasetIterator(iterator, meta)


def write_records(folder: Path, documents: list[Any]) -> Any:
    writer = records.RecordWriter(str(folder), {"tokens": "array", "source": "utf8"})
    append_all(writer, ({"tokens": document, "source": "web"} for document in documents))
    return records.open(str(folder))


def drawn_order(n_documents: int, seed: int, epoch: int = 0) -> list[int]:
    """The order of documents, seen from documents of one token."""
    packed = held([[i] for i in range(n_documents)]).pack(1, "text", seed=seed, epoch=epoch)
    return as_plain(packed.read_column("tokens")[:, 0])  # type: ignore[no-any-return]  # ints


# ---------------------------------------------------------------------- what is in a sequence


@given(
    lengths=st.lists(st.integers(0, 7), max_size=9),
    length=st.integers(1, 9),
    end_token=st.sampled_from([None, 0, 99]),
    drop_last=st.booleans(),
    seed=st.sampled_from([None, 5]),
    form=st.sampled_from(["arrays", "lists", "bare", "bare lists", "client's"]),
    data=st.data(),
)
def test_a_packed_iterator_equals_packing_token_by_token(
    lengths: list[int],
    length: int,
    end_token: int | None,
    drop_last: bool,
    seed: int | None,
    form: str,
    data: st.DataObject,
) -> None:
    documents = documents_of(*lengths, dtype="int16")
    given = [document.tolist() for document in documents] if "lists" in form else documents
    source = (
        Samples(given)
        if "bare" in form
        else Samples(list(zip(given)))
        if form == "client's"
        else held(given)
    )
    column: Any = None if "bare" in form else 0 if form == "client's" else "text"
    order = range(len(lengths)) if seed is None else drawn_order(len(lengths), seed)

    packed = source.pack(length, column, seed=seed, end_token=end_token, drop_last=drop_last)

    expected = pack([documents[i] for i in order], length, end_token, drop_last)
    check_all_ways_agree(packed, as_arrays(expected, "int64" if "lists" in form else "int16"), data)


@pytest.mark.parametrize(
    ("documents", "dtype"),
    [
        ([[1, 2], [3], [4, 5, 6, 7]], "int64"),
        (documents_of(2, 1, 4, dtype="uint16"), "uint16"),
        (documents_of(3, 3, 3, dtype="uint8"), "uint8"),
        ([(1, 2), (3,), (4, 5)], "int64"),
        ([np.array([1, 2], "uint8"), np.array([-3], "int8"), np.array([400, 5], "int16")], "int16"),
    ],
)
def test_tokens_have_the_common_dtype_in_every_sample(documents: list[Any], dtype: str) -> None:
    packed = held(documents).pack(2, "text")

    assert as_plain(list(packed)) == pack(documents, 2)
    for sample in [*packed, packed.read_batch([1]), packed.read_batch([]), packed.features]:
        assert [sample[key].dtype for key in KEYS] == [dtype, "int32", "int32"]
    assert list(packed.features) == KEYS


# ---------------------------------------------------------------------- what is read


def test_a_batch_reads_tokens_of_each_document_once() -> None:
    source = Columns(documents_of(10, 3, 3, 3, 10), ["a"] * 5)
    packed = source.pack(4, 0)

    source.requests.clear()
    packed.read_batch([0, 1, 1, 0])
    assert source.requests == [(0, 1)]
    source.requests.clear()
    packed.read_batch([3, 2])
    assert source.requests == [(0, 3)]
    source.requests.clear()
    assert (
        packed.read_column("positions").shape == packed.read_column("segment_ids").shape == (7, 4)
    )
    assert source.requests == []


def test_neither_another_epoch_nor_another_process_reads_the_documents_again() -> None:
    source = Columns(documents_of(10, 3, 3, 3, 10))
    packed = source.pack(4, seed=1, column=0)
    source.requests.clear()

    later, again = packed.at_epoch(3), pickle.loads(pickle.dumps(packed))

    assert source.requests == again.underlying_iterators[0].requests == []
    assert as_plain(list(later)) == as_plain(list(source.pack(4, 0, seed=1, epoch=3)))
    assert as_plain(list(again)) == as_plain(list(packed)) != as_plain(list(later))
    assert len(later) == len(packed)


def test_documents_drawn_below_are_measured_in_each_epoch() -> None:
    packed = held(documents_of(1, 2, 3, 4, 5, 6)).shuffle(seed=1).pack(4, "text")

    assert as_plain(list(packed.at_epoch(2))) == as_plain(
        list(held(documents_of(1, 2, 3, 4, 5, 6)).shuffle(seed=1, epoch=2).pack(4, "text"))
    )


def test_the_order_of_documents_never_changes() -> None:
    assert drawn_order(9, 1) == [3, 1, 4, 8, 2, 6, 5, 7, 0]
    assert sorted(drawn_order(9, 1, epoch=1)) == list(range(9))
    assert len({tuple(drawn_order(9, seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4


# ---------------------------------------------------------------------- what is known of it


def test_the_column_is_named_found_or_asked_for() -> None:
    documents = documents_of(3, 3)
    named = informed(SequenceDatasetIterator([[0, 1], documents]), "number", "text", sample_pos=1)
    expected = as_plain(list(held(documents).pack(2, "text")))

    for packed in [
        SequenceDatasetIterator([documents]).pack(2),
        SequenceDatasetIterator([documents, [0, 1]]).pack(2),
        held(documents).select("text").pack(2),
        Samples(documents).pack(2),
        SequenceDatasetIterator([[0, 1], documents]).pack(2, -1),
    ]:
        assert as_plain(list(packed)) == expected
    assert as_plain(list(named.pack(2))) == as_plain(list(named.pack(2, "text"))) == expected
    assert named.pack(2).recipe() == named.pack(2, "text").recipe() == named.pack(2, 1).recipe()
    with pytest.raises(
        ConfigError, match=r"name the column of the tokens.*columns 'text', 'number'"
    ):
        held(documents).pack(2)
    with pytest.raises(ConfigError, match="samples have no column 'txt'"):
        held(documents).pack(2, "txt")


def test_its_meta_recipe_and_tree_say_what_it_is() -> None:
    source = informed(
        SequenceDatasetIterator([np.arange(12).reshape(4, 3), np.arange(4) % 2]), "text", "label"
    )
    packed = source.pack(4, "text", seed=7, end_token=0)

    meta = packed.dataset_meta
    assert (meta.sample_pos, meta.target_kind, meta.class_names, meta.column_names) == (
        "tokens",
        None,
        None,
        None,
    )
    assert packed.column_names == KEYS
    with pytest.raises(ConfigError, match="no column 'target'"):
        packed.read_column(meta.target_pos)
    assert packed.recipe() == packed.at_epoch(1).at_epoch(0).recipe()
    made: list[Any] = [
        source.pack(4, "text"),
        source.pack(4, "text", seed=7),
        source.pack(4, "text", seed=7, epoch=1),
    ]
    fingerprints = {each.fingerprint() for each in made}
    assert len(fingerprints) == 3
    assert source.pack(4, "text", epoch=3).fingerprint() in fingerprints
    assert "packed" in str(packed.explain())
    assert "random: at_epoch changes it" in str(packed.explain())


def test_it_has_the_blocks_of_its_documents(tmp_path: Path) -> None:
    documents = documents_of(*(i % 7 for i in range(100)))
    table = pa.table(
        {"text": pa.array([document.tolist() for document in documents], pa.list_(pa.uint16()))}
    )
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=10)
    parquet: Any = data_stack.load(str(tmp_path / "x.parquet"))
    packed = parquet.pack(4, "text")
    plain = as_plain(list(packed))

    with Loader(packed, 5, shuffle=BlockShuffled(window=2), seed=1) as loader:
        batches = [as_plain(batch) for batch in loader]

    assert plain == pack(documents, 4)
    seen = [row for batch in batches for row in batch["tokens"]]
    assert seen != [row["tokens"] for row in plain]
    assert sorted(seen) == [row["tokens"] for row in plain]
    with pytest.raises(ConfigError, match="blocks"):
        list(Loader(parquet.pack(4, "text", seed=1), 5, shuffle=BlockShuffled(window=2)))


# ---------------------------------------------------------------------- in a loader


def test_a_run_resumes_inside_an_epoch_with_other_workers(tmp_path: Path) -> None:
    documents = documents_of(*(i * 5 % 23 for i in range(200)), dtype="uint16")
    with write_records(tmp_path / "records", documents) as source:
        packed = source.pack(16, "tokens", seed=2, end_token=0)
        with Loader(packed, 3, epochs=3, workers=0) as loader:
            whole = [as_plain(batch) for batch in loader]
        with Loader(
            packed, 3, epochs=3, workers=2, worker_kind="processes", timeout_seconds=60
        ) as first:
            begun = [as_plain(batch) for batch in itertools.islice(first, len(first) // 2)]
            state = first.state_dict()

        with Loader(
            source.pack(16, "tokens", seed=2, end_token=0),
            3,
            epochs=3,
            workers=3,
            worker_kind="threads",
        ) as second:
            second.load_state_dict(state)
            rest = [as_plain(batch) for batch in second]

    assert begun + rest == whole
    n = len(packed)
    of_epochs = [
        [row for batch in whole for row in batch["tokens"]][epoch * n : (epoch + 1) * n]
        for epoch in range(3)
    ]
    assert of_epochs[0] != of_epochs[1] != of_epochs[2]


# ---------------------------------------------------------------------- errors


def test_a_loader_names_the_unreadable_sequence_and_its_start(tmp_path: Path) -> None:
    documents = documents_of(3, 3)
    packed = Samples(documents).pack(2)
    documents[1] = documents[1][:2]
    order = drawn_order(9, 1)

    with write_records(tmp_path / "records", documents_of(*[2] * 9)) as source:
        access = access_to(source.pack(2, "tokens", seed=1))
        assert [access.locate(i) for i in (0, 8)] == [
            f"record {order[i]} of {tmp_path / 'records'}" for i in (0, 8)
        ]
    with pytest.raises(
        LoadingError, match=r"sample 1 could not be read.*document 1 had 3 tokens"
    ) as raised:
        list(Loader(packed, 1, workers=0))
    assert raised.value.index == 1
