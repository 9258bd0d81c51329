"""``data_stack.to_croissant``: an installed dataset as a Croissant document."""

from __future__ import annotations

import contextlib
import copy
import csv
import datetime
import glob
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF, column_names
from data_stack.dataset.iterator.access import DeclaredColumn, access_to
from data_stack.exception import ConfigError
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.manifest import SourceRecord
from data_stack.factories.prepared import Resources
from data_stack.formats.column_source import name_of_position
from data_stack.formats.registry import format_of_suffix
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.repository.default_storage import Storage
from data_stack.repository.description import DatasetDescription
from data_stack.repository.licenses import spdx_problem
from data_stack.repository.repository import default_repository

CONFORMS_TO: Final = "http://mlcommons.org/croissant/1.1"

_OWN_WORDS = (
    "arrayShape citeAs column containedIn equivalentProperty extract field fileObject fileProperty fileSet format includes "
    "isArray isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate "
    "separator source subField transform"
)
_LANGUAGES: Final = {"@container": "@language"}

#: The ``@context`` that https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html asks for.
CONTEXT: Final[dict[str, Any]] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": _LANGUAGES,
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": _LANGUAGES,
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{word: f"cr:{word}" for word in _OWN_WORDS.split()},
}

_KINDS = {"b": "sc:Boolean", "i": "cr:Int", "u": "cr:UInt", "f": "cr:Float", "M": "sc:DateTime"}


def describe_type(value: Any, declared: DeclaredColumn | None) -> dict[str, Any]:
    """The ``dataType`` of a column, with ``isArray`` and ``arrayShape`` where its values are arrays.

    Args:
        value: one of them; None if missing.
        declared: their type in a schema; None if the schema has none.
    """
    if type(value).__module__.startswith("PIL."):
        return {"dataType": "sc:ImageObject"}
    array = np.asarray(value)
    dtype, shape = array.dtype, array.shape
    if declared is not None and declared.dtype is not None and declared.shape is not None:
        shape = tuple(-1 if extent is None else extent for extent in declared.shape)
        with contextlib.suppress(TypeError):  # of a name that numpy does not know
            dtype = np.dtype(declared.dtype)
    kind = _KINDS.get(dtype.kind, "sc:Text")
    if isinstance(value, datetime.date):
        kind = "sc:DateTime" if isinstance(value, datetime.datetime) else "sc:Date"
    kind += str(8 * dtype.itemsize) * kind.startswith("cr:")
    return {"dataType": kind} | (
        {"isArray": True, "arrayShape": ",".join(map(str, shape))} if shape else {}
    )


_SPLIT_NAME = "dataset_splits/name"
#: Media types of archives and compressed files by suffix; each format of data declares its own.
_ARCHIVES = {".zip": "application/zip", ".tgz": "application/x-tar", ".gz": "application/gzip"}


