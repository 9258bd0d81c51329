"""Checks that each split of a dataset opens, before the dataset counts as ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from data_stack.dataset.class_lists import check_class_numbers, known_classes
from data_stack.exception import (
    MissingDependencyError,
    PreparationError,
    StorageError,
    describe_error,
)
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.noted_resources import NotedResources
from data_stack.factories.prepared import Superseded
from data_stack.factories.resource_record import ResourceRecord
from data_stack.factories.stored import StoredDataset
from data_stack.util.logger import logger


@dataclass(frozen=True, slots=True)
class OpenedSplit:
    """What was found out by opening a split.

    Attributes:
        names_read: the resources that ``open()`` has read.
        classes: the classes of the targets, in the order of their numbers, as far as the iterator
            knows them.
    """

    names_read: tuple[str, ...] = ()
    classes: Sequence[Any] = ()


class OpeningChecks:
    """Opens the splits of a dataset as its users will.

    Args:
        stored: the dataset in its store.
        factory: the author's.
    """

    #: The dataset in its store.
    _stored: StoredDataset

    #: The author's factory.
    _factory: Any

    #: What the author declares.
    _definition: DatasetDefinition

    #: The name of the dataset, for messages.
    _name: str

    def __init__(self, stored: StoredDataset, factory: Any) -> None:
        self._stored = stored
        self._factory = factory
        self._definition = stored.definition
        self._name = stored.definition.card.name

    def check(self, records: list[ResourceRecord]) -> list[str]:
        """Open each split, and read its first and last sample.

        Returns:
            The names of the resources that ``open()`` has read.

        Raises:
            PreparationError: a split cannot be opened, or its classes contradict those of another
                split.
            Superseded: another process replaces the resources.
        """
        names_read = dict[str, None]()
        class_lists: dict[str, Sequence[Any]] = {}
        if self._factory.class_names is not None:
            class_lists["class_names of the dataset"] = self._factory.class_names
        for split in self._definition.splits:
            try:
                opened = self.read_ends(split, records)
                names_read.update(dict.fromkeys(opened.names_read))
                class_lists[f"split {split!r}"] = opened.classes
                check_class_numbers(class_lists)
            except MissingDependencyError as error:
                # Other machines may have the package.
                logger.warning(
                    "dataset %r: could not check that split %r opens: %s",
                    self._name,
                    split,
                    error,
                )
            except Exception as error:
                if not all(self._stored.holds(record) for record in records):
                    # Another process that works without a lease is replacing it.
                    raise Superseded from error
                if isinstance(error, StorageError):
                    raise
                raise PreparationError(
                    f"split {split!r} cannot be opened: open() of {self._definition.factory}, or "
                    f"reading its first or last sample, failed with {describe_error(error)}\n"
                    f"Fix open() and prepare {self._name} again; if preprocess() stays as it is, "
                    f"keep_steps=True (`data-stack prepare --keep-steps`) reuses the prepared "
                    f"resources."
                ) from error
        return list(names_read)

    def read_ends(self, split: str, records: list[ResourceRecord]) -> OpenedSplit:
        """Read the first and last sample of a split, unless ``open()`` has a required option."""
        if any(self._definition.options.values()):
            return OpenedSplit()
        resources = NotedResources(self._stored.connector, self._definition.folder, records)
        iterator = self._definition.open_split(self._factory, split, resources, {})
        # Now, as the first question for the number of samples may read something, too.
        names_read = tuple(resources.names_read())
        n_samples = len(iterator)
        if n_samples == 0:
            return OpenedSplit(names_read)
        for position in {0, n_samples - 1}:
            self._definition.check_sample(iterator[position])
        return OpenedSplit(names_read, known_classes(iterator))
