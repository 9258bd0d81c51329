"""Documents packed whole, with columns beside their tokens."""

from __future__ import annotations

import itertools
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Columns, as_plain, check_all_ways_agree
from torch.nn import functional
from writing import append_all

from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
    access_to,
)
from data_stack.dataset.meta import DatasetMeta
from data_stack.exception import ConfigError, LoadingError
from data_stack.formats import records
from data_stack.formats.stored_lengths import format_measures, parse_measures
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector
from data_stack.loader import Loader, find_cu_seqlens

LENGTH = 8
STRATEGIES = ["concat", "best_fit", "first_fit"]


def make_documents(lengths: list[int]) -> dict[str, list[Any]]:
    """Documents whose tokens tell the document and the place: 1000 * document + place."""
    tokens = [
        np.arange(length, dtype=np.int64) + 1000 * number for number, length in enumerate(lengths)
    ]
    return {
        "tokens": tokens,
        "mask": [(document % 3 == 0) for document in tokens],
        "vectors": [np.stack([document, -document], 1).astype("f4") for document in tokens],
    }


def held(columns: dict[str, list[Any]]) -> Any:
    return SequenceDatasetIterator(list(columns.values())).as_dict(*columns)


def read_back(sequences: list[Any]) -> dict[int, list[int]]:
    """The places of each document that sequences have, each checked against its neighbors."""
    places: dict[int, list[int]] = {}
    for sequence in sequences:
        is_token = sequence["segment_ids"] > 0
        n_tokens = int(is_token.sum())
        assert is_token[:n_tokens].all()
        tokens = sequence["tokens"][:n_tokens]
        assert sequence["positions"][:n_tokens].tolist() == (tokens % 1000).tolist()
        documents = (tokens // 1000).tolist()
        in_order = list(dict.fromkeys(documents))
        assert sequence["segment_ids"][:n_tokens].tolist() == [
            in_order.index(document) + 1 for document in documents
        ]
        assert not sequence["positions"][n_tokens:].any()
        for document, place in zip(documents, (tokens % 1000).tolist(), strict=True):
            places.setdefault(document, []).append(place)
    return places


# ---------------------------------------------------------------------- laws


@given(
    lengths=st.lists(st.integers(0, 2 * LENGTH + 3), max_size=12),
    strategy=st.sampled_from(["best_fit", "first_fit"]),
    max_documents=st.sampled_from([None, 1, 2]),
    too_long=st.sampled_from(["cut", "drop"]),
    seed=st.sampled_from([None, 3]),
    data=st.data(),
)
def test_each_document_is_in_the_sequences_once_and_whole(
    lengths: list[int],
    strategy: Any,
    max_documents: int | None,
    too_long: Any,
    seed: int | None,
    data: st.DataObject,
) -> None:
    packed = held(make_documents(lengths)).pack(
        LENGTH,
        "tokens",
        with_columns=["mask", "vectors"],
        strategy=strategy,
        max_documents=max_documents,
        too_long=too_long,
        seed=seed,
    )

    sequences = list(packed)
    places = read_back(sequences)
    is_dropped = [too_long == "drop" and length > LENGTH for length in lengths]
    assert packed.n_dropped == sum(is_dropped)
    for document, length in enumerate(lengths):
        kept = [] if is_dropped[document] else list(range(length))
        assert sorted(places.pop(document, [])) == kept
    assert not places
    for sequence in sequences:
        tokens = sequence["tokens"]
        is_token = sequence["segment_ids"] > 0
        assert (sequence["mask"] == ((tokens % 3 == 0) & is_token)).all()
        assert (sequence["vectors"][:, 0] == tokens * is_token).all()
        assert (sequence["vectors"][:, 1] == -tokens * is_token).all()
        n_documents = sequence["segment_ids"].max()
        assert n_documents >= 1
        assert max_documents is None or n_documents <= max_documents
    n_tokens = sum(int((sequence["segment_ids"] > 0).sum()) for sequence in sequences)
    expected_fraction = 1 - n_tokens / (LENGTH * len(sequences)) if sequences else 0.0
    assert packed.padding_fraction == pytest.approx(expected_fraction)
    check_all_ways_agree(packed, sequences, data)


@given(
    lengths=st.lists(st.integers(0, 2 * LENGTH), min_size=1, max_size=12),
    strategy=st.sampled_from(STRATEGIES),
    max_documents=st.sampled_from([None, 2]),
)
def test_all_epochs_have_the_same_number_of_sequences(
    lengths: list[int], strategy: Any, max_documents: int | None
) -> None:
    limit = None if strategy == "concat" else max_documents
    packed = held(make_documents(lengths)).pack(
        LENGTH, "tokens", strategy=strategy, max_documents=limit, seed=1
    )

    assert {len(packed.at_epoch(epoch)) for epoch in range(5)} == {len(packed)}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_seed_and_epoch_alone_decide_the_sequences(
    strategy: Any,
) -> None:
    documents = held(make_documents([1, 5, 3, 3, 8, 2, 7, 4, 4, 4, 6, 12] * 8))
    packed = documents.pack(LENGTH, "tokens", strategy=strategy, seed=4)
    plain = as_plain(list(packed))

    assert as_plain(list(pickle.loads(pickle.dumps(packed)))) == plain
    assert as_plain(list(documents.pack(LENGTH, "tokens", strategy=strategy, seed=4))) == plain
    assert as_plain(list(packed.at_epoch(1))) != plain
    assert sorted(read_back(list(packed.at_epoch(1)))) == sorted(read_back(list(packed)))


def test_sequences_without_seed_are_ordered_by_first_document() -> None:
    documents = held(make_documents([3, 8, 5, 2, 6]))

    best = [s["tokens"].tolist() for s in documents.pack(8, "tokens", strategy="best_fit")]
    first = [s["tokens"].tolist() for s in documents.pack(8, "tokens", strategy="first_fit")]

    assert best == [
        [0, 1, 2, 2000, 2001, 2002, 2003, 2004],
        [*range(1000, 1008)],
        [3000, 3001, *range(4000, 4006)],
    ]
    assert first == best


def test_orders_of_a_seed_never_change() -> None:
    documents = held(make_documents([3, 8, 5, 2, 6, 3, 5]))

    orders = {
        strategy: [
            (sequence["tokens"][sequence["positions"] == 0] // 1000).tolist()
            for sequence in documents.pack(8, "tokens", strategy=strategy, seed=5)
        ]
        for strategy in ["best_fit", "first_fit"]
    }

    assert orders == {
        "best_fit": [[5, 2], [3, 4], [1], [6, 0]],
        "first_fit": [[6, 5], [1], [0, 2], [3, 4]],
    }


# ---------------------------------------------------------------------- what stands beside tokens


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_end_tokens_and_padding_have_the_values_that_are_stated(strategy: Any) -> None:
    documents = held(
        {"text": [[5, 6, 7], [8]], "labels": [[1, 2, 3], [4]], "w": [[0.5] * 3, [2.0]]}
    )
    how: dict[str, Any] = {"drop_last": False} if strategy == "concat" else {}

    packed = documents.pack(
        8,
        "text",
        with_columns=["labels", "w"],
        strategy=strategy,
        end_token=9,
        end_values={"labels": -1, "w": 0.25},
        padding={"labels": -100, "tokens": 3},
        **how,
    )

    assert as_plain(list(packed)) == [
        {
            "tokens": [5, 6, 7, 9, 8, 9, 3, 3],
            "labels": [1, 2, 3, -1, 4, -1, -100, -100],
            "w": [0.5, 0.5, 0.5, 0.25, 2.0, 0.25, 0.0, 0.0],
            "segment_ids": [1, 1, 1, 1, 2, 2, 0, 0],
            "positions": [0, 1, 2, 3, 0, 1, 0, 0],
        }
    ]
    assert list(packed.features) == ["tokens", "labels", "w", "segment_ids", "positions"]
    assert packed.read_batch([])["labels"].dtype == "int64"


def test_numbers_of_numpy_and_python_make_equal_recipes() -> None:
    documents = held({"text": [[5, 6, 7], [8]], "labels": [[1, 2, 3], [4]]})

    def make(number: Any) -> Any:
        return documents.pack(
            8,
            "text",
            with_columns=["labels"],
            strategy="best_fit",
            end_token=number(9),
            end_values={"labels": number(2)},
            padding={"labels": number(-1)},
        )

    assert make(np.int64).fingerprint() == make(int).fingerprint()
    assert as_plain(list(make(np.int64))) == as_plain(list(make(int)))


def test_columns_are_cut_where_their_tokens_are() -> None:
    documents = held(make_documents([5, 6]))

    packed = documents.pack(4, "tokens", with_columns=["mask"], drop_last=False)

    for sequence in packed:
        is_token = sequence["segment_ids"] > 0
        assert (sequence["mask"] == ((sequence["tokens"] % 3 == 0) & is_token)).all()


def test_columns_of_named_tuples_are_found_by_name() -> None:
    source = SequenceDatasetIterator([[[1, 2], [3]], [[0, 1], [1]]])
    named = InformedDatasetIterator(source, DatasetMeta(column_names=("text", "mask")))

    packed = named.pack(3, "text", with_columns=["mask"])

    assert as_plain(packed[0])["mask"] == [0, 1, 1]
    rebuilt: Any = packed.recipe()
    assert packed.recipe() == named.pack(3, "text", with_columns=["mask"]).recipe() == rebuilt


def test_only_the_columns_that_are_asked_for_are_read() -> None:
    source = Columns([[1, 2], [3]], [[0, 1], [1]], ["a", "b"])
    meta = DatasetMeta(column_names=("text", "mask", "name"))
    named: Any = InformedDatasetIterator(source, meta)
    packed = named.pack(3, "text", with_columns=["mask"])

    source.requests.clear()
    packed.read_column("mask")
    packed.read_column("segment_ids")

    assert [request[0] for request in source.requests] == [1]


# ---------------------------------------------------------------------- lengths in a store


def write_documents(folder: Path, lengths: list[int]) -> Any:
    columns = make_documents(lengths)
    writer = records.RecordWriter(str(folder), {"tokens": "array", "mask": "array"})
    rows = zip(columns["tokens"], columns["mask"], strict=True)
    append_all(writer, ({"tokens": tokens, "mask": mask} for tokens, mask in rows))
    return records.open(str(folder))


def test_lengths_in_a_store_are_read_instead_of_the_documents(tmp_path: Path) -> None:
    store = InMemoryStorageConnector()
    plain: list[Any] = []
    write_documents(tmp_path / "records", [3, 8, 5]).close()
    for _ in range(2):
        with records.open(str(tmp_path / "records")) as documents:
            packed = documents.pack(
                8, "tokens", with_columns=["mask"], strategy="best_fit", storage=store
            )
            plain.append(as_plain(list(packed)))
    (identifier,) = store.list_resources("packed")

    # Lengths that are in the store, right or wrong, are taken without reading the documents.
    with store.get_resource(identifier) as resource:
        measures = parse_measures(resource.read(), 3, ["tokens", "mask"])
    assert measures is not None
    measures.lengths[0] += 1
    store.set_resource(identifier, format_measures(measures))
    with records.open(str(tmp_path / "records")) as documents:
        packed = documents.pack(
            8, "tokens", with_columns=["mask"], strategy="best_fit", storage=store
        )
        with pytest.raises(ConfigError, match=r"had 4 tokens when it was packed, and has 3 now"):
            list(packed)
    assert plain[0] == plain[1]


def test_damaged_lengths_are_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with write_documents(tmp_path / "records", [3, 8, 5]) as documents:
        expected = as_plain(list(documents.pack(4, "tokens", storage=tmp_path / "store")))
        store = FileStorageConnector(str(tmp_path / "store"))
        (identifier,) = store.list_resources("packed")
        with store.get_resource(identifier) as resource:
            data = resource.read()
        for size in range(len(data)):
            store.set_resource(identifier, data[:size])
            with caplog.at_level(logging.WARNING, logger="data_stack"):
                packed = documents.pack(4, "tokens", storage=tmp_path / "store")
            assert "are damaged" in caplog.text
            caplog.clear()
            assert as_plain(list(packed)) == expected
            with store.get_resource(identifier) as resource:
                assert resource.read() == data


def test_lengths_are_not_kept_for_documents_without_a_reliable_fingerprint() -> None:
    documents = held(make_documents([3, 4])).map(lambda sample: sample)

    with pytest.raises(ConfigError, match=r"no reliable fingerprint.*cache\(storage="):
        documents.pack(4, "tokens", storage=InMemoryStorageConnector())


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"column": ["tokens", "mask"]}, r"takes one column.*with_columns=\['mask'\]"),
        ({"with_columns": "mask"}, r"with_columns must be a list of names.*\['mask'\]"),
        ({"with_columns": [1]}, "with_columns must be a list of names of columns, got 1"),
        ({"with_columns": ["positions"]}, "two columns 'positions'"),
        ({"with_columns": ["mask", "mask"]}, "two columns 'mask'"),
        ({"with_columns": ["musk"]}, "no column 'musk'"),
        ({"with_columns": ["names"]}, "'names' of document 0 must be an array or list of numbers"),
        ({"with_columns": ["short"]}, "'short' of document 1 has 1 values for 4 tokens"),
        ({"with_columns": ["shapes"]}, r"'shapes' of document 1 has values of shape \(3,\)"),
        ({"with_columns": ["mixed"]}, "'mixed' has values of float64 and int64"),
        ({"strategy": "worst"}, "strategy must be one of"),
        ({"too_long": "keep"}, "too_long must be one of"),
        ({"max_documents": 2}, 'max_documents= is for strategy="best_fit"'),
        ({"strategy": "best_fit", "max_documents": 0}, "max_documents must be at least 1"),
        ({"length": 3, "too_long": "refuse"}, "document 1 has 4 tokens.*and so have 0 others"),
        (
            {"with_columns": ["mask"], "end_token": 1},
            r"a value .* for each of the columns \['mask'\]",
        ),
        ({"end_values": {"mask": 1}}, "beside end_token, which is missing"),
        ({"padding": {"mask": 1}}, r"padding= names the columns \['mask'\]"),
        ({"padding": {"tokens": "x"}}, r"padding\['tokens'\]"),
        ({"with_columns": ["mask"], "padding": {"mask": 7}}, r"must be a number that bool holds"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any], message: str) -> None:
    documents = held(
        {
            "tokens": [[1, 2, 3], [4, 5, 6, 7]],
            "mask": [[True] * 3, [False] * 4],
            "names": ["abc", "abcd"],
            "short": [[1, 2, 3], [1]],
            "shapes": [np.ones((3, 2)), np.ones((4, 3))],
            "mixed": [[1, 2, 3], [0.5] * 4],
        }
    )

    with pytest.raises(ConfigError, match=message):
        documents.pack(**{"length": 5, "column": "tokens", **arguments})