def to_croissant(name: str, storage: Storage | None = None, **config: Any) -> dict[str, Any]:
    """Describe a dataset in Croissant 1.1: its card, sources, prepared files with their digests, splits and columns.

    ::

        Path("croissant.json").write_text(json.dumps(data_stack.to_croissant("digits")))

    Retrieves and prepares nothing; prepared files and columns are described if the dataset is prepared. Their ``contentUrl`` is
    relative to the dataset's folder ``name/version``, next to whose ``manifest.json`` the document belongs. The columns of
    Parquet, CSV and JSON lines files are fields. Of splits in other formats, whose samples Croissant has no words to read, the
    records are the names of their files, and those of the record set ``SPLIT/columns`` the names, types and shapes of columns.

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
    dataset = default_repository().resolve(name, storage)
    description, factory = dataset.describe(), dataset.factory
    if not isinstance(factory, DatasetFactory):
        who = f"dataset {name!r} is a legacy factory ({type(factory).__qualname__})"
        raise ConfigError(
            f"{who} without a card, which Croissant needs; derive it from DatasetFactory"
        )
    manifest, document = factory.manifest(), _describe_card(factory, description)
    recorded = {} if manifest is None else {each.identifier: each for each in manifest.sources}
    sources = sorted(factory.sources, key=lambda each: each.identifier)
    document["distribution"] = [
        _describe_source(each, recorded.get(each.identifier), factory.card.name) for each in sources
    ]
    if manifest is None:
        return document
    for record in sorted(manifest.prepared, key=lambda each: each.identifier):
        if record.identifier not in recorded:
            facts = {
                "contentUrl": quote(record.identifier),
                "sha256": record.sha256,
                "contentSize": f"{record.size} B",
            }
            document["distribution"].append(_file(record.identifier, facts))
    resources = Resources(
        factory.storage_connector,
        DatasetDefinition(factory, DatasetFactory).folder,
        manifest.prepared,
    )
    record_sets = []
    for split in description.splits:
        iterator = dataset.load(split, **config)
        file_sets, found = _describe_split(
            split, iterator, _files_of(split, description.splits, resources), resources
        )
        document["distribution"] += file_sets
        record_sets += found
    names, key = [{"name": split} for split in description.splits], {"@id": _SPLIT_NAME}
    splits = _inline("dataset_splits", "dataset_splits", names, dataType="cr:Split", key=key)
    return {**document, "recordSet": [splits, *record_sets]} if record_sets else document


def _describe_card(factory: DatasetFactory, description: DatasetDescription) -> dict[str, Any]:
    license_ = factory.card.license
    if (
        license_ is not None
        and re.fullmatch(r"[A-Za-z0-9.+-]+", license_, re.ASCII)
        and spdx_problem(license_) is None
    ):
        license_ = f"https://spdx.org/licenses/{license_}.html"
    card = factory.card
    facts: dict[str, Any] = {
        "name": card.name,
        "description": description.description or card.name,
        "conformsTo": CONFORMS_TO,
    }
    facts |= {
        "version": card.version,
        "license": license_,
        "url": card.homepage,
        "citeAs": card.citation,
    }
    return {
        "@context": copy.deepcopy(CONTEXT),
        "@type": "sc:Dataset",
        **{key: fact for key, fact in facts.items() if fact},
    }


def _describe_source(
    source: ResourceDefinition, record: SourceRecord | None, dataset: str
) -> dict[str, Any]:
    sha256 = source.sha256 or (record and record.sha256)
    if not (sha256 or source.md5_sum):
        advice = "prepare the dataset first, which computes it, or declare sha256 in its ResourceDefinition"
        raise ConfigError(
            f"Croissant needs a digest of the source {source.identifier!r} of dataset {dataset!r}: {advice}"
        )
    size = source.size if record is None or record.size is None else record.size
    url = next(
        (place for place in source.sources if re.match("https?:", place)), quote(source.identifier)
    )  # no path of ours
    facts = {
        "contentUrl": url,
        "sha256": sha256,
        "md5": None if sha256 else source.md5_sum,
        "contentSize": size and f"{size} B",
    }
    return _file(source.identifier, {key: fact for key, fact in facts.items() if fact})


def _node(kind: str, identifier: str, name: str, **facts: Any) -> dict[str, Any]:
    return {"@type": f"cr:{kind}", "@id": identifier, "name": name, **facts}


def _id(identifier: str) -> str:
    return f"files/{quote(identifier)}"


def _format_of(identifier: str) -> str:
    path = PurePosixPath(identifier)
    suffix = ".tar" if ".tar" in path.suffixes else path.suffix
    found = format_of_suffix(suffix)
    return (
        _ARCHIVES.get(suffix, "application/octet-stream")
        if found is None
        else found.suffixes[suffix]
    )


def _file(identifier: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    name = PurePosixPath(identifier).name
    return _node(
        "FileObject", _id(identifier), name, **facts, encodingFormat=_format_of(identifier)
    )


def _files_of(split: str, splits: Sequence[str], resources: Resources) -> list[str]:
    """The prepared files whose names have the split; if there are none, those whose names have no split."""
    named = {name: _splits_in(name, splits) for name in sorted(resources)}
    return [name for name, found in named.items() if split in found] or [
        name for name, found in named.items() if not found
    ]


def _splits_in(name: str, splits: Sequence[str]) -> set[str]:
    """The splits whose names are whole words of a path; of ``dev_2/a.npy`` it is ``dev_2`` alone, though ``dev`` is one too."""
    longest_first = "|".join(re.escape(each) for each in sorted(splits, key=len, reverse=True))
    return set(re.findall(rf"(?<![^/._-])(?:{longest_first})(?![^/._-])", name))


def _columns_in(name: str, resources: Resources) -> dict[str, bool]:
    """The columns of a file with columns, and whether their values are pictures; ``{}`` of any other file."""
    suffix = PurePosixPath(name).suffix
    if suffix not in (".parquet", ".csv", ".tsv", ".jsonl"):
        return {}
    with resources[name] as resource:
        if suffix == ".parquet":
            from data_stack.formats.parquet import JpegCodec, ParquetDataset, PngCodec

            return {
                each.name: isinstance(each.codec, (JpegCodec, PngCodec))
                for each in ParquetDataset(resource).schema
            }
        line = io.TextIOWrapper(resource, encoding="utf-8", errors="replace").readline()
    found = (
        json.loads(line)
        if suffix == ".jsonl"
        else next(csv.reader([line], delimiter="\t" if suffix == ".tsv" else ","), ())
    )
    return dict.fromkeys(found, False)


def _describe_split(
    split: str, iterator: DatasetIteratorIF, files: Sequence[str], resources: Resources
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The FileSet of a split, if it has several files, and its RecordSets, if it has files and columns."""
    samples, split_id = access_to(iterator), quote(split)
    declared = samples.declare_columns() or {}
    sample: Any = samples.sample(0) if len(iterator) else dict.fromkeys(declared)
    if not isinstance(sample, Mapping):
        values = sample if isinstance(sample, tuple) else (sample,)
        names = column_names(iterator) or [
            name_of_position(iterator, position) for position in range(len(values))
        ]
        sample = dict(zip(names, values, strict=True))
    if not files or not sample:
        return [], []
    types = {
        str(column): describe_type(value, declared.get(column)) for column, value in sample.items()
    }
    tables = {
        name: columns
        for name in files
        if sample.keys() <= (columns := _columns_in(name, resources)).keys()
    }
    if not tables:
        return [], _list_files(split, files, types)
    # A FileSet of the folder, not one containedIn the files, whose tables mlcroissant does not read.
    chosen, file_set = list(tables), f"files-of/{split_id}"
    within = {
        "encodingFormat": _format_of(chosen[0]),
        "includes": [glob.escape(name) for name in chosen],
    }
    together = [_node("FileSet", file_set, file_set, **within)] if len(chosen) > 1 else []
    source = {"fileSet": {"@id": file_set}} if together else {"fileObject": {"@id": _id(chosen[0])}}
    of_split = {
        "dataType": "sc:Text",
        "value": split,
        "references": {"field": {"@id": _SPLIT_NAME}},
    }
    fields = [_node("Field", f"{split_id}/dataset_split", "dataset_split", **of_split)]
    for column, type_ in types.items():
        is_picture = tables[chosen[0]][column]
        facts: dict[str, Any] = {"dataType": "sc:ImageObject"} if is_picture else type_
        facts["source"] = {**source, "extract": {"column": column}}
        fields.append(_node("Field", f"{split_id}/{quote(column)}", column, **facts))
    return together, [_node("RecordSet", split_id, split, field=fields)]


def _list_files(
    split: str, files: Sequence[str], types: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """RecordSets of what Croissant has no words to read: the files of a split, and the columns of its samples."""
    columns = [
        {"column": name, "type": type_["dataType"], "shape": type_.get("arrayShape", "")}
        for name, type_ in types.items()
    ]
    split_id = quote(split)
    return [
        _inline(split_id, split, [{"file": name} for name in files]),
        _inline(f"{split_id}/columns", f"{split}/columns", columns),
    ]


def _inline(
    identifier: str, name: str, rows: Sequence[Mapping[str, str]], **facts: Any
) -> dict[str, Any]:
    """A RecordSet whose rows of text are in the document."""
    fields = [_node("Field", f"{identifier}/{each}", each, dataType="sc:Text") for each in rows[0]]
    data = [{f"{identifier}/{each}": text for each, text in row.items()} for row in rows]
    return _node("RecordSet", identifier, name, **facts, field=fields, data=data)
