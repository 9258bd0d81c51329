"""Finds the datasets that agents name, within what the user allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from data_stack.agents.limits import Deadline
from data_stack.agents.permissions import Permissions
from data_stack.agents.references import DatasetReference, parse_reference
from data_stack.agents.stores import NamedStore
from data_stack.agents.timed import TimedDatasetIterator
from data_stack.dataset.iterator import DatasetIteratorIF, InformedDatasetIterator
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.exception import ConfigError, DatasetNotFoundError, PreparationError
from data_stack.factories.catalogue import CatalogueName
from data_stack.factories.declarative import DatasetFactory
from data_stack.io.folder import Folder, ListedFolder
from data_stack.io.identifiers import is_identifier
from data_stack.io.location import Location, location_of
from data_stack.plugins.manager import default_manager
from data_stack.repository.dataset_names import DatasetName
from data_stack.repository.missing_datasets import explain_scheme
from data_stack.repository.named_dataset import NamedDataset
from data_stack.repository.places import Place
from data_stack.repository.repository import Resolved, default_repository
from data_stack.stores.inventory import take_inventory
from data_stack.util.suggestions import did_you_mean

#: The split of a dataset without splits.
ONLY_SPLIT = "all"


@dataclass(frozen=True)
class FoundDataset:
    """A dataset that an agent named; nothing of it is prepared or read yet.

    Attributes:
        reference: what the agent wrote.
        store: where it is kept.
        dataset: the dataset of an installed package or a catalogue, or files of the store.
        permissions: what the user allows.
    """

    reference: DatasetReference
    store: NamedStore
    dataset: Resolved
    permissions: Permissions

    @property
    def is_ready(self) -> bool:
        """Whether the samples can be read without preparing the dataset."""
        if isinstance(self.dataset, Place):
            return True
        factory = self.dataset.factory
        # A factory of the original DataStack does not say what it will do.
        return isinstance(factory, DatasetFactory) and factory.is_ready()

    @property
    def reason(self) -> str | None:
        """Why a dataset that is not ready is not; None if nothing of it is stored."""
        if isinstance(self.dataset, Place):
            return None
        factory = self.dataset.factory
        if not isinstance(factory, DatasetFactory):
            return "its factory, of the original DataStack, may download and write at each use"
        return factory.readiness().reason

    def advice(self) -> str:
        """Return how the user can have the dataset prepared."""
        advice = (
            f"The user can run `data-stack prepare {self.reference.name}` with the store "
            f"{self.store}, or start this server with --allow-prepare"
        )
        if not self.permissions.download:
            advice += ", and with --allow-download if its sources must be downloaded"
        return advice

    def check_ready(self) -> None:
        """Check that the samples can be read, or that the user allows to prepare them.

        Raises:
            PreparationError: the dataset is not prepared, and this server must not prepare it.
        """
        if self.is_ready or self.permissions.prepare:
            return
        reason = ""
        if self.reason is not None:
            reason = f" ({self.reason})"
        raise PreparationError(
            f"dataset {self.reference.text!r} is not prepared in {self.store}{reason}, and this "
            f"server only reads. {self.advice()}"
        )

    def load(self, split: str | None, deadline: Deadline) -> dict[str, DatasetIteratorIF]:
        """Open the splits, or the one that is named; prepare the dataset first if that is allowed.

        Args:
            split: its name, or an expression such as ``"train[:100]"``; None for all splits.
            deadline: after it, reading the samples raises an error.

        Returns:
            The iterators by the names of their splits, in the dataset's order.

        Raises:
            PreparationError: the dataset is not prepared, and this server must not prepare it.
            UnknownSplitError: there is no such split.
        """
        self.check_ready()
        deadline.check()
        loaded = self.dataset.load(split, progress=False)
        if not isinstance(loaded, Mapping):
            loaded = {split or ONLY_SPLIT: loaded}
        timed: dict[str, DatasetIteratorIF] = {}
        for name, iterator in loaded.items():
            timed[str(name)] = _with_deadline(as_iterator(iterator), deadline)
        return timed

    def load_one(self, split: str | None, deadline: Deadline) -> tuple[str, DatasetIteratorIF]:
        """Open one split: the named one, or else the first.

        Arguments and errors are those of :meth:`load`.
        """
        if split is None and isinstance(self.dataset, NamedDataset) and self.dataset.splits:
            split = self.dataset.splits[0]
        splits = self.load(split, deadline)
        for name, iterator in splits.items():
            return name, iterator
        raise ConfigError(f"dataset {self.reference.text!r} has no splits")


def _with_deadline(iterator: DatasetIteratorIF, deadline: Deadline) -> DatasetIteratorIF:
    """Return the samples until a deadline, with the meta of the iterator if it has one."""
    timed = TimedDatasetIterator(iterator, deadline)
    meta: Any = getattr(iterator, "dataset_meta", None)
    if meta is None:
        return timed
    return InformedDatasetIterator(timed, meta)


class DatasetFinder:
    """Finds datasets by the names that agents write.

    No name leads to a path, to a URL, or to a store that the user did not name.

    Args:
        stores: the stores by name; datasets that are named without a store are kept in the first.
        permissions: what the user allows.
    """

    #: The stores by name.
    _stores: Mapping[str, NamedStore]

    #: What the user allows.
    _permissions: Permissions

    def __init__(self, stores: Mapping[str, NamedStore], permissions: Permissions) -> None:
        self._stores = stores
        self._permissions = permissions

    def installed_names(self) -> list[str]:
        """Return the names of installed datasets, sorted; none if the user does not allow them."""
        if not self._permissions.installed:
            return []
        return default_repository().list()

    def find(self, name: object) -> FoundDataset:
        """Find a dataset.

        Args:
            name: what an agent wrote, see :func:`~data_stack.agents.references.parse_reference`.

        Raises:
            ConfigError: it is a path or a URL, or what the user does not allow.
            DatasetNotFoundError: there is no such dataset.
            PluginError: its plugin is broken.
        """
        reference = parse_reference(name, self._stores)
        if reference.store is None:
            store = next(iter(self._stores.values()))
        else:
            store = self._stores[reference.store]

        dataset: Resolved
        # Only a name that somebody provides is resolved: the error for any other one would say
        # whether a file of this name lies in the current folder.
        if not reference.is_whole_store and self._is_provided(reference.name):
            connector = store.connector if self._permissions.prepare else store.reader
            dataset = default_repository().resolve(reference.name, connector)
        elif reference.store is None:
            raise self._not_found(reference)
        elif reference.is_whole_store:
            dataset = _whole_store(store)
        else:
            self._check_plugin(reference.name, store)
            location = location_of((store.reader, reference.name)).listed()
            dataset = Place(reference.text, location)
            if not location.is_file() and not location.is_folder():
                raise self._not_found(reference)
        return FoundDataset(reference, store, dataset, self._permissions)

    def _is_provided(self, name: str) -> bool:
        """Return whether a name is that of an installed dataset, or of one of a catalogue.

        Raises:
            ConfigError: it is one of a catalogue, and the user does not allow to ask catalogues.
        """
        if not self._permissions.installed:
            return False
        plain_name = DatasetName.parse(name).plain
        known_names = default_repository().list()
        if name in known_names or plain_name in known_names:
            return True
        plugins = default_manager()
        if plugins.providers(name) or plugins.providers(plain_name):
            return True

        name_in_catalogue = CatalogueName.parse(name)
        if name_in_catalogue is None:
            return False
        if name_in_catalogue.scheme not in plugins.provided("catalogues"):
            return False
        if not self._permissions.download:
            raise ConfigError(
                f"{name!r:.80} is a dataset of a catalogue, which is asked over the network. The "
                f"user can start this server with --allow-download"
            )
        return True

    def _check_plugin(self, name: str, store: NamedStore) -> None:
        """Check that a name is not that of a prepared dataset whose plugin is missing.

        Raises:
            DatasetNotFoundError: it is. Its files mean nothing without the plugin.
        """
        folder = name.replace("@", "/")
        if not is_identifier(f"{folder}/manifest.json"):
            return
        inventory = take_inventory(store.reader, [folder])
        for version in inventory.versions.values():
            if version.manifest is None:
                continue
            package = version.manifest.distribution or "a package that it does not name"
            raise DatasetNotFoundError(
                f"{store} has {version.folder!r}, a prepared dataset of {package}, which this "
                f"server cannot open: the package is not installed, or the user has started the "
                f"server with --no-installed. list_store lists its resources"
            )

    def _not_found(self, reference: DatasetReference) -> DatasetNotFoundError:
        """Return the error of a name that nothing has."""
        names = self.installed_names()
        suggestion = did_you_mean(reference.name, names)
        if reference.store is not None:
            place = f"{self._stores[reference.store]} has no dataset, file or folder"
            return DatasetNotFoundError(
                f"{place} {reference.name!r:.80}{suggestion}; list_datasets and list_store say "
                f"what there is"
            )
        scheme_advice = ""
        if self._permissions.installed:
            scheme_advice = explain_scheme(reference.name, default_manager())
        return DatasetNotFoundError(
            f"no dataset {reference.name!r:.80} is installed{suggestion}{scheme_advice}; "
            f"list_datasets says what there is. What lies in a store is named STORE:NAME"
        )


def _whole_store(store: NamedStore) -> Place:
    """Return all files of a store as one dataset."""
    contents = ListedFolder.of(Folder(store.reader))
    # Nothing in the store has this name, which only messages show.
    location = Location(Folder(store.reader), f"the store {store.name}", contents)
    return Place(f"{store.name}:.", location)
