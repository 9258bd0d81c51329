"""The work of the commands on datasets."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from data_stack.exception import ConfigError, DatasetNotFoundError, PluginError
from data_stack.factories.declarative import DatasetFactory, PreparationReport, dataset_folder
from data_stack.io.redaction import shorten
from data_stack.plugins.manager import default_manager
from data_stack.repository.repository import default_repository
from data_stack.stores.inventory import take_inventory
from data_stack.util.suggestions import did_you_mean

if TYPE_CHECKING:
    from data_stack.factories.engine import PreparationEngine
    from data_stack.io.storage_connectors import StorageConnector


def collect_facts(name: str, connector: StorageConnector) -> dict[str, Any]:
    """Collect a dataset's description and its state in a store, as plain JSON data.

    Raises:
        DatasetNotFoundError, PluginError: no dataset has this name, or its plugin is broken.
    """
    dataset = default_repository().resolve(name, connector)
    description, factory = dataset.describe(), dataset.factory
    facts = asdict(description)
    known = {
        "name": name,
        "card": None,
        "description": description.description,
        "factory": f"{type(factory).__module__}:{type(factory).__qualname__}",
        "distribution": f"{description.distribution} {description.distribution_version}",
        "splits": None,
        "options": list(description.options),
        "sources": [],
        "prepared": None,
        "reason": None,
        "stored_versions": [],
        "storage": repr(connector),
    }
    if not isinstance(factory, DatasetFactory):
        return known
    versions = take_inventory(connector, [factory.card.name]).prepared_versions
    return known | {
        "card": {key: facts[key] for key in ("version", "license", "homepage", "citation")},
        "splits": list(description.splits),
        "sources": [
            {
                "identifier": f"{dataset_folder(factory)}/{source.identifier}",
                "size": source.size,
                "sha256": source.sha256,
                "md5_sum": source.md5_sum,
                "places": [shorten(os.fsdecode(each)) for each in source.sources],
            }
            for source in factory.sources
        ],
        "prepared": factory.is_ready(),
        "reason": factory.readiness().reason,
        "stored_versions": versions.get(factory.card.name, []),
    }


def prepare_dataset(
    name: str, connector: StorageConnector, engine: PreparationEngine | None, *, again: bool, keep_steps: bool
) -> tuple[PreparationReport, int | None]:
    """Prepare a dataset; return the report, and the size of the prepared resources in bytes, if known.

    Raises:
        ConfigError: the dataset is a legacy factory.
    """
    dataset = default_repository().resolve(name, connector)
    dataset.check_licence()
    factory = dataset.factory
    if not isinstance(factory, DatasetFactory):
        raise ConfigError(
            f"dataset {name!r} is a legacy factory ({type(factory).__qualname__}) and cannot be prepared ahead of time; "
            f"loading a split prepares it, e.g. `data-stack report {name} --split train`"
        )
    report = factory.prepare(engine=engine, again=again, keep_steps=keep_steps)
    manifest = factory.manifest()
    return report, None if manifest is None else manifest.size


def import_dataset(
    identifier: str,
    path: str,
    connector: StorageConnector,
    *,
    sha256: str | None,
    md5_sum: str | None,
    unverified: bool,
) -> dict[str, Any]:
    """Store a file under ``identifier`` after checking its digest.

    Raises:
        ConfigError: the digest of the file is unknown, and ``unverified`` is false.
        ChecksumMismatchError: the file has another digest.
    """
    from data_stack.io.identifiers import check_identifier
    from data_stack.io.resource_definition import ResourceDefinition
    from data_stack.io.retriever import import_file

    name = check_identifier(identifier).partition("/")[0]
    known: dict[str, ResourceDefinition] = {}
    with contextlib.suppress(DatasetNotFoundError, PluginError):
        factory = default_repository().get_factory(name, connector)
        if isinstance(factory, DatasetFactory):
            known = {f"{dataset_folder(factory)}/{source.identifier}": source for source in factory.sources}
    source = known.get(identifier, ResourceDefinition(identifier, path))
    definition = replace(source, identifier=identifier, source=path, mirrors=())
    if not unverified and not any((definition.sha256, definition.md5_sum, sha256, md5_sum)):
        raise ConfigError(
            f"the digest of {identifier!r} is unknown; dataset {name!r} defines: {', '.join(known) or 'nothing'}. "
            f"Pass --sha256 or --md5 as its publisher states it, or --unverified to store it without a check"
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
    """The engine that the options of a command choose; None without such options.

    Args:
        kind: ``"processes"``, or an engine of a plugin such as ``"spark"``; None: implied by the other options.
        n_processes: number of processes on this machine.
        master: URL of a cluster.

    Raises:
        ConfigError: the options contradict each other, or the engine is unknown.
    """
    kind = kind or ("spark" if master is not None else "processes" if n_processes is not None else None)
    if kind is None:
        return None
    if kind == "processes":
        if master is not None:
            raise ConfigError("--master requires --engine spark")
        from data_stack.distributed import ProcessEngine

        return ProcessEngine(n_processes)
    if n_processes is not None:
        raise ConfigError("--processes requires --engine processes")
    engines = default_manager().engines()
    if kind not in engines:
        known = ["processes", *sorted(engines)]
        hint = "; install datastack-spark (plugins/spark in a clone of data_stack)" if kind == "spark" else ""
        raise ConfigError(f"unknown engine {kind!r:.60}{did_you_mean(kind, known)}{hint}; known engines: {', '.join(known)}")
    return engines[kind](master, attempts=3)
