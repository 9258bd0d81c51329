"""The commands that find datasets: list, search, info."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from data_stack.cli.group import cli
from data_stack.cli.names import find_place, name_argument, repository
from data_stack.cli.output import print_result, whole_table
from data_stack.cli.settings import Settings
from data_stack.exception import UnsupportedStorageOperationError
from data_stack.show.markup import Facts, size_text

if TYPE_CHECKING:
    from data_stack.factories.declarative import DatasetFactory
    from data_stack.io.resource_definition import ResourceDefinition
    from data_stack.io.storage_connectors import StorageConnector

# ---------------------------------------------------------------------- list


@cli.command("list")
def list_datasets(settings: Settings) -> None:
    """List the installed datasets.

    Shows which versions are prepared, if the store can list its resources. Imports no plugin.
    """
    from data_stack.plugins.manager import default_manager
    from data_stack.plugins.record import DATASETS_GROUP

    connector = settings.existing_connector(may_be_new=True)
    records = [record for record in default_manager().records() if record.group == DATASETS_GROUP]
    names = sorted({_without_version(record.name) for record in records})
    prepared_versions = _prepared_versions(connector, names)

    rows: list[dict[str, Any]] = []
    cells: list[Sequence[str]] = []
    for record in records:
        if record.name != _without_version(record.name):
            continue  # an old version of a dataset that is listed by its name
        versions = prepared_versions.get(record.name, [])
        row = asdict(record)
        row["prepared"] = len(versions) > 0
        row["stored_versions"] = versions
        rows.append(row)

        distribution = f"{record.distribution} {record.version}"
        prepared = ", ".join(versions) or "no"
        problem = "" if record.error is None else record.state
        cells.append((record.name, distribution, prepared, problem))
    print_result(settings, rows, whole_table(("name", "from", "prepared", ""), cells))


def _without_version(name: str) -> str:
    """Return ``"wine"`` for ``"wine"`` and for ``"wine@1.0"``."""
    return name.partition("@")[0]


def _prepared_versions(connector: StorageConnector, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the prepared versions of datasets; none if the store cannot list its resources."""
    from data_stack.stores.inventory import take_inventory

    if not names:  # which would mean all datasets of the store
        return {}
    with contextlib.suppress(UnsupportedStorageOperationError):
        return take_inventory(connector, names).prepared_versions
    return {}


# ---------------------------------------------------------------------- search


@cli.command()
@click.argument("terms", metavar="TERM...", nargs=-1, required=True)
@click.option(
    "--catalogue",
    metavar="SCHEME",
    help="Search a catalogue, such as hf, instead; needs the network.",
)
@click.option("--catalogues", is_flag=True, help="Search all installed catalogues instead.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Maximum number of datasets of a catalogue.",
)
def search(
    settings: Settings, terms: tuple[str, ...], catalogue: str | None, catalogues: bool, limit: int
) -> None:
    """Search the installed datasets, or catalogues.

    For example: data-stack search handwritten

    Finds the datasets whose name, description, license and classes contain every TERM. Imports the
    plugins. Without --catalogue or --catalogues it uses no network.
    """
    text = " ".join(terms)
    if catalogue is not None or catalogues:
        _search_catalogues(settings, text, catalogue, limit)
    else:
        _search_installed(settings, text)


def _search_catalogues(settings: Settings, text: str, catalogue: str | None, limit: int) -> None:
    """Print the datasets of a catalogue that match; ``catalogue=None``: of all catalogues."""
    from data_stack.repository.catalogues import search_catalogues

    datasets = search_catalogues(text, catalogue, limit=limit)
    cells = [
        (dataset.name, dataset.title or "-", dataset.license or "-", size_text(dataset.size))
        for dataset in datasets
    ]
    print_result(
        settings,
        [asdict(dataset) for dataset in datasets],
        whole_table(("name", "title", "license", "size"), cells, right=(3,)),
    )


def _search_installed(settings: Settings, text: str) -> None:
    """Print the installed datasets that match."""
    from data_stack.repository.repository import search_datasets

    descriptions = search_datasets(text)
    if not descriptions:
        print_result(settings, [], "no installed dataset matches; `data-stack list` shows all")
        return
    cells = []
    for description in descriptions:
        title = description.description.partition("\n")[0]
        cells.append((description.name, title or "-", description.license or "-"))
    print_result(
        settings,
        [asdict(description) for description in descriptions],
        whole_table(("name", "title", "license"), cells),
    )


