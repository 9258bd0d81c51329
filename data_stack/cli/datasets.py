"""What the commands do with datasets, apart from printing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from data_stack.dataset.declarative import DatasetFactory, PreparationReport, dataset_folder
from data_stack.exception import (
    ConfigError,
    DatasetNotFoundError,
    PluginError,
)
from data_stack.plugins.manager import default_manager
from data_stack.plugins.record import DATASETS_GROUP, PluginRecord
from data_stack.repository.inventory import take_inventory
from data_stack.repository.repository import DatasetDescription, default_repository

if TYPE_CHECKING:
    from PIL.Image import Image

    from data_stack.dataset.engine import PreparationEngine
    from data_stack.dataset.factory import BaseDatasetFactory
    from data_stack.io.storage_connectors import StorageConnector

__all__ = [
    "Dataset",
    "engine_of",
    "import_dataset",
    "list_installed",
]


@dataclass(frozen=True)
class Dataset:
    """An installed dataset and the store to keep it in.

    Attributes:
        name: what it was asked for by.
        factory: makes its iterators; a DatasetFactory, or one in the original's manner.
        connector: the store.
        description: what its author says of it.
    """

    name: str
    factory: BaseDatasetFactory
    connector: StorageConnector
    description: DatasetDescription

    @classmethod
    def find(cls, name: str, connector: StorageConnector) -> Dataset:
        """Import the plugin of a dataset; nothing is prepared.

        Raises:
            DatasetNotFoundError, PluginError: there is none of that name, or its plugin is broken.
        """
        repository = default_repository()
        description = repository.describe(name)
        return cls(name, repository.get_factory(name, connector), connector, description)

    @property
    def declared(self) -> DatasetFactory | None:
        """The factory, if it is one that declares what it is made of."""
        return self.factory if isinstance(self.factory, DatasetFactory) else None

    def facts(self) -> dict[str, Any]:
        """All that is known of the dataset before any byte of it is there, as plain JSON data."""
        factory = self.declared
        described = asdict(self.description)
        card = {key: described[key] for key in ("version", "license", "homepage", "citation")} if factory is not None else None
        sources = factory.sources if factory is not None else ()
        return {
            "name": self.name,
            "card": card,
            "description": self.description.description,
            "factory": f"{type(self.factory).__module__}:{type(self.factory).__qualname__}",
            "distribution": f"{self.description.distribution} {self.description.distribution_version}",
            "splits": list(self.description.splits) if factory is not None else None,
            "options": list(self.description.options),
            "sources": [
                {
                    "identifier": self.name_in_store(source.identifier),
                    "size": source.size,
                    "sha256": source.sha256,
                    "md5_sum": source.md5_sum,
                    "places": list(source.sources),
                }
                for source in sources
            ],
            "prepared": factory.is_ready() if factory is not None else None,
            "reason": factory.readiness().reason if factory is not None else None,
            "stored_versions": take_inventory(self.connector, [factory.card.name]).prepared_versions.get(factory.card.name, [])
            if factory is not None
            else [],
            "storage": repr(self.connector),
        }

    def name_in_store(self, name: str) -> str:
        """The identifier in the store of a resource that the author names ``name``."""
        return f"{dataset_folder(self.declared)}/{name}" if self.declared is not None else name

    def prepare(
        self, engine: PreparationEngine | None = None, *, again: bool = False, keep_steps: bool = False
    ) -> PreparationReport:
        """Make the dataset ready.

        Args:
            engine: prepares its shards; None: this process does.
            again: also if it is ready.
            keep_steps: as for :meth:`DatasetFactory.prepare`.
        """
        if self.declared is None:
            raise ConfigError(
                f"dataset {self.name!r} is written in the original's manner ({type(self.factory).__qualname__}) and cannot be "
                f"prepared ahead of time; loading a split prepares it, e.g. `data-stack report {self.name} --split train`"
            )
        return self.declared.prepare(engine=engine, again=again, keep_steps=keep_steps)

    def size_in_store(self) -> int | None:
        """Bytes of the prepared resources; None if that is not known."""
        manifest = self.declared.manifest() if self.declared is not None else None
        return None if manifest is None else manifest.size

    def contact_sheet(self, split: str | None, options: Mapping[str, Any], **how: Any) -> Image:
        """Prepare the dataset and draw samples of a split, the first one if none is named."""
        from data_stack.display.contact_sheet import contact_sheet

        loaded = default_repository().load(self.name, split, self.connector, **options)
        return contact_sheet(next(iter(loaded.values())) if isinstance(loaded, dict) else loaded, **how)


def list_installed() -> list[PluginRecord]:
    """All datasets that plugins name, usable or not; nothing is imported."""
    return [record for record in default_manager().records() if record.group == DATASETS_GROUP]


def import_dataset(
    identifier: str,
    path: str,
    connector: StorageConnector,
    *,
    sha256: str | None,
    md5_sum: str | None,
    unverified: bool,
) -> dict[str, Any]:
    """Store a file under ``identifier`` after holding it against the digest that is known of it.

    Raises:
        ConfigError: no digest is known, none was given, and ``unverified`` is false.
        ChecksumMismatchError: it is another file.
    """
    from data_stack.io.identifiers import check_identifier
    from data_stack.io.resource_definition import ResourceDefinition
    from data_stack.io.retriever import import_file

    name = check_identifier(identifier).partition("/")[0]
    known: dict[str, ResourceDefinition] = {}
    with contextlib.suppress(DatasetNotFoundError, PluginError):
        dataset = Dataset.find(name, connector)
        if dataset.declared is not None:
            known = {dataset.name_in_store(source.identifier): source for source in dataset.declared.sources}
    source = known.get(identifier, ResourceDefinition(identifier, path))
    definition = replace(source, identifier=identifier, source=path, mirrors=())
    if not unverified and not any((definition.sha256, definition.md5_sum, sha256, md5_sum)):
        raise ConfigError(
            f"no digest is known of {identifier!r}; known are those of: {', '.join(known) or f'nothing in a dataset {name!r}'}. "
            f"Give --sha256 or --md5 as its publisher states it, or --unverified to store it as it is"
        )
    stored = import_file(definition, path, connector, sha256=sha256, md5_sum=md5_sum)
    return {
        "identifier": identifier,
        "path": os.path.abspath(path),
        "storage": repr(connector),
        "size": stored.size,
        "sha256": stored.sha256,
        "verified": stored.verified,
    }


def engine_of(kind: str | None, n_processes: int | None, master: str | None) -> PreparationEngine | None:
    """The engine that the options of a command ask for; None if they ask for none.

    Args:
        kind: ``"processes"``, or an engine of a plugin such as ``"spark"``; None: as the other options have it.
        n_processes: of this machine.
        master: of a cluster.

    Raises:
        ConfigError: the options contradict each other, or there is no such engine.
    """
    kind = kind or ("spark" if master is not None else "processes" if n_processes is not None else None)
    if kind is None:
        return None
    if kind == "processes":
        if master is not None:
            raise ConfigError("--master is of a Spark cluster; leave it out, or use --engine spark")
        from data_stack.distributed import ProcessEngine

        return ProcessEngine(n_processes)
    if n_processes is not None:
        raise ConfigError("--processes are those of this machine; leave it out, or use --engine processes")
    engines = default_manager().engines()
    if kind not in engines:
        known = ", ".join(["processes", *sorted(engines)])
        hint = ": the package datastack-spark brings it, plugins/spark in a clone of data_stack" if kind == "spark" else ""
        raise ConfigError(f"there is no engine {kind!r:.60}{hint}; there are: {known}")
    return engines[kind](master, attempts=3)
