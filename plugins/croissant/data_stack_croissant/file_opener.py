"""Opens the files of a document's FileObjects and FileSets, also those inside of archives."""

from __future__ import annotations

import functools
import glob
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from data_stack.exception import DatasetFileCorruptError
from data_stack_croissant.archive_members import Member, iterate_members, return_stream
from data_stack_croissant.globs import FileSelection, excludes_of, includes_of

#: Parts of the media types of archives and compressed files. ``zip`` is also one of ``gzip``.
_ARCHIVES: Final = re.compile(r"zip|x-g?tar|x-xz|zstd")


class FileOpener:
    """Opens the files of FileObjects and FileSets.

    Args:
        nodes: mlcroissant's FileObjects and FileSets by their identifiers.
        raw: the retrieved resources by their names.
        places: the resources of each node that is contained in no other node, by the identifier of
            the node. A resource is a pair of its name and of the path of its file.
    """

    _nodes: Mapping[str, Any]
    _raw: Mapping[str, Any]
    _places: Mapping[str, Sequence[tuple[str, str]]]

    def __init__(
        self,
        nodes: Mapping[str, Any],
        raw: Mapping[str, Any],
        places: Mapping[str, Sequence[tuple[str, str]]],
    ) -> None:
        self._nodes = nodes
        self._raw = raw
        self._places = places

    def open_files(self, node: Any) -> Iterator[tuple[str, Any]]:
        """Yield the path and the stream of each file of a FileObject or FileSet.

        A stream is closed when the next file is taken from the iterator.

        Raises:
            DatasetFileCorruptError: the node is contained in other nodes, which have no such file.
            ArchiveError: an archive is damaged, or unpacks to names outside of it.
        """
        if node.uuid not in self._places:
            yield from self._open_contained_files(node)
            return
        for name, path in self._places[node.uuid]:
            with self._raw[name] as resource:
                yield path, resource

    def _open_contained_files(self, node: Any) -> Iterator[tuple[str, Any]]:
        """Yield the files of a node that is contained in archives or other FileSets."""
        includes = includes_of(node)
        if not includes:
            includes = [glob.escape(posixpath.normpath(node.content_url or ""))]
        selection = FileSelection(includes, excludes_of(node))
        has_files = False
        for container in containers_of(node, self._nodes):
            for file in self._iterate_contents(container):
                if selection.selects(file.name):
                    has_files = True
                    yield file.name, file.open()
        if not has_files:
            raise DatasetFileCorruptError(
                f"no file matches {', '.join(includes)!r:.200} of {node.uuid!r}"
            )

    def _iterate_contents(self, container: Any) -> Iterator[Member]:
        """Yield the files in a container: the files in its archives; without archives, its own."""
        formats = " ".join(container.encoding_formats or ())
        is_archive = _ARCHIVES.search(formats) is not None
        for path, stream in self.open_files(container):
            if is_archive:
                yield from iterate_members(path, stream)
            else:
                yield Member(path, functools.partial(return_stream, stream))


def containers_of(node: Any, nodes: Mapping[str, Any]) -> list[Any]:
    """Return the FileObjects and FileSets that contain another one.

    Args:
        node: mlcroissant's FileObject or FileSet.
        nodes: all FileObjects and FileSets by their identifiers.
    """
    containers = []
    for container in node.contained_in or ():
        identifier = container if isinstance(container, str) else container.uuid
        containers.append(nodes[identifier])
    return containers
