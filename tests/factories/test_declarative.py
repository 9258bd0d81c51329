"""Datasets that declare themselves; factories of the original DataStack."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pytest
from plain_connector import UnwritableConnector

import data_stack.dataset.preprocesor
from data_stack import (
    BaseDatasetFactory,
    DatasetCard,
    DatasetFactory,
    HigherOrderDatasetFactory,
    InformedDatasetFactory,
    PreparedResources,
    Resources,
)
from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIteratorIF,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.dataset.preprocessor import PreprocessingHelpers
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    MalformedIdentifierError,
    PreparationError,
    ResourceChangedError,
)
from data_stack.factories.definition import DatasetDefinition
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.resources import ResourceFactory
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.testing.storage_connector import content

WORDS = b"a\nb\nc\nd\n"


class WordsFactory(DatasetFactory):
    """Words, a line each."""

    card = DatasetCard(name="words", version="1.0.0", license="CC0-1.0")
    splits = ("train", "test")
    folder: ClassVar[Path]

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        with raw["raw/words.txt"] as source:
            words = source.read().split()
        for split, part in (("train", words[:3]), ("test", words[3:])):
            with prepared.create(f"preprocessed/{split}.txt") as file:
                file.write(b"\n".join(part))

    def open(
        self, split: str, prepared: Resources, *, upper: bool = False, repeat: int = 1
    ) -> DatasetIteratorIF:
        with prepared[f"preprocessed/{split}.txt"] as resource:
            words = resource.read().decode().split() * repeat
        return SequenceDatasetIterator(
            [[word.upper() if upper else word for word in words], [len(word) for word in words]]
        )


Words: TypeAlias = type[WordsFactory]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_bytes(WORDS)
    return path


@pytest.fixture
def words(source: Path) -> Words:
    class SourcedWordsFactory(WordsFactory):
        sources = (
            ResourceDefinition(
                "raw/words.txt", source.as_uri(), sha256=hashlib.sha256(WORDS).hexdigest()
            ),
        )

    return SourcedWordsFactory


def samples(iterator: DatasetIteratorIF) -> list[Any]:
    return [iterator[i][0] for i in range(len(iterator))]


TUPLE = ("image", 3, "tag")
DICT = {"image": "image", "label": 3}


@pytest.mark.parametrize(
    ("declared", "sample"),
    [
        ({"iterator_meta": IteratorMeta(0, 5)}, TUPLE),
        ({"iterator_meta": IteratorMeta(0, 1, "tag")}, TUPLE),
        ({"iterator_meta": IteratorMeta(-1)}, DICT),
        ({"columns": ("image", "label")}, TUPLE),
        ({"columns": ("image", "label")}, 5),
        ({"columns": ("a", "b", "c"), "iterator_meta": IteratorMeta("a", "d")}, TUPLE),
    ],
)
def test_columns_that_samples_lack_are_refused(
    words: Words, declared: dict[str, Any], sample: Any
) -> None:
    definition = DatasetDefinition(type("Wrong", (words,), declared)(), DatasetFactory)

    with pytest.raises(ConfigError):
        definition.check_sample(sample)


def test_a_ready_dataset_needs_no_sources_and_no_writable_store(
    words: Words, store: FileStorageConnector, source: Path
) -> None:
    words(store).prepare()
    source.unlink()
    store.delete_resource("words/1.0.0/raw/words.txt")

    iterator, _ = words(UnwritableConnector(Path(store.root_path))).get_dataset_iterator(
        {"split": "test"}
    )

    assert samples(iterator) == ["d"]
    assert words(store).verify() == []


def test_an_option_without_default_must_be_given(words: Words, store: FileStorageConnector) -> None:
    class Choosy(words):  # type: ignore[valid-type,misc]  # a class from a fixture
        def open(self, split: str, prepared: Resources, *, window: int) -> DatasetIteratorIF:
            return SequenceDatasetIterator([[split] * window])

    with pytest.raises(ConfigError, match="needs the configuration key 'window'"):
        Choosy(store).get_dataset_iterator({"split": "train"})
    assert len(Choosy(store).get_dataset_iterator({"window": 7})[0]) == 7


def test_a_dataset_without_sources_and_preprocessing_needs_no_store(words: Words) -> None:
    class Squares(DatasetFactory):
        card = DatasetCard(name="squares", version="1")
        splits = ("all",)

        def open(self, split: str, prepared: Resources, *, n: int = 3) -> DatasetIteratorIF:
            assert len(prepared) == 0
            return SequenceDatasetIterator([[i * i for i in range(n)]])

    factory = Squares()

    assert samples(factory.get_dataset_iterator({"n": 4})[0]) == [0, 1, 4, 9]
    assert factory.prepare().already_ready
    assert factory.is_ready()
    assert factory.manifest() is None
    assert factory.verify() == []
    with pytest.raises(ConfigError, match=r"FileStorageConnector\(folder\)"):
        words().get_dataset_iterator()


def test_resources_replaced_after_opening_are_an_error(
    words: Words, store: FileStorageConnector
) -> None:
    kept: list[Resources] = []

    class Keeping(words):  # type: ignore[valid-type,misc]  # a class from a fixture
        def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
            kept.append(prepared)
            return SequenceDatasetIterator([[split]])

    Keeping(store).get_dataset_iterator()
    store.set_resource("words/1.0.0/preprocessed/train.txt", b"other")

    with pytest.raises(ResourceChangedError):
        kept[0]["preprocessed/train.txt"]


def test_resources_replaced_while_they_are_opened_are_opened_again(
    words: Words, store: FileStorageConnector
) -> None:
    words(store).prepare()
    opened: list[str] = []

    class Raced(words):  # type: ignore[valid-type,misc]  # a class from a fixture
        def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
            iterator: DatasetIteratorIF = super().open(split, prepared)
            opened.append(samples(iterator)[0])
            if len(opened) == 1:  # another process prepares again, right now
                store.delete_resource("words/1.0.0/manifest.json")
                store.set_resource("words/1.0.0/preprocessed/train.txt", b"other")
            return iterator

    iterator, _ = Raced(store).get_dataset_iterator()

    assert samples(iterator) == ["a", "b", "c"]
    assert len(opened) > 1


def creating(words: Words, make: Callable[[PreparedResources], object]) -> type[DatasetFactory]:
    class Creating(words):  # type: ignore[valid-type,misc]  # a class from a fixture
        def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
            make(prepared)

        def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
            return SequenceDatasetIterator([sorted(prepared)])

    return Creating


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        *((name, MalformedIdentifierError) for name in ("../x", "", "nul")),
        *(
            (name, ConfigError)
            for name in (
                "raw/words.txt",
                "manifest.json",
                "raw/Words.txt",
                "raw",
                "raw/words.txt/x",
            )
        ),
    ],
)
def test_a_malformed_name_or_one_in_use_is_refused(
    words: Words, store: FileStorageConnector, name: str, cause: type[Exception]
) -> None:
    factory = creating(words, lambda prepared: prepared.create(name).__enter__())(store)

    with pytest.raises(PreparationError) as caught:
        factory.prepare()

    assert isinstance(caught.value.__cause__, cause)
    assert not factory.is_ready()
    assert content(store, "words/1.0.0/raw/words.txt") == WORDS


def test_a_resource_whose_writing_failed_can_be_created_again(
    words: Words, store: FileStorageConnector
) -> None:
    def make(prepared: PreparedResources) -> None:
        with contextlib.suppress(ZeroDivisionError), prepared.create("folder/x") as file:
            file.write(b"half")
            1 / 0  # noqa: B018
        assert "folder/x" not in prepared
        with prepared.create("folder/x") as file:
            file.write(b"right")

    factory = creating(words, make)(store)

    factory.prepare()

    assert content(store, "words/1.0.0/folder/x") == b"right"
    assert factory.verify() == []


# -------------------------------------------------- a wrong declaration is an error when it is used


@pytest.mark.parametrize(
    "attributes",
    [
        {"card": None},
        *({"card": DatasetCard(name=name, version="1")} for name in ("", "a/b", "..", "nul")),
        *({"card": DatasetCard(name="words", version=version)} for version in (" ", 1)),  # type: ignore[arg-type]
        *({"splits": splits} for splits in ((), "train", ("train", "train"), ("train", 1), None)),
        *({"sources": sources} for sources in (None, ["raw/words.txt"])),
        *(
            {"sources": [ResourceDefinition(name, "x")]}
            for name in ("/raw/words.txt", "../words.txt", "manifest.json")
        ),
        *(
            {"sources": [ResourceDefinition(a, "x"), ResourceDefinition("raw/a", "y")]}
            for a in ("raw/a", "raw/A", "raw")
        ),
        *(
            {"prepared_resources": names}
            for names in ("preprocessed/train.txt", ["raw/words.txt"], ["../x"])
        ),
        *(
            {"open": wrong}
            for wrong in (DatasetFactory.open, lambda self: None, lambda self, split: None)
        ),
    ],
)
def test_a_wrong_declaration_is_refused(
    words: Words, store: FileStorageConnector, attributes: dict[str, Any]
) -> None:
    factory: DatasetFactory = type("Wrong", (words,), attributes)(store)

    with pytest.raises(ConfigError):
        factory.get_dataset_iterator()


def test_names_of_existing_factories_stay_theirs() -> None:
    theirs = {"raw_path", "preprocessed_path", "data_path", "resource_definitions", "check_exists"}
    theirs |= {"_prepare", "_retrieve_raw", "_prepare_split", "_get_iterator", "_get_resource_id"}

    assert theirs.isdisjoint(dir(DatasetFactory))


META = DatasetMeta(dataset_name="digits")


def numbers(n: int = 12) -> SequenceDatasetIterator:
    return SequenceDatasetIterator([list(range(n))])


def test_a_factory_without_an_iterator_says_what_is_missing() -> None:
    with pytest.raises(
        NotImplementedError, match=r"BaseDatasetFactory must define get_dataset_iterator"
    ):
        BaseDatasetFactory().get_dataset_iterator()


def test_higher_order_iterators_stack() -> None:
    combined = HigherOrderDatasetFactory.get_combined_dataset_iterator(
        iterators=[numbers(2), numbers(1)]
    )
    view = HigherOrderDatasetFactory.get_dataset_iterator_view(combined, [2, 1], {"fold": 0})

    assert list(view) == [(0,), (1,)]
    assert view.view_tags == {"fold": 0}  # type: ignore[attr-defined]  # declared as any iterator, as in the original


@pytest.mark.parametrize(
    ("informed", "expected"),
    [
        (InformedDatasetFactory.get_dataset_iterator(numbers(2), META), [0, 1]),
        (
            InformedDatasetFactory.get_combined_dataset_iterator([numbers(1), numbers(2)], META),
            [0, 0, 1],
        ),
        (InformedDatasetFactory.get_dataset_iterator_view(numbers(), META, [5, 4]), [5, 4]),
        (InformedDatasetFactory.get_in_memory_dataset_iterator(numbers(2), META), [0, 1]),
        # the order that the original gave for this seed
        (
            InformedDatasetFactory.get_shuffled_dataset_iterator(numbers(), META, 42),
            [7, 5, 2, 8, 9, 6, 11, 3, 4, 0, 1, 10],
        ),
    ],
)
def test_informed_iterators_know_their_dataset(
    informed: InformedDatasetIteratorIF, expected: list[int]
) -> None:
    assert [number for (number,) in informed] == expected
    assert informed.dataset_meta == META


@pytest.mark.parametrize(
    "helpers",
    [
        PreprocessingHelpers,
        PreprocessingHelpers(),
        data_stack.dataset.preprocesor.PreprocessingHelpers,
    ],
)
def test_a_gzip_resource_is_decompressed_under_its_name(helpers: Any) -> None:
    resource = ResourceFactory.get_resource(
        "mnist/raw/labels.gz", io.BytesIO(gzip.compress(b"labels"))
    )

    with helpers.get_gzip_stream(resource=resource) as decompressed:
        assert decompressed.identifier == "mnist/raw/labels.gz"
        assert decompressed.read() == b"labels"
    assert not resource.closed


def test_an_error_that_is_its_own_cause_ends(words: Words, store: FileStorageConnector) -> None:
    class SelfCaused(words):  # type: ignore[misc, valid-type]
        def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
            error = DatasetFileCorruptError("damaged by myself")
            raise error from error

    words(store).prepare(progress=False)

    with pytest.raises(DatasetFileCorruptError, match="damaged by myself"):
        SelfCaused(store).get_dataset_iterator()
