"""What ``data-stack search`` finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator
from data_stack.repository.repository import DatasetRepository
from data_stack.repository.search import search_datasets


class Birds(DatasetFactory):
    """Songs of birds.

    Recorded in a forest near digits.
    """

    card = DatasetCard(name="birds", version="1", license="CC0-1.0")
    splits = ("all",)
    class_names = ("robin", "blackbird")

    def open(self, split: str, prepared: Any) -> Any:
        return SequenceDatasetIterator([[0]])


@pytest.fixture
def repository() -> DatasetRepository:
    repository = DatasetRepository()
    repository.register("birds", Birds)
    repository.register("digits-of-birds", type("Other", (Birds,), {"__doc__": None}))
    return repository


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("BIRDS", ["birds", "digits-of-birds"]),
        ("songs", ["birds"]),
        ("blackbrid", ["birds", "digits-of-birds"]),
        ("cc0 forest", ["birds"]),
        ("digits", ["digits-of-birds", "birds"]),
        ("birds whales", []),
        ("xy", []),
        ("", []),
        (".*[", []),
    ],
)
def test_every_word_must_be_found_and_names_count_most(repository: DatasetRepository, text: str, names: list[str]) -> None:
    assert [each.description.name for each in search_datasets(text, repository)] == names


def test_the_command_says_what_was_found_where(command: Any, install: Callable[..., None]) -> None:
    install("broken-iris", "raise RuntimeError('broken')")

    outcome = command("search", "iris")
    facts = command("search", "IRIS", "flowers", "--json").json

    assert [line.split()[0] for line in outcome.out.splitlines()[2:]] == ["iris", "broken-iris"]
    assert [(each["description"]["name"], each["parts"]) for each in facts] == [("iris", ["name", "title", "description"])]
    assert command("search", "nosuchthing").out == "no installed dataset matches; `data-stack list` shows all\n"
    assert command("search").code == 2
