"""A declared dataset keeps the contract of datasets; and the suite finds one that does not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.factories.declarative import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.testing import DatasetContract


class RowsFactory(DatasetFactory):
    """Numbers, whose source is far away."""

    card = DatasetCard("rows", "1.0.0", license="CC0-1.0", homepage="https://example.org", citation="A. Author")
    sources = [ResourceDefinition("raw/rows.bin", "https://example.invalid/rows.bin", sha256="0" * 64)]
    splits = ("train", "test")
    class_names = ("even", "odd")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        with raw["raw/rows.bin"] as resource:
            rows = resource.read()
        for split in prepared.steps(self.splits):
            with prepared.create(f"preprocessed/{split}.bin") as file:
                file.write(rows[:7] if split == "train" else rows[7:])

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        with prepared[f"preprocessed/{split}.bin"] as resource:
            values = np.frombuffer(resource.read(), np.uint8)
        return SequenceDatasetIterator([values, values % 2, values])


class TestRows(DatasetContract):
    factory = RowsFactory
    n_samples: ClassVar[dict[str, int]] = {"train": 7, "test": 3}

    def make_source(self, identifier: str) -> bytes:
        return bytes(range(10))


FAULTY = """
import os, pickle
from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.testing import DatasetContract

class Faulty(DatasetFactory):
    card = DatasetCard("faulty", "1.0.0", license="free to use", homepage="https://example.org")
    sources = (ResourceDefinition("raw/rows.bin", "https://example.invalid/rows.bin"),)
    splits = ("all",)
    class_names = ("even", "odd")

    def preprocess(self, raw, prepared):
        with raw["raw/rows.bin"] as resource, prepared.create("all.bin") as file:
            file.write(pickle.dumps((len(resource.read()), os.getpid())))
        with prepared.create("again.bin") as file:
            file.write(b"")

    def open(self, split, prepared):
        with prepared["all.bin"] as resource:
            n = pickle.loads(resource.read())[0]
        return Stateful([range(n), range(n), [split] * n])

class Stateful(SequenceDatasetIterator):
    def __reduce__(self):
        raise TypeError("it holds a lock")

class TestFaulty(DatasetContract):
    factory = Faulty

    def make_source(self, identifier):
        return bytes(4)

class TestWithoutBytes(DatasetContract):
    factory = Faulty
"""


@pytest.mark.full
def test_the_suite_finds_what_a_faulty_dataset_does(tmp_path: Path) -> None:
    (tmp_path / "test_faulty.py").write_text(FAULTY)

    chosen = "TestFaulty and (card or licen or digest or class_names or two_ or pickle or store or once) or has_its_samples"
    options = ["-q", "-rf", "--tb=line", "-p", "no:cacheprovider", "-c", "/dev/null", "-k", chosen]
    command = [sys.executable, "-m", "pytest", *options, "test_faulty.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)

    failed = set(re.findall(r"FAILED \S*::TestFaulty::(\w+)", result.stdout))
    assert failed == {
        "test_the_card_and_the_docstring_say_what_it_is",
        "test_the_licence_is_an_expression_of_spdx",
        "test_each_source_has_a_digest",
        "test_class_names_cover_the_targets",
        "test_two_preparations_give_the_same_bytes",
        "test_nothing_is_unpickled",
        "test_it_pickles",
    }, result.stdout
    assert "define make_source(self, identifier) in TestWithoutBytes" in result.stdout
