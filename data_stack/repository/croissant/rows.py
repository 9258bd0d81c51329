"""The rows of files that a document names: of tables, and of files as they are, also in archives."""

from __future__ import annotations

import fnmatch
import glob
import io
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from data_stack.exception import DatasetFileCorruptError
from data_stack.exchange.tables.files import from_csv, from_jsonl
from data_stack.formats.parquet import ParquetDataset
from data_stack.io.archives import open_archive
from data_stack.io.archives.zip import ZipArchive
from data_stack.repository.croissant.plans import Plan

_ARCHIVES: Final = re.compile(r"zip|x-g?tar|x-xz|zstd")
_Files = Iterator[tuple[str, Any]]


def read_rows(
    plan: Plan, nodes: Mapping[str, Any], raw: Mapping[str, Any], places: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The rows of a record set, by the names of its columns.

    Args:
        plan: of the record set.
        nodes: mlcroissant's, by their identifiers.
        raw: the resources.
        places: name and path of each resource, by the identifier of its node.

    Raises:
        DatasetFileCorruptError: a file is not as the document says.
        ArchiveError: an archive is damaged, or unpacks to names outside of it.
    """
    files = _files(plan.node, nodes, raw, places) if plan.node is not None else [("the document", None)]
    for path, stream in files:
        about = {"file:filename": posixpath.basename(path), "file:filepath": path, "file:fullpath": path}
        for row in plan.rows if stream is None else _rows_of(plan, stream):
            yield {column.field.name: column.convert({**about, **row}, path) for column in plan.columns}


def containers_of(node: Any, nodes: Mapping[str, Any]) -> list[Any]:
    """The FileObjects and FileSets that contain one."""
    return [nodes[each if isinstance(each, str) else each.uuid] for each in node.contained_in or ()]


def _rows_of(plan: Plan, stream: Any) -> Iterator[Mapping[str, Any]]:
    kinds = " ".join(plan.node.encoding_formats or ())
    keys = {column.key: column.field for column in plan.columns if column.key and not column.key.startswith("file:")}
    if not keys:
        yield {"file:content": stream.read()}
    elif "parquet" in kinds:
        yield from ParquetDataset(stream)
    elif "json" in kinds:
        yield from from_jsonl(stream)
    else:
        texts = {key: str for key, field in keys.items() if np.dtype(field.dtype).kind == "U"}
        yield from from_csv(stream, delimiter="\t" if "tab-separated" in kinds else ",", dtypes=texts)


def _files(node: Any, nodes: Mapping[str, Any], raw: Mapping[str, Any], places: Mapping[str, Any]) -> _Files:
    """Path and stream of each file of a FileObject or FileSet."""
    if not node.contained_in:
        name, path = places[node.uuid]
        with raw[name] as resource:
            yield path, resource
        return
    includes = np.atleast_1d(getattr(node, "includes", None) or glob.escape(posixpath.normpath(node.content_url or "")))
    excludes = np.atleast_1d(getattr(node, "excludes", None) or [])
    is_found = False
    for container in containers_of(node, nodes):
        is_archive = _ARCHIVES.search(" ".join(container.encoding_formats or ())) is not None
        for path, stream in _files(container, nodes, raw, places):
            for member, opened in _members(stream) if is_archive else [(path, stream)]:
                if _matches(member, includes) and not _matches(member, excludes):
                    is_found = True
                    yield member, opened() if is_archive else opened
    if not is_found:
        raise DatasetFileCorruptError(f"no file matches {', '.join(includes)!r:.200}, of which {node.uuid!r} consists")


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def _members(stream: Any) -> _Files:
    """Name of each file of an archive, and a function that reads it; those of a zip are sorted, others would be read again."""
    with open_archive(stream) as archive:
        names = archive.names()
        for name in sorted(names) if isinstance(archive, ZipArchive) else names:
            yield name, lambda name=name: io.BytesIO(archive.read(name))
