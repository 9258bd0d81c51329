"""A stack explains itself as a tree: what it is made of, what that costs, and under which licenses
it stands.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
from layer_laws import ClientWrapper

from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import DatasetMeta

META = DatasetMeta(dataset_name="digits", dataset_tag="train")
ORIGIN = {"name": "digits", "version": "1.0.0", "split": "train", "license": "CC-BY-4.0"}


def dataset(n_samples: int = 1000, **origin: Any) -> InformedDatasetIterator:
    return InformedDatasetIterator(
        SequenceDatasetIterator([np.zeros((n_samples, 8, 8))]), META, origin=ORIGIN | origin
    )


class Client(ClientWrapper):
    def __getitem__(self, index: int) -> Any:
        raise AssertionError("a sample was read")


def test_a_stack_is_drawn_from_the_top_without_reading_samples() -> None:
    explanation = Client(dataset()).map(max, seed=7).skip(10).take(100).explain()

    assert str(explanation) == (
        "view(indices=range(0, 100))  100 samples\n"
        "view(indices=range(10, 1000))  990 samples\n"
        "mapped(function=max, seed=7)  1,000 samples\n"
        "│  random: at_epoch changes it\n"
        "│  calls a Python function for each sample\n"
        "Client  1,000 samples\n"
        "sequence  1,000 samples\n"
        "   dataset digits 1.0.0, train, license CC-BY-4.0\n"
        "\n"
        "license CC-BY-4.0: digits 1.0.0, train"
    )


def test_arguments_are_shown_short_and_without_defaults() -> None:
    def halved(sample: Any) -> Any:
        return sample

    stack = dataset().map(functools.partial(halved), batched=True).select(0).as_dict("x" * 100)

    arguments = [layer.arguments for layer in stack.explain().layers[:3]]

    assert arguments[0].startswith("names=['xxx")
    assert len(arguments[0]) < 100
    assert arguments[1] == "columns=[0]"
    assert arguments[2].startswith("function=partial(test_arguments_are_shown")
    assert arguments[2].endswith("batched=True")


def test_shared_iterators_are_drawn_once() -> None:
    shared = dataset(10)

    text = str(CombinedDatasetIterator([shared[:5], shared[5:]]).explain())

    assert text.count("license CC-BY-4.0\n") == 1
    assert "├─ view(indices=range(0, 5))  5 samples" in text
    assert "│  [4] sequence  10 samples\n" in text
    assert "└─ view(indices=range(5, 10))  5 samples" in text
    assert "   [4] sequence  10 samples, as above" in text


def test_licenses_of_undrawn_parts_are_listed_in_escaped_html() -> None:
    parts = [dataset(2, name=f"d{i}", license="CC0-1.0" if i % 2 else None) for i in range(50)]
    hostile = InformedDatasetIterator(
        SequenceDatasetIterator([[1]]), replace(META, dataset_name="<script>alert(1)</script>")
    )

    explanation = CombinedDatasetIterator([*parts, hostile]).explain()

    assert set(explanation.licenses) == {"CC0-1.0", None}
    assert "license CC0-1.0: d1 1.0.0, train, d3 1.0.0, train" in str(explanation)
    assert "├─ … 46 more\n" in str(explanation)
    assert "&lt;script&gt;" in explanation._repr_html_()
    assert "<script>" not in explanation._repr_html_()
