"""list, search, info."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_runs import TWO_VERSIONS, Install, Run
from written_dataset import Written

from data_stack import DatasetCard, FileStorageConnector
from data_stack.repository.repository import default_repository, search_datasets

DIGITS_SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"

# ---------------------------------------------------------------------- list


def test_list_names_a_dataset_of_two_versions_once(command: Run, install: Install) -> None:
    install("wine-plugin", TWO_VERSIONS, ["New", "Old"], ["wine", "wine@1.0"])

    outcome = command("list", "--json")

    names = [row["name"] for row in outcome.json]
    assert names.count("wine") == 1
    assert "wine@1.0" not in names


# ---------------------------------------------------------------------- search


class Zebras(Written):
    """Stripes of a zebra."""


@pytest.fixture
def register_words() -> Iterator[None]:
    """Register a dataset named after zebras, and one that only tells of them."""
    names = ("Zebras", "A-stable")
    for name in names:
        default_repository().register(name, Zebras)
    yield
    for name in names:
        default_repository().remove(name)


@pytest.mark.parametrize(
    ("text", "expected_names"),
    [
        ("HANDWRITTEN", ["digits", "mnist"]),
        ("handwrit pixels", ["digits", "mnist"]),
        ("vers cc", ["iris"]),
        ("iris whales", []),
        (".*[", []),
    ],
)
def test_every_word_must_be_found_and_names_count_most(
    store: Path, text: str, expected_names: list[str]
) -> None:
    descriptions = search_datasets(text)

    # Other packages have datasets with these words, too.
    names = [
        description.name
        for description in descriptions
        if description.name in ("digits", "iris", "mnist")
    ]
    assert names == expected_names


def test_a_name_with_capital_letters_counts_most(register_words: None) -> None:
    descriptions = search_datasets("zebra")

    assert [description.name for description in descriptions] == ["Zebras", "A-stable"]


def test_search_prints_a_line_for_each_dataset(command: Run, install: Install) -> None:
    install("broken-iris", "raise RuntimeError('broken')")

    outcome = command("search", "iris")
    as_json = command("search", "IRIS", "flowers", "--json")

    assert outcome.first_words == ["broken-iris", "iris"]
    assert [row["name"] for row in as_json.json] == ["iris"]


def test_search_says_that_nothing_matches(command: Run) -> None:
    outcome = command("search", "nosuchthing")

    assert outcome.code == 0
    assert outcome.out == "no installed dataset matches; `data-stack list` shows all\n"


# ---------------------------------------------------------------------- info


def test_info_describes_the_sources_and_retrieves_nothing(command: Run, store: Path) -> None:
    outcome = command("info", "digits")

    assert outcome.code == 0
    for fact in (
        "digits/1.0.0/raw/digits.csv.gz",
        f"sha256 {DIGITS_SHA256}",
        "package:sklearn/datasets/data/digits.csv.gz",
        "CC-BY-4.0",
        "train, test",
    ):
        assert fact in outcome.out
    assert not store.exists()


@pytest.mark.parametrize("name", ["./pets", "pets/", "pets", "pets/train.csv"])
def test_info_describes_a_relative_path(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pets").mkdir()
    Path("pets/train.csv").write_text("x\n1\n")

    outcome = command("info", name)

    assert outcome.code == 0, outcome.err
    assert "train" in outcome.out


class Reasons(Written):
    """Numbers."""

    card = DatasetCard(name="reasons", version="1.0.0")


class Newer(Reasons):
    card = DatasetCard(name="reasons", version="2.0.0")


@pytest.fixture
def reasons(store: Path) -> Iterator[None]:
    """Registers a dataset that the tests change."""
    default_repository().register("reasons", Reasons)
    yield
    default_repository().remove("reasons")


@pytest.mark.usefixtures("reasons")
def test_info_gives_no_reason_before_the_first_preparation(
    command: Run, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = command("info", "reasons")
    report = Reasons(FileStorageConnector(store)).prepare()

    assert "prepared  no\n" in outcome.out
    assert report.reason is None
    assert [record for record in caplog.records if record.levelno == logging.WARNING] == []


@pytest.mark.usefixtures("reasons")
@pytest.mark.parametrize(
    ("new_factory", "reason"),
    [(Newer, "stored: reasons 1.0.0"), (Reasons, "all' has 1 bytes, 3 were prepared")],
)
def test_info_says_why_stored_data_does_not_fit_any_more(
    command: Run,
    store: Path,
    caplog: pytest.LogCaptureFixture,
    new_factory: type[Reasons],
    reason: str,
) -> None:
    Reasons(FileStorageConnector(store)).prepare()
    (store / "reasons" / "1.0.0" / "all").write_bytes(b"2")
    default_repository().register("reasons", new_factory, replace=True)

    before = command("info", "reasons")
    report = new_factory(FileStorageConnector(store)).prepare()
    after = command("info", "reasons")

    assert reason in str(report.reason)
    assert str(report.reason) in caplog.text
    assert f"no: {report.reason}" in before.out
    assert "prepared  yes\n" in after.out
