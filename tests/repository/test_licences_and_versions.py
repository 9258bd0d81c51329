"""Licences, citations, provenance and versions of the datasets of a stack."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack.dataset.iterator import CombinedDatasetIterator, SequenceDatasetIterator
from data_stack.exception import LicenceDeniedError
from data_stack.factories.declarative import DatasetCard, DatasetFactory
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.repository.repository import DatasetRepository
from data_stack.repository.resolved import VARIABLE
from data_stack.show.explanation import is_denied


def dataset_class(name: str, licence: str | None, citation: str | None = None, version: str = "1.0.0") -> type[DatasetFactory]:
    """A dataset in a store whose samples say its version."""

    class Numbers(DatasetFactory):
        card = DatasetCard(name, version, license=licence, citation=citation)
        splits = ("train",)

        def preprocess(self, raw: Any, prepared: Any) -> None:
            with prepared.create("version.txt") as file:
                file.write(version.encode())

        def open(self, split: str, prepared: Any) -> Any:
            with prepared["version.txt"] as file:
                return SequenceDatasetIterator([[file.read().decode()] * 3, np.arange(3), np.arange(3)])

    return Numbers


@pytest.fixture
def repository() -> DatasetRepository:
    repository = DatasetRepository(storage=InMemoryStorageConnector())
    repository.register("open", dataset_class("open", "CC0-1.0", "A. Author: Numbers {1}. 2020"))
    repository.register("shared", dataset_class("shared", "CC-BY-NC-SA-4.0", "@article{author20,\n  title={Numbers}\n}"))
    repository.register("silent", dataset_class("silent", None, "@article{author20,\n  title={Others}\n}"))
    repository.register("open@0.9.0", dataset_class("open", "CC0-1.0", version="0.9.0"))
    return repository


@pytest.mark.parametrize(
    ("licence", "denied"),
    [
        ("CC0-1.0", False),
        ("CC-BY-NC-4.0 OR Apache-2.0", False),
        ("CC-BY-NC-4.0 AND Apache-2.0", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("Zlib", False),  # an SPDX identifier
        ("free for research", None),
        ("CC-BY-4.0 AND LicenseRef-own", None),
        ("CC-BY-4.0 OR LicenseRef-own", False),
        ("CC-BY-NC-4.0 OR LicenseRef-own", None),
        (None, None),
    ],
)
def test_what_an_expression_permits(licence: str | None, denied: bool | None) -> None:
    assert is_denied(licence, ["*-nc-*"]) is denied


def test_a_mixed_stack_tells_the_licences_of_all_its_datasets(repository: DatasetRepository) -> None:
    parts = [repository.load(name, "train") for name in ("open", "shared", "open")]
    own = SequenceDatasetIterator([["mine"], [0], [0]])

    licences = CombinedDatasetIterator(parts).shuffle(seed=1).licences()
    with_own = CombinedDatasetIterator([parts[0], own]).licences()

    assert [each.name for each in licences.datasets] == ["open", "shared"]
    assert [each.licence for each in licences.datasets] == ["CC0-1.0", "CC-BY-NC-SA-4.0"]
    assert "open@1.0.0    CC0-1.0" in str(licences)
    assert "1 more source(s)" in str(with_own)
    assert repository.load("silent", "train").licences().datasets[0].licence is None


def test_citations_are_bibtex_each_once(repository: DatasetRepository) -> None:
    stack = CombinedDatasetIterator([repository.load(name, "train") for name in ("open", "shared", "open", "silent")])

    cited = stack.citation(with_data_stack=True)

    assert cited.count("@") == 4
    assert "note = {A. Author: Numbers {1}. 2020}" in cited
    assert "@article{author20," in cited
    assert "@article{author20_2,\n  title={Others}" in cited
    assert cited.split("\n\n")[-1].startswith("@software{data_stack")


def test_provenance_is_plain_data_and_no_part_of_the_fingerprint(repository: DatasetRepository) -> None:
    first, again = (repository.load("open", "train", InMemoryStorageConnector()) for _ in range(2))

    (facts,) = first.take(2).provenance()

    assert json.loads(json.dumps(facts))["preparation"]["framework"].startswith("datastack ")
    assert facts["preparation"]["seconds"] >= 0
    assert (facts["name"], facts["version"], facts["split"]) == ("open", "1.0.0", "train")
    assert first.fingerprint() == again.fingerprint()


def test_a_policy_refuses_before_anything_is_stored(repository: DatasetRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    store = InMemoryStorageConnector()

    with data_stack.policy(deny=["*-NC-*"]):
        repository.load("open", "train")
        with pytest.raises(LicenceDeniedError, match=r"its licence is CC-BY-NC-SA-4\.0"):
            repository.load("shared", "train", store)
        with pytest.raises(LicenceDeniedError, match="has no licence"):
            repository.load("silent", "train", store)
        with pytest.raises(LicenceDeniedError):
            repository.get("shared", {"split": "train"})
    repository.load("shared", "train")
    monkeypatch.setenv(VARIABLE, "cc0-*, allow-unknown")
    repository.load("silent", "train")
    with pytest.raises(LicenceDeniedError, match="CC0"):
        repository.load("open", "train", store)

    assert not list(store.list_resources())


def test_versions_lie_side_by_side_and_recipes_find_theirs(repository: DatasetRepository) -> None:
    old, new = repository.load("open@0.9.0", "train"), repository.load("open@1.0.0", "train")

    assert (old[0][0], new[0][0]) == ("0.9.0", "1.0.0")
    assert repository.versions("open") == ["1.0.0", "0.9.0"]
    assert new.fingerprint() == repository.load("open", "train").fingerprint()
    assert new.dataset_meta.dataset_name == "open"
    again = data_stack.from_recipe(old.take(1).recipe(), repository=repository)
    assert again[0][0] == "0.9.0"
