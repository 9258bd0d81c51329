"""The origins of samples name exactly the samples of sources that were read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import ClientWrapper, Samples

from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    CombinedDatasetIterator,
    DatasetIteratorIF,
    InMemoryDatasetIterator,
    OneToOneAccess,
    SampleAccess,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.origins import Origin

#: The first identifier of each source.
FIRST_IDS = {"web": 1000, "code": 2000, "books": 3000}

N_WEB = 12
N_CODE = 7


def make_source(name: str, n_samples: int) -> SequenceDatasetIterator:
    """Samples of an identifier, a group and a class."""
    numbers = np.arange(n_samples)
    return SequenceDatasetIterator([FIRST_IDS[name] + numbers, numbers * 5 % 3, numbers % 2])


def list_origins(iterator: Any, position: int) -> Sequence[Origin]:
    return access_to(iterator).origins(position)


def list_ids(sample: Any) -> list[int]:
    """The identifiers in a sample, in their order."""
    if isinstance(sample, dict):
        return [number for value in sample.values() for number in list_ids(value)]
    if isinstance(sample, (tuple, list)):
        return [number for value in sample for number in list_ids(value)]
    return [int(number) for number in np.ravel(sample) if int(number) >= 1000]


def name_ids(iterator: Any, position: int, names: dict[str | None, str]) -> list[int]:
    """The identifiers that the origins of a sample name.

    Args:
        names: the name of the source by the name that origins give it.
    """
    return [
        FIRST_IDS[names[origin.source]] + origin.position
        for origin in list_origins(iterator, position)
    ]


def check_origins(iterator: Any, names: dict[str | None, str]) -> None:
    assert len(iterator) > 0
    for position in range(len(iterator)):
        assert name_ids(iterator, position, names) == list_ids(iterator[position])


def is_even(number: Any) -> Any:
    return number % 2 == 0


def identity(value: Any) -> Any:
    return value


# ---------------------------------------------------------------------- layers of one source

LAYERS_OF_ONE: dict[str, Callable[[Any], Any]] = {
    "array": lambda web: web,
    "view": lambda web: web[::-2],
    "view of a view": lambda web: web[[5, 3, 3, -1]][::-1],
    "shuffle": lambda web: web.shuffle(3),
    "shuffle of a later epoch": lambda web: web.shuffle(3).at_epoch(2),
    "repeat": lambda web: web.repeat(3),
    "resample": lambda web: web.resample(20, seed=1),
    "resample by weight": lambda web: web.resample(20, seed=1, weights=np.arange(N_WEB)),
    "balance": lambda web: web.balance(seed=1, by=2),
    "filter": lambda web: web.filter(is_even, column=0),
    "sort": lambda web: web.sort(1, descending=True),
    "deduplicate": lambda web: web.deduplicate(1),
    "shard": lambda web: web.shard(1, 3),
    "split": lambda web: web.split([0.5, 0.5], seed=1)[1],
    "fold": lambda web: web.folds(3)[1].train,
    "map": lambda web: web.map(identity),
    "map of a column": lambda web: web.map(identity, column=0),
    "map of batches": lambda web: web.map(identity, column=0, batched=True),
    "one hot": lambda web: web.one_hot([0, 1], column=2),
    "names": lambda web: web.as_dict("id", "group", "class").rename({"id": "x"}).select("x"),
    "tuple": lambda web: web.as_dict("id", "group", "class").as_tuple("id"),
    "cache": lambda web: web.shuffle(2).cache(),
    "in memory": lambda web: web.shuffle(2).in_memory().shuffle(3),
    "in memory as objects": lambda web: web.map(identity).shuffle(2).in_memory(),
    "batch": lambda web: web.shuffle(1).batch(5),
    "windows": lambda web: web.windows(3),
    "windows by group": lambda web: web.windows(2, order_by=0, group_by=1),
    "windows of batches": lambda web: web.batch(2, drop_last=True).windows(2),
}


@pytest.mark.parametrize("name", LAYERS_OF_ONE)
def test_a_layer_names_the_samples_that_it_reads(name: str) -> None:
    stack = LAYERS_OF_ONE[name](make_source("web", N_WEB))

    check_origins(stack, {None: "web"})


def test_a_stored_cache_names_the_samples_below(tmp_path: Path) -> None:
    stack = make_source("web", N_WEB).shuffle(1).cache(storage=tmp_path)

    check_origins(stack, {None: "web"})
    check_origins(stack, {None: "web"})  # read from the store


def test_samples_in_memory_without_their_source_are_a_source() -> None:
    shuffled = make_source("web", N_WEB).shuffle(1)

    kept = InMemoryDatasetIterator(shuffled, keep_source=False)

    assert list_origins(kept, 3) == [Origin(3)]


def test_windows_with_offsets_name_each_offset_that_is_read() -> None:
    web = make_source("web", N_WEB)
    windows = web.windows(3, offsets={-1: [0], 0: None, 1: []})

    for position in range(len(windows)):
        assert [(origin.position, origin.part) for origin in list_origins(windows, position)] == [
            (position, "offset -1"),
            (position + 1, "offset 0"),
        ]


# ---------------------------------------------------------------------- layers of several sources

LAYERS_OF_TWO: dict[str, tuple[Callable[[Any, Any], Any], dict[str | None, str]]] = {
    "combine": (lambda web, code: web.combine(code), {"0": "web", "1": "code"}),
    "combine, with an empty one": (
        lambda web, code: CombinedDatasetIterator([code[:0], web, code[:0], code, code[:0]]),
        {"1": "web", "3": "code"},
    ),
    "combination of combinations": (
        lambda web, code: web.combine(code.combine(code[:3]), web[4:]),
        {"0": "web", "1/0": "code", "1/1": "code", "2": "web"},
    ),
    "interleave": (
        lambda web, code: web.interleave(code, stop="shortest"),
        {"0": "web", "1": "code"},
    ),
    "mix": (
        lambda web, code: web.mix(code, proportions=[2, 1], seed=1),
        {"0": "web", "1": "code"},
    ),
    "mix with names": (
        lambda web, code: web.mix(code, proportions=[2, 1], seed=1, names=["w", "c"]).shuffle(5),
        {"w": "web", "c": "code"},
    ),
    "mix of a combination": (
        lambda web, code: web.combine(code).mix(
            code.shuffle(3), proportions=[1, 1], seed=1, names=["both", "c"]
        ),
        {"both/0": "web", "both/1": "code", "c": "code"},
    ),
    "zip": (
        lambda web, code: web[:N_CODE].zip(code.shuffle(3), classes="first"),
        {"0": "web", "1": "code"},
    ),
    "zip of mixes": (
        lambda web, code: web[:4].zip(
            web.mix(code, proportions=[1, 1], seed=3, names=["w", "c"])[:4], classes="first"
        ),
        {"0": "web", "1/w": "web", "1/c": "code"},
    ),
    "windows of a combination": (
        lambda web, code: web.combine(code).windows(4, stride=3),
        {"0": "web", "1": "code"},
    ),
}


@pytest.mark.parametrize("name", LAYERS_OF_TWO)
def test_a_layer_of_two_sources_names_them(name: str) -> None:
    make_stack, names = LAYERS_OF_TWO[name]

    stack = make_stack(make_source("web", N_WEB), make_source("code", N_CODE))

    check_origins(stack, names)


@given(data=st.data())
def test_random_stacks_name_the_samples_that_they_read(data: st.DataObject) -> None:
    one = make_source("web", N_WEB)
    names: dict[str | None, str] = {None: "web"}
    stack: Any = one
    is_of_two = data.draw(st.booleans())
    if is_of_two:
        stack = one.combine(make_source("code", N_CODE))
        names = {"0": "web", "1": "code"}

    for _ in range(data.draw(st.integers(0, 3))):
        layer = data.draw(
            st.sampled_from(["shuffle", "view", "repeat", "cache", "in memory", "map", "resample"])
        )
        seed = data.draw(st.integers(0, 99))
        if layer == "shuffle":
            stack = stack.shuffle(seed)
        elif layer == "view":
            stack = stack[data.draw(st.lists(st.integers(0, len(stack) - 1), min_size=1))]
        elif layer == "repeat":
            stack = stack.repeat(2)
        elif layer == "cache":
            stack = stack.cache()
        elif layer == "in memory":
            stack = stack.in_memory()
        elif layer == "map":
            stack = stack.map(identity)
        else:
            stack = stack.resample(6, seed=seed)
    if data.draw(st.booleans()):
        stack = stack.batch(data.draw(st.integers(1, 4)))

    check_origins(stack, names)


# ---------------------------------------------------------------------- packed documents


def make_documents(name: str, lengths: Sequence[int]) -> SequenceDatasetIterator:
    """Documents whose tokens are ``1000 * document + place``."""
    documents = [
        np.arange(length, dtype=np.int64) + 1000 * number for number, length in enumerate(lengths)
    ]
    return SequenceDatasetIterator([documents])


END_TOKEN = -1
PADDING = -2


@pytest.mark.parametrize("strategy", ["concat", "best_fit", "first_fit"])
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("end_token", [None, END_TOKEN])
def test_a_packed_sequence_names_all_of_its_documents(
    strategy: Any, seed: int | None, end_token: int | None
) -> None:
    lengths = [5, 0, 8, 1, 17, 3, 9, 2, 2, 30, 7, 8]
    packed = (
        make_documents("web", lengths)
        .shuffle(1)
        .pack(
            8,
            strategy=strategy,
            seed=seed,
            end_token=end_token,
            drop_last=False,
            padding={"tokens": PADDING},
        )
    )

    for position in range(len(packed)):
        tokens: list[int] = []
        for origin in list_origins(packed, position):
            assert origin.part is not None
            if origin.part == "end token":
                tokens.append(END_TOKEN)
                continue
            start, stop = map(int, origin.part.removeprefix("tokens ").split(":"))
            tokens += range(1000 * origin.position + start, 1000 * origin.position + stop)
            is_end = stop == lengths[origin.position]
            if is_end and end_token is not None and len(tokens) < 8:
                tokens.append(END_TOKEN)
        read = [int(token) for token in packed[position]["tokens"] if token != PADDING]
        assert read == tokens


def test_parts_of_parts_name_both() -> None:
    packed = make_documents("web", [6, 6]).pack(4)

    windows = packed.windows(2, offsets={0: None, 1: None})

    assert [str(origin) for origin in list_origins(windows, 1)] == [
        "sample 0, offset 0 of tokens 4:6",
        "sample 1, offset 0 of tokens 0:2",
        "sample 1, offset 1 of tokens 2:6",
    ]


# ---------------------------------------------------------------------- classes of clients


class _Doubled(OneToOneAccess):
    def sample(self, position: int) -> Any:
        return self.below.sample(position)


class DoubledIterator(AccessedDatasetIterator):
    """A layer of a client, with an access."""

    def __init__(self, samples: DatasetIteratorIF) -> None:
        self._samples = samples

    def make_access(self) -> SampleAccess:
        return _Doubled(access_to(self._samples))

    @property
    def underlying_iterators(self) -> Any:
        return [self._samples]


def test_a_layer_of_a_client_forwards_origins() -> None:
    check_origins(DoubledIterator(make_source("web", N_WEB).shuffle(1)), {None: "web"})


def test_iterators_of_clients_are_sources() -> None:
    samples = Samples([(1000 + number,) for number in range(N_WEB)])
    wrapped = ClientWrapper(make_source("web", N_WEB))

    check_origins(samples.shuffle(1), {None: "web"})
    check_origins(wrapped, {None: "web"})
    assert len(samples.read) == N_WEB  # only list_ids() has read


# ---------------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        (Origin(3), "sample 3"),
        (Origin(3, location="row 3 of a.csv"), "row 3 of a.csv"),
        (Origin(3, "web", "row 3 of a.csv", "tokens 0:4"), "web: row 3 of a.csv, tokens 0:4"),
    ],
)
def test_an_origin_prints_as_a_place(origin: Origin, text: str) -> None:
    assert str(origin) == text
