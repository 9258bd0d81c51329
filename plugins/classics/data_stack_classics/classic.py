"""Base of all datasets of this package: card, published sources, expected number of samples."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, ClassVar

import numpy.typing as npt

from data_stack import DatasetCard, DatasetFactory, ResourceDefinition
from data_stack.exception import DatasetFileCorruptError


class ClassicFactory(DatasetFactory):
    """A published dataset with a known number of samples.

    To prepare other files of the same form, such as a few samples for a test, derive a class with other ``sources`` and
    ``n_samples``.

    Args of a class that describes a dataset:
        dataset: its name in ``cards.tsv``, ``sources.tsv`` and ``citations.bib``.
        name: of the card and in ``facts.json``, which has attributes of the class; None if it is the same.

    Attributes:
        n_samples: number of samples of each split.
    """

    n_samples: ClassVar[Mapping[str, int]]

    def __init_subclass__(
        cls, *, dataset: str | None = None, name: str | None = None, **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        if dataset is not None:
            for attribute, value in json.loads(_read("facts.json"))[name or dataset].items():
                setattr(cls, attribute, tuple(value) if isinstance(value, list) else value)
            (facts,) = read_facts("cards.tsv", dataset)
            citation = re.search(rf"(?ms)^@\w+\{{{dataset},$.*?^\}}$", _read("citations.bib"))
            cls.card = DatasetCard(
                name or dataset,
                "1.0.0",
                facts["license"],
                facts["homepage"],
                citation and citation[0],
            )
            cls.sources = tuple(map(_define_source, read_facts("sources.tsv", dataset)))
            cls.splits = tuple(cls.n_samples)

    def check_labels(self, source: str, labels: npt.NDArray[Any]) -> None:
        """Check that labels are positions in ``class_names``.

        Raises:
            DatasetFileCorruptError: a label is not; the message names ``source``.
        """
        n_classes = len(self.class_names or ())
        if len(labels) and not (labels.min() >= 0 and labels.max() < n_classes):
            raise DatasetFileCorruptError(
                f"{source!r} has classes from {labels.min()} to {labels.max()}, expected 0 to {n_classes - 1}. Fetch it again"
            )

    def check_count(self, source: str, split: str, n_samples: int) -> None:
        """Check the number of samples of a split.

        Raises:
            DatasetFileCorruptError: the number differs from ``n_samples``; the message names ``source``.
        """
        if n_samples != self.n_samples[split]:
            raise DatasetFileCorruptError(
                f"{source!r} holds {n_samples:,} samples of {split!r}, expected {self.n_samples[split]:,}. "
                f"Fetch it again, or set n_samples in a class derived from {type(self).__name__} if the file is another one"
            )


def read_facts(table: str, dataset: str) -> Iterator[Mapping[str, str]]:
    """Return the rows of a dataset in ``cards.tsv`` or ``sources.tsv``; its ``published by`` is who publishes the digest."""
    return (
        row
        for row in csv.DictReader(_read(table).splitlines(), delimiter="\t")
        if row["dataset"] == dataset
    )


def _define_source(row: Mapping[str, str]) -> ResourceDefinition:
    first, *mirrors = row["URLs"].split()
    size = int(row["bytes"]) if row["bytes"] else None
    return ResourceDefinition(
        row["identifier"], first, sha256=row["sha256"], size=size, mirrors=tuple(mirrors)
    )


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