# ---------------------------------------------------------------------- info


@cli.command()
@name_argument
def info(settings: Settings, name: str) -> None:
    """Describe a dataset without downloading it.

    Prints description, splits, options, license, and the URLs and checksums of its files. Of a path
    or URL, prints the splits, and the files and folders that are not read.
    """
    place = find_place(settings, name, {})
    if place is None:
        _describe_dataset(settings, name)
        return
    description = repository().describe(place)
    print_result(
        settings,
        asdict(description),
        f"{description.name}\n{description.description}",
        Facts(description.facts()),
    )


def _describe_dataset(settings: Settings, name: str) -> None:
    """Print what is known of an installed dataset, and of its preparation in the store."""
    from data_stack.factories.declarative import DatasetFactory

    connector = settings.existing_connector(may_be_new=True)
    dataset = repository().resolve(name, connector)
    description = dataset.describe()
    factory = dataset.factory
    factory_class = f"{type(factory).__module__}:{type(factory).__qualname__}"

    facts: dict[str, Any] = {
        **asdict(description),
        "factory": factory_class,
        "storage": repr(connector),
    }
    rows = [*description.facts(), ("factory", factory_class)]
    sources: list[dict[str, Any]] = []
    if isinstance(factory, DatasetFactory):
        # Legacy factories say nothing about their preparation and sources.
        preparation = _preparation_facts(factory, connector)
        sources = _facts_of_sources(factory)
        facts |= {**preparation, "sources": sources}
        rows.append(("prepared", _describe_readiness(preparation)))
        rows.append(("stored", ", ".join(preparation["stored_versions"]) or "none"))
    rows.append(("store", repr(connector)))

    title = f"{description.name} {description.version or ''}".rstrip()
    text = f"{title}\n{description.description}".rstrip()
    print_result(settings, facts, text, Facts(rows), *map(_describe_source, sources))


def _preparation_facts(factory: DatasetFactory, connector: StorageConnector) -> dict[str, Any]:
    """Return whether a dataset is prepared, why not, and the versions that are in the store."""
    name = factory.card.name
    stored_versions = _prepared_versions(connector, [name]).get(name, [])
    reason = factory.readiness().reason
    return {
        "prepared": factory.is_ready(),
        "reason": reason,
        "stored_versions": stored_versions,
    }


def _describe_readiness(preparation: dict[str, Any]) -> str:
    """Return ``"yes"``, or ``"no"`` with the reason if it is known."""
    if preparation["prepared"]:
        return "yes"
    if preparation["reason"] is None:
        return "no"
    return f"no: {preparation['reason']}"


def _facts_of_sources(factory: DatasetFactory) -> list[dict[str, Any]]:
    """Return identifier, size, digests and places of each source of a dataset."""
    from data_stack.factories.declarative import DatasetFactory
    from data_stack.factories.definition import DatasetDefinition

    definition = DatasetDefinition(factory, DatasetFactory)
    return [_facts_of_source(source) for source in definition.retrieval_jobs]


def _facts_of_source(source: ResourceDefinition) -> dict[str, Any]:
    """Return identifier, size, digests and places of a source, without credentials."""
    from data_stack.io.redaction import hide_credentials

    return {
        "identifier": source.identifier,
        "size": source.size,
        "sha256": source.sha256,
        "md5_sum": source.md5_sum,
        "places": [hide_credentials(os.fsdecode(place)) for place in source.sources],
    }


def _describe_source(facts: dict[str, Any]) -> str:
    """Return a line with a source's identifier, size and digest, then a line for each place."""
    parts = [facts["identifier"]]
    if facts["size"] is not None:
        parts.append(size_text(facts["size"]))
    if facts["sha256"]:
        parts.append(f"sha256 {facts['sha256']}")
    elif facts["md5_sum"]:
        parts.append(f"md5 {facts['md5_sum']}")
    else:
        parts.append("NO DIGEST")
    return "\n  ".join(["  ".join(parts), *facts["places"]])
