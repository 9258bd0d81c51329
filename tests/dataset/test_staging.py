from __future__ import annotations

from pathlib import Path

import pytest
from sharded_dataset import Sharded

from data_stack.dataset.staging import Staging
from data_stack.dataset.stored import StoredDataset
from data_stack.io.storage_connectors import FileStorageConnector

FINGERPRINT = "f" * 64


@pytest.fixture
def stored(tmp_path: Path) -> StoredDataset:
    factory = Sharded(FileStorageConnector(tmp_path))
    return StoredDataset(factory.storage_connector, factory._checked_definition())


def test_what_an_interrupted_preparation_opened_goes_on(stored: StoredDataset) -> None:
    interrupted, later = Staging(stored, FINGERPRINT), Staging(stored, FINGERPRINT)
    interrupted.open()

    later.open()

    assert later.opening == interrupted.opening
    assert interrupted.is_open()


def test_what_was_opened_anew_after_its_end_is_not_open_to_those_of_before(stored: StoredDataset) -> None:
    before, after = Staging(stored, FINGERPRINT), Staging(stored, FINGERPRINT)
    before.open()
    task = Staging(stored, FINGERPRINT, before.opening)

    Staging.remove(stored)
    after.open()

    assert after.is_open()
    assert not before.is_open()
    assert not task.is_open()


def test_a_damaged_mark_opens_nothing(stored: StoredDataset) -> None:
    staging = Staging(stored, FINGERPRINT)
    staging.open()
    [mark] = [each for each in stored.connector.list_resources() if each.endswith("mark.json")]
    stored.connector.set_resource(mark, [b'{"format": 2}'])

    assert not Staging(stored, FINGERPRINT).is_open()
