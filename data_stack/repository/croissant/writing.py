"""``data_stack.to_croissant``: an installed dataset as a Croissant document."""

from __future__ import annotations

import copy
import csv
import io
import json
import mimetypes
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from data_stack.dataset.declarative import DatasetFactory, dataset_folder
from data_stack.dataset.iterator import DatasetIteratorIF, column_names
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.manifest import Manifest
from data_stack.dataset.prepared import Resources
from data_stack.dataset.reports.licences import spdx_problem
from data_stack.exception import ConfigError
from data_stack.formats.conversion.source import name_of_position
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.repository.croissant.vocabulary import CONFORMS_TO, CONTEXT, FORMATS, describe_type
from data_stack.repository.default_storage import Storage
from data_stack.repository.repository import DatasetDescription, default_repository
from data_stack.repository.search import keywords_of

__all__ = ["to_croissant"]

_SPLITS = "dataset_splits"
_IDENTIFIER = re.compile(r"[A-Za-z0-9.+-]+", re.ASCII)
_ARCHIVES = {".tgz": "application/x-tar", ".zip": "application/zip", ".tar": "application/x-tar"}


def to_croissant(name: str, storage: Storage | None = None, **config: Any) -> dict[str, Any]:
    """Describe a dataset in Croissant 1.1: its card, sources, prepared files with their digests, splits and columns.

    ::

        Path("croissant.json").write_text(json.dumps(data_stack.to_croissant("digits")))

    Retrieves and prepares nothing; prepared files and columns are described if the dataset is prepared. Their ``contentUrl`` is
    relative to the dataset's folder ``name/version``, next to whose ``manifest.json`` the document belongs. The columns of
    Parquet, CSV and JSON lines files name their column there; columns of other formats, only which files hold them.

    Args:
        name: of the dataset, see :func:`data_stack.load`.
        storage: where the dataset is kept; None for the default store.
        config: options of the dataset.

    Returns:
        Plain JSON data; equal for equal datasets, without times.

    Raises:
        DatasetNotFoundError, PluginError: as for :func:`data_stack.load`.
        ConfigError: its factory declares no card, or a source has no digest and is not prepared, so that none is known.
    """
    repository = default_repository()
    description, factory = repository.describe(name), repository.get_factory(name, storage)
    if not isinstance(factory, DatasetFactory):
        raise ConfigError(
            f"dataset {name!r} is a legacy factory ({type(factory).__qualname__}) without a card, which Croissant needs; "
            f"derive it from DatasetFactory"
        )
    manifest = factory.manifest()
    document = _describe_card(factory, description)
    document["distribution"] = _describe_sources(factory, manifest)
    if manifest is None:
        return document
    known = {each["@id"] for each in document["distribution"]}
    for record in sorted(manifest.prepared, key=lambda each: each.identifier):
        if _id(record.identifier) not in known:
            facts = {"contentUrl": quote(record.identifier), "sha256": record.sha256, "contentSize": f"{record.size} B"}
            document["distribution"].append(_file(record.identifier, facts))
    resources = Resources(factory.storage_connector, dataset_folder(factory), manifest.prepared)
    record_sets = []
    for split in description.splits:
        iterator = repository.load(name, split, storage, **config)
        files, record_set = _describe_split(split, iterator, _files_of(split, description.splits, resources), resources)
        document["distribution"] += files
        record_sets += record_set
    return {**document, "recordSet": [_describe_splits(description.splits), *record_sets]} if record_sets else document


def _describe_card(factory: DatasetFactory, description: DatasetDescription) -> dict[str, Any]:
    licence = factory.card.license
    if licence is not None and _IDENTIFIER.fullmatch(licence) and spdx_problem(licence) is None:
        licence = f"https://spdx.org/licenses/{licence}.html"
    facts = {
        "name": factory.card.name,
        "description": description.description or factory.card.name,
        "conformsTo": CONFORMS_TO,
        "version": factory.card.version,
        "license": licence,
        "url": factory.card.homepage,
        "citeAs": factory.card.citation,
        "keywords": keywords_of(description.distribution),
    }
    return {"@context": copy.deepcopy(CONTEXT), "@type": "sc:Dataset", **{key: fact for key, fact in facts.items() if fact}}


# ---------------------------------------------------------------------- files


def _describe_sources(factory: DatasetFactory, manifest: Manifest | None) -> list[dict[str, Any]]:
    recorded = {} if manifest is None else {each.identifier: each for each in manifest.sources}
    files = []
    for source in sorted(factory.sources, key=lambda each: each.identifier):
        record = recorded.get(source.identifier)
        digests = {"sha256": source.sha256 or (record and record.sha256), "md5": source.md5_sum}
        digest = next(({name: found} for name, found in digests.items() if found), None)
        if digest is None:
            raise ConfigError(
                f"no digest is known of the source {source.identifier!r} of dataset {factory.card.name!r}, and Croissant needs "
                f"one: prepare the dataset first, which computes it, or declare sha256 in its ResourceDefinition"
            )
        size = source.size if record is None or record.size is None else record.size
        facts = {"contentUrl": _public_url(source), **digest, **({} if size is None else {"contentSize": f"{size} B"})}
        files.append(_file(source.identifier, facts))
    return files