def test_a_column_that_changes_after_packing_is_an_error() -> None:
    masks = [np.ones(3), np.ones(4)]
    packed = held({"t": [[1, 2, 3], [4, 5, 6, 7]], "m": masks}).pack(7, "t", with_columns=["m"])
    masks[1] = masks[1][:2]

    with pytest.raises(LoadingError, match=r"document 1 had 'm' of shape \(4,\).*of \(2,\) now"):
        list(Loader(packed, 1, workers=0))


# ---------------------------------------------------------------------- training


def test_the_loss_of_packed_documents_is_that_of_single_documents() -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    documents = [rng.integers(1, 50, size=n) for n in [3, 9, 4, 16, 2, 7, 7, 11, 5, 1]]
    masks = [rng.integers(0, 2, size=len(document)).astype(np.float32) for document in documents]
    model = TinyTransformer()
    alone = sum(
        model.loss(document[None], mask[None], np.ones((1, len(document)), int), None)
        for document, mask in zip(documents, masks, strict=True)
    )

    for strategy in ["best_fit", "first_fit"]:
        packed = held({"tokens": documents, "mask": masks}).pack(
            16, "tokens", with_columns=["mask"], strategy=strategy, seed=1
        )
        batch = packed.read_batch(range(len(packed)))
        together = model.loss(
            batch["tokens"], batch["mask"], batch["segment_ids"], batch["positions"]
        )
        assert together == pytest.approx(alone, rel=1e-5)


