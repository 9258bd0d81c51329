"""A dataset of the bytes of files that its class names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from data_stack import DatasetCard, DatasetFactory
from data_stack.dataset.iterator import SequenceDatasetIterator


class Written(DatasetFactory):
    """Writes each file in a step of its own; samples of a split are the bytes of the file of its
    name.

    Attributes:
        files: content by name.
        n_steps: how many steps were done.
    """

    card = DatasetCard("written", "1.0.0")
    splits: ClassVar[Sequence[str]] = ("all",)
    files: ClassVar[Mapping[str, bytes]] = {"all": b"123"}
    n_steps: ClassVar[int] = 0

    def preprocess(self, raw: Any, prepared: Any) -> None:
        for name in prepared.steps(sorted(self.files)):
            Written.n_steps += 1
            with prepared.create(name) as file:
                file.write(self.files[name])

    def open(self, split: str, prepared: Any) -> Any:
        with prepared[split] as file:
            return SequenceDatasetIterator([list(file.read())])
