"""The resources to retrieve for the FileObjects and FileSets of a document."""

from __future__ import annotations

import glob
import posixpath
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from data_stack import CatalogueName, ResourceDefinition
from data_stack.exception import ConfigError
from data_stack.io.redaction import hide_credentials
from data_stack.repository.catalogues import find_catalogue
from data_stack_croissant.file_opener import containers_of
from data_stack_croissant.file_source import define_source, locate, state_of
from data_stack_croissant.folder_files import MAX_FILES, list_folder_files
from data_stack_croissant.globs import FileSelection, excludes_of, includes_of
from data_stack_croissant.names import slug

#: The URL of a repository of the Hub, such as ``https://huggingface.co/datasets/owner/name``. The
#: name may have no owner, and a branch or commit may follow: ``/tree/main``.
_REPOSITORY_OF_THE_HUB: Final = re.compile(
    r"(?:git\+)?(?:https?://|ssh://git@|git@)(?:www\.)?(?:huggingface\.co|hf\.co)[/:]"
    r"datasets/(?P<name>[\w.-]+(?:/(?!tree/)[\w.-]+)?)/?(?:/tree/(?P<revision>[^/]+)/?)?"
)


class Sources:
    """The resources of a document, which the constructor finds.

    They are on web servers, below the folder of the document, or in repositories of the Hub.

    Args:
        place: path or URL of the document.
        nodes: mlcroissant's FileObjects and FileSets by their identifiers.
        needed: the nodes that record sets read.

    Attributes:
        definitions: the definitions of the resources to retrieve.
        places: the resources of each node that is contained in no other node, by the identifier of
            the node. A resource is a pair of its name and of the path of its file.
        facts: texts that identify the files without a digest in the document.

    Raises:
        ConfigError: the files of a FileSet cannot be listed, or a git repository is not on the Hub.
        MaliciousFilePathError: the document names files outside of its folder.
        CatalogueError, DatasetNotFoundError: the Hub does not list the files of a repository.
    """

    definitions: list[ResourceDefinition]
    places: dict[str, list[tuple[str, str]]]
    facts: list[str]
    #: Path or URL of the document.
    _place: str
    #: All nodes by their identifiers.
    _nodes: Mapping[str, Any]
    #: The FileObjects by the paths that they name. A FileSet of a folder may select the same paths.
    _objects_by_path: dict[str, Any]
    #: The name of each resource by its source, as several nodes may name one file.
    _names: dict[str, str]
    #: The files of repositories by their URLs.
    _listings: dict[str, Mapping[str, ResourceDefinition]]

    def __init__(self, place: str, nodes: Mapping[str, Any], needed: Iterable[Any]) -> None:
        self.definitions = []
        self.places = {}
        self.facts = []
        self._place = place
        self._nodes = nodes
        self._objects_by_path = {}
        for node in nodes.values():
            url = getattr(node, "content_url", None)
            if url:
                self._objects_by_path[unquote(url)] = node
        self._names = {}
        self._listings = {}

        visited: set[str] = set()
        waiting = deque(needed)
        while waiting:
            node = waiting.popleft()
            if node.uuid not in visited:
                visited.add(node.uuid)
                # Files in an archive are not retrieved one by one, but with the archive.
                waiting.extend(self._archives_of(node))
                self._add_node(node)

    def _archives_of(self, node: Any) -> list[Any]:
        """Return the nodes whose files contain the files of a node."""
        containers = containers_of(node, self._nodes)
        if any(_is_repository(container) for container in containers):
            return []
        return containers

    def _add_node(self, node: Any) -> None:
        """Add the resources of a node, unless they are in archives.

        Raises:
            ConfigError: the files of a FileSet cannot be listed, or a FileObject is a repository.
            MaliciousFilePathError: the node names files outside of the folder of the document.
            CatalogueError, DatasetNotFoundError: the Hub does not list the files of a repository.
        """
        if self._archives_of(node):
            return
        containers = containers_of(node, self._nodes)
        if containers:
            self._add_files_of_repositories(node, containers)
        elif getattr(node, "content_url", None) is None:
            self._add_files_of_folder(node)
        elif _is_repository(node):
            raise ConfigError(
                f"{node.uuid!r} is a git repository, not a file: select its files by a FileSet "
                f"containedIn it"
            )
        else:
            definition = define_source(node, self._place)
            file_name = posixpath.basename(unquote(urlsplit(definition.source).path))
            self._add(node, file_name, definition)

    def _add(
        self, node: Any, path: str, definition: ResourceDefinition, *, is_listed: bool = False
    ) -> None:
        """Add a file of a node. A file of several nodes is retrieved once.

        Args:
            node: the FileObject or FileSet.
            path: path of the file, which globs and fields of the document see.
            definition: what to retrieve, without an identifier.
            is_listed: whether a catalogue, not the document, states the digest.
        """
        source = definition.source
        if source not in self._names:
            file_name = posixpath.basename(urlsplit(source).path)
            self._names[source] = f"raw/{len(self.definitions):04d}-{slug(file_name)}"
            self.definitions.append(replace(definition, identifier=self._names[source]))
            has_digest_in_document = (definition.sha256 or definition.md5_sum) and not is_listed
            if not has_digest_in_document:
                self.facts.append(f"{path}:{definition.sha256 or source}{state_of(source)}")
        self.places.setdefault(node.uuid, []).append((self._names[source], path))

    # ------------------------------------------------------------------ FileSets of a folder

    def _add_files_of_folder(self, node: Any) -> None:
        """Add the files of a FileSet that are below the folder of the document."""
        included_paths = list_folder_files(node, self._place)
        for path in _choose(node, included_paths, includes=["*"]):
            definition = ResourceDefinition("", "")
            if path in self._objects_by_path:
                # A FileObject of the same file states its digest and size.
                definition = define_source(self._objects_by_path[path], self._place)
            source = locate(quote(path), self._place, node)
            self._add(node, path, replace(definition, source=source))

    # ------------------------------------------------------------------ repositories of the Hub

    def _add_files_of_repositories(self, node: Any, repositories: Sequence[Any]) -> None:
        """Add the files of a FileObject or FileSet in repositories of the Hub."""
        own_path = posixpath.normpath(getattr(node, "content_url", None) or ".")
        includes = [*includes_of(node), glob.escape(own_path)]
        for repository in repositories:
            listed = self._list_repository(repository)
            for path in _choose(node, sorted(listed), includes):
                self._add(node, path, listed[path], is_listed=True)

    def _list_repository(self, node: Any) -> Mapping[str, ResourceDefinition]:
        """Return the files of a repository of the Hub by their paths.

        Raises:
            ConfigError: the repository is not on the Hub, or the catalogue of the Hub is not
                installed.
            CatalogueError, DatasetNotFoundError: the Hub does not list the files.
        """
        url = node.content_url or ""
        if url in self._listings:
            return self._listings[url]
        match = _REPOSITORY_OF_THE_HUB.fullmatch(url)
        if match is None:
            raise ConfigError(
                f"{node.uuid!r} of {hide_credentials(self._place)} is a git repository, "
                f"{hide_credentials(url):.200}, but only those on huggingface.co are read: copy "
                f"the document and the repository's files to a folder, and remove containedIn "
                f"from its FileSets"
            )
        repository = match["name"].removesuffix(".git")
        revision = unquote(match["revision"] or "main")
        try:
            catalogue = find_catalogue("hf")
        except ConfigError as error:
            raise ConfigError(f"{node.uuid!r} is the repository hf:{repository}: {error}") from None
        self._listings[url] = catalogue.list_files(CatalogueName("hf", repository, revision))
        return self._listings[url]


def _is_repository(node: Any) -> bool:
    """Return whether a FileObject is a git repository."""
    media_types = node.encoding_formats or ()
    return any(str(media_type).startswith("git") for media_type in media_types)


def _choose(node: Any, paths: Iterable[str], includes: Sequence[str]) -> list[str]:
    """Return the paths that a FileObject or FileSet selects.

    Args:
        node: the FileObject or FileSet, which has the globs of the files to leave out.
        paths: the paths of which it selects some.
        includes: globs of the files to select.

    Raises:
        ConfigError: no path is selected, or too many are.
    """
    selection = FileSelection(includes, excludes_of(node))
    chosen = [path for path in paths if selection.selects(path)]
    if chosen and len(chosen) <= MAX_FILES:
        return chosen
    problem = "no file matches"
    if chosen:
        problem = f"more than {MAX_FILES:,} files match"
    patterns = ", ".join(includes_of(node) or [str(node.content_url)])
    raise ConfigError(f"{problem} {patterns!r:.200} of {node.uuid!r}")
