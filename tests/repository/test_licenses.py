"""License expressions, policies that refuse datasets, and the names that both had before 0.3."""

from __future__ import annotations

import pytest
from written_dataset import Written

import data_stack
from data_stack import DatasetCard, exception
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import LicenseDeniedError
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.repository.licenses import VARIABLE, check_license, is_denied, spdx_problem
from data_stack.repository.repository import DatasetRepository


class Open(Written):
    card = DatasetCard("open", "1.0.0", license="CC0-1.0")


class NonCommercial(Written):
    card = DatasetCard("shared", "1.0.0", license="CC-BY-NC-SA-4.0")


class Silent(Written):
    card = DatasetCard("silent", "1.0.0", license=None)


@pytest.fixture
def licensed() -> DatasetRepository:
    repository = DatasetRepository(storage=InMemoryStorageConnector())
    repository.register("open", Open)
    repository.register("shared", NonCommercial)
    repository.register("silent", Silent)
    return repository


@pytest.mark.parametrize(
    ("expression", "denied"),
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
def test_what_patterns_deny(expression: str | None, denied: bool | None) -> None:
    assert is_denied(expression, ["*-nc-*"]) is denied


@pytest.mark.parametrize("expression", ["MIT", "MIT OR Zlib", "LicenseRef-own AND MIT"])
def test_spdx_expressions_have_no_problem(expression: str) -> None:
    assert spdx_problem(expression) is None


@pytest.mark.parametrize("expression", ["", " ", "none at all", "MIT OR", "()", "My-Own"])
def test_other_texts_have_a_problem(expression: str) -> None:
    assert spdx_problem(expression)


def test_a_policy_refuses_before_anything_is_stored(
    licensed: DatasetRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = InMemoryStorageConnector()

    with data_stack.policy(deny=["*-NC-*"]):
        licensed.load("open", "all")
        with pytest.raises(LicenseDeniedError, match=r"its license is CC-BY-NC-SA-4\.0"):
            licensed.load("shared", "all", store)
        with pytest.raises(LicenseDeniedError, match="has no license"):
            licensed.load("silent", "all", store)
        with pytest.raises(LicenseDeniedError):
            licensed.get("shared", {"split": "all"})
    licensed.load("shared", "all")
    monkeypatch.setenv(VARIABLE, "cc0-*, allow-unknown")
    licensed.load("silent", "all")
    with pytest.raises(LicenseDeniedError, match="CC0"):
        licensed.load("open", "all", store)

    assert not list(store.list_resources())


def test_a_policy_of_the_former_variable_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_STACK_LICENCE_POLICY", "*-NC-*")

    with (
        pytest.warns(DeprecationWarning, match=f"use {VARIABLE}"),
        pytest.raises(LicenseDeniedError),
    ):
        check_license("shared", "CC-BY-NC-4.0")


def test_the_former_name_of_the_error_is_the_same_class() -> None:
    with pytest.warns(DeprecationWarning, match="use LicenseDeniedError") as warned:
        former = exception.LicenceDeniedError

    assert former is LicenseDeniedError
    assert warned[0].filename == __file__


def test_the_former_method_of_iterators_warns() -> None:
    numbers = SequenceDatasetIterator([[1, 2]])

    with pytest.warns(DeprecationWarning, match=r"use it\.licenses\(\)"):
        former = numbers.licences()

    assert former == numbers.licenses()