class TinyTransformer(torch.nn.Module):
    """One layer of attention within documents."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(50, 8)
        self.places = torch.nn.Embedding(16, 8)
        self.qkv = torch.nn.Linear(8, 24)
        self.logits = torch.nn.Linear(8, 50)

    def loss(self, tokens: Any, mask: Any, segments: Any, positions: Any) -> float:
        """The sum of the losses of all targets, each times its mask."""
        if positions is None:
            positions = np.arange(tokens.shape[1])[None]
        x = self.tokens(torch.from_numpy(tokens)) + self.places(torch.from_numpy(positions).long())
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        of_one = torch.from_numpy(segments[:, :, None] == segments[:, None, :])
        seen = of_one & torch.ones(tokens.shape[1:] * 2, dtype=torch.bool).tril()
        hidden = x + functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        losses = functional.cross_entropy(
            self.logits(hidden)[:, :-1].transpose(1, 2),
            torch.from_numpy(tokens[:, 1:]),
            reduction="none",
        )
        is_target = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
        weights = torch.from_numpy(is_target * np.asarray(mask[:, 1:], np.float32))
        return (losses * weights).sum().item()


def test_cu_seqlens_are_the_boundaries_of_documents_and_padding() -> None:
    segment_ids = np.array([[1, 1, 2, 0], [1, 2, 2, 2], [1, 1, 1, 1]], np.int32)

    found = find_cu_seqlens(segment_ids)

    assert found.cu_seqlens.tolist() == [0, 2, 3, 4, 5, 8, 12]
    assert found.cu_seqlens.dtype == np.int32
    assert found.max_seqlen == 4
    assert find_cu_seqlens(torch.tensor([1, 1, 2])).cu_seqlens.tolist() == [0, 2, 3]
    assert find_cu_seqlens(segment_ids[:0]).cu_seqlens.tolist() == [0]
    for wrong in (np.ones((2, 2)), np.ones((1, 1, 1), int), 3):
        with pytest.raises(ConfigError, match="segment_ids must be integers of shape"):
            find_cu_seqlens(wrong)


def test_a_loader_adds_cu_seqlens_to_its_batches() -> None:
    packed = held(make_documents([3, 4, 8, 2])).pack(8, "tokens", strategy="first_fit")

    def with_cu_seqlens(batch: Any) -> Any:
        found = find_cu_seqlens(batch["segment_ids"])
        return {**batch, "cu_seqlens": found.cu_seqlens, "max_seqlen": found.max_seqlen}

    with Loader(packed, 2, transform=with_cu_seqlens, workers=0).torch() as loader:
        batches = list(itertools.islice(loader, 2))

    assert batches[0]["cu_seqlens"].tolist() == [0, 3, 7, 8, 16]
    assert batches[0]["max_seqlen"] == 8
    assert batches[1]["cu_seqlens"].tolist() == [0, 2, 8]


def test_access_locates_and_prefetches_documents_in_the_order_of_need(tmp_path: Path) -> None:
    with write_documents(tmp_path / "records", [3, 8, 5, 2]) as documents:
        packed: DatasetIteratorIF = documents.pack(8, "tokens", strategy="best_fit", seed=2)
        access = access_to(packed)
        firsts = [int(sequence["tokens"][0]) // 1000 for sequence in packed]

        assert [access.locate(number) for number in range(len(packed))] == [
            f"record {document} of {tmp_path / 'records'}" for document in firsts
        ]
