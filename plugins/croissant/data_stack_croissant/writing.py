"""``data_stack.to_croissant``: an installed dataset as a Croissant document."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from data_stack import DatasetDescription, DatasetFactory, ResourceDefinition, default_repository
from data_stack.exception import ConfigError
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.manifest import Manifest, SourceRecord
from data_stack.factories.prepared import Resources
from data_stack.repository.default_storage import Storage
from data_stack.repository.licenses import spdx_problem
from data_stack_croissant.split_records import SPLIT_NAME_ID, describe_split
from data_stack_croissant.vocabulary import (
    CONFORMS_TO,
    CONTEXT,
    make_file,
    make_inline_records,
)


def to_croissant(name: str, storage: Storage | None = None, **config: Any) -> dict[str, Any]:
    """Describe a dataset in Croissant 1.1.

    :func:`data_stack.to_croissant` has the whole description.

    Args:
        name: name of the dataset, see :func:`data_stack.load`.
        storage: where the dataset is kept; None for the default store.
        config: options of the dataset.

    Returns:
        Plain JSON data. It has no times, so that equal datasets have equal documents.

    Raises:
        DatasetNotFoundError: no dataset has that name.
        PluginError: the plugin of the dataset is broken.
        ConfigError: the factory of the dataset declares no card; or a source declares no digest,
            and the dataset is not prepared, which would compute it.
    """
    dataset = default_repository().resolve(name, storage)
    description = dataset.describe()
    factory = dataset.factory
    if not isinstance(factory, DatasetFactory):
        raise ConfigError(
            f"dataset {name!r} is a legacy factory ({type(factory).__qualname__}) without a card, "
            f"which Croissant needs; derive it from DatasetFactory"
        )
    manifest = factory.manifest()
    document = _describe_card(factory, description)
    document["distribution"] = _describe_sources(factory, manifest)
    if manifest is None:
        return document

    document["distribution"] += _describe_prepared(manifest)
    folder = DatasetDefinition(factory, DatasetFactory).folder
    resources = Resources(factory.storage_connector, folder, manifest.prepared)
    record_sets: list[dict[str, Any]] = []
    for split in description.splits:
        iterator = dataset.load(split, **config)
        nodes = describe_split(split, description.splits, iterator, resources)
        document["distribution"] += nodes.file_sets
        record_sets += nodes.record_sets
    if record_sets:
        document["recordSet"] = [_list_splits(description.splits), *record_sets]
    return document


def _list_splits(splits: Sequence[str]) -> dict[str, Any]:
    """Return the record set of the splits' names, to which a field of each split refers."""
    return make_inline_records(
        "dataset_splits",
        "dataset_splits",
        [{"name": split} for split in splits],
        dataType="cr:Split",
        key={"@id": SPLIT_NAME_ID},
    )


def _describe_card(factory: DatasetFactory, description: DatasetDescription) -> dict[str, Any]:
    """Return the document with the facts of the card of a dataset, without its files."""
    card = factory.card
    facts = {
        "name": card.name,
        "description": description.description or card.name,
        "conformsTo": CONFORMS_TO,
        "version": card.version,
        "license": _license_url(card.license),
        "url": card.homepage,
        "citeAs": card.citation,
    }
    known_facts = {key: fact for key, fact in facts.items() if fact}
    return {"@context": copy.deepcopy(CONTEXT), "@type": "sc:Dataset", **known_facts}


def _license_url(expression: str | None) -> str | None:
    """Return the URL of SPDX for an identifier of SPDX; any other text as it is."""
    if expression is None:
        return None
    is_identifier = re.fullmatch(r"[A-Za-z0-9.+-]+", expression, re.ASCII) is not None
    if is_identifier and spdx_problem(expression) is None:
        return f"https://spdx.org/licenses/{expression}.html"
    return expression


def _describe_sources(factory: DatasetFactory, manifest: Manifest | None) -> list[dict[str, Any]]:
    """Return a FileObject for each source of a dataset.

    Args:
        factory: the factory of the dataset.
        manifest: what was prepared; None if the dataset is not prepared.
    """
    retrieved: dict[str, SourceRecord] = {}
    if manifest is not None:
        retrieved = {record.identifier: record for record in manifest.sources}
    nodes = []
    for source in sorted(factory.sources, key=lambda source: source.identifier):
        record = retrieved.get(source.identifier)
        nodes.append(_describe_source(source, record, factory.card.name))
    return nodes


def _describe_source(
    source: ResourceDefinition, record: SourceRecord | None, dataset_name: str
) -> dict[str, Any]:
    """Return the FileObject of a source.

    Args:
        source: the definition of the source.
        record: what was retrieved; None if the dataset is not prepared.
        dataset_name: name of the dataset, for messages.

    Raises:
        ConfigError: no digest of the source is known.
    """
    sha256 = source.sha256
    size = source.size
    if record is not None:
        if not sha256:
            sha256 = record.sha256
        if record.size is not None:
            size = record.size
    if not sha256 and not source.md5_sum:
        raise ConfigError(
            f"Croissant needs a digest of the source {source.identifier!r} of dataset "
            f"{dataset_name!r}: prepare the dataset first, which computes it, or declare sha256 in "
            f"its ResourceDefinition"
        )
    facts = {
        "contentUrl": _public_url_of(source),
        "sha256": sha256,
        "md5": None if sha256 else source.md5_sum,
        "contentSize": f"{size} B" if size else None,
    }
    known_facts = {key: fact for key, fact in facts.items() if fact}
    return make_file(source.identifier, known_facts)


def _public_url_of(source: ResourceDefinition) -> str:
    """Return the first URL of a source on a web server.

    Without one, it is the identifier of the source: a document shows no path of this machine.
    """
    for place in source.sources:
        if re.match("https?:", place):
            return place
    return quote(source.identifier)


def _describe_prepared(manifest: Manifest) -> list[dict[str, Any]]:
    """Return a FileObject for each prepared resource that is no source."""
    source_identifiers = {record.identifier for record in manifest.sources}
    files = []
    for record in sorted(manifest.prepared, key=lambda record: record.identifier):
        if record.identifier not in source_identifiers:
            facts = {
                "contentUrl": quote(record.identifier),
                "sha256": record.sha256,
                "contentSize": f"{record.size} B",
            }
            files.append(make_file(record.identifier, facts))
    return files