def _public_url(source: ResourceDefinition) -> str:
    """Where others find a source; never a path of this machine."""
    return next((place for place in source.sources if re.match("https?:", place)), quote(source.identifier))


def _id(identifier: str) -> str:
    return f"files/{quote(identifier)}"


def _file(identifier: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    path = PurePosixPath(identifier)
    kind, compression = mimetypes.guess_type(identifier, strict=False)
    kind = FORMATS.get(path.suffix) or _ARCHIVES.get(path.suffix) or (kind if compression is None else None)
    kind = kind or (_ARCHIVES[".tar"] if ".tar" in path.suffixes else f"application/{compression or 'octet-stream'}")
    return {"@type": "cr:FileObject", "@id": _id(identifier), "name": path.name, **facts, "encodingFormat": kind}


def _files_of(split: str, splits: Sequence[str], resources: Resources) -> list[str]:
    """The prepared files of a split, by their names; all of them where that does not tell."""
    named = [name for name in sorted(resources) if split in re.split(r"[/._-]", name)]
    return named or [name for name in sorted(resources) if not any(each in re.split(r"[/._-]", name) for each in splits)]


def _columns_in(name: str, resources: Resources) -> dict[str, bool]:
    """The columns of a file with columns, and whether their values are pictures; ``{}`` of any other file."""
    suffix = PurePosixPath(name).suffix
    if suffix not in FORMATS:
        return {}
    with resources[name] as resource:
        if suffix == ".parquet":
            from data_stack.formats.parquet import JpegCodec, ParquetDataset, PngCodec

            fields = ParquetDataset(resource).schema.fields.values()
            return {field.name: isinstance(field.codec, (JpegCodec, PngCodec)) for field in fields}
        line = io.TextIOWrapper(resource, encoding="utf-8", errors="replace").readline()
    found = json.loads(line) if suffix == ".jsonl" else next(csv.reader([line], delimiter="\t" if suffix == ".tsv" else ","), ())
    return dict.fromkeys(found, False)


# ---------------------------------------------------------------------- record sets


def _describe_splits(splits: Sequence[str]) -> dict[str, Any]:
    key = f"{_SPLITS}/name"
    return {
        "@type": "cr:RecordSet",
        "@id": _SPLITS,
        "name": _SPLITS,
        "dataType": "cr:Split",
        "key": {"@id": key},
        "field": [{"@type": "cr:Field", "@id": key, "name": "name", "dataType": "sc:Text"}],
        "data": [{key: split} for split in splits],
    }


def _describe_split(
    split: str, iterator: DatasetIteratorIF, files: Sequence[str], resources: Resources
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The FileSet of a split, if it has several files, and its RecordSet, if it has files and columns."""
    samples, split_id = access_to(iterator), quote(split)
    declared = samples.declare_columns() or {}
    sample: Any = samples.sample(0) if len(iterator) else dict.fromkeys(declared)
    if not isinstance(sample, Mapping):
        values = sample if isinstance(sample, tuple) else (sample,)
        names = column_names(iterator) or [name_of_position(iterator, position) for position in range(len(values))]
        sample = dict(zip(names, values, strict=True))
    tables = {name: columns for name in files if sample.keys() <= (columns := _columns_in(name, resources)).keys()}
    if not files or not sample:
        return [], []
    chosen, file_set = list(tables) or list(files), f"files-of/{split_id}"
    kinds = {_file(name, {})["encodingFormat"] for name in chosen}
    together = {
        "@type": "cr:FileSet",
        "@id": file_set,
        "name": file_set,
        "containedIn": [{"@id": _id(name)} for name in chosen],
        "encodingFormat": kinds.pop() if len(kinds) == 1 else "application/octet-stream",
        "includes": "*",
    }
    source = {"fileObject": {"@id": _id(chosen[0])}} if len(chosen) == 1 else {"fileSet": {"@id": file_set}}
    of_split = {"value": split, "references": {"field": {"@id": f"{_SPLITS}/name"}}}
    fields = [
        {"@type": "cr:Field", "@id": f"{split_id}/dataset_split", "name": "dataset_split", "dataType": "sc:Text", **of_split}
    ]
    for column, value in sample.items():
        is_picture = bool(tables) and next(iter(tables.values()))[column]
        kind = {"dataType": "sc:ImageObject"} if is_picture else describe_type(value, declared.get(column))
        extract = {"column": str(column)} if tables else {"fileProperty": "content"}
        about = {"@type": "cr:Field", "@id": f"{split_id}/{quote(str(column))}", "name": str(column)}
        fields.append({**about, **kind, "source": {**source, "extract": extract}})
    record_set = {"@type": "cr:RecordSet", "@id": split_id, "name": split, "field": fields}
    return [together] if len(chosen) > 1 else [], [record_set]
