"""Finds the files of a document's FileObjects and FileSets, and what to retrieve for them."""

from __future__ import annotations

import glob
import itertools
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from data_stack.exception import ConfigError, MaliciousFilePathError
from data_stack.factories.catalogue import CatalogueName
from data_stack.io.redaction import shorten
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.web import WebError, follow, is_web
from data_stack.plugins.manager import default_manager
from data_stack.repository.croissant.globs import excludes_of, includes_of, matches
from data_stack.repository.croissant.rows import containers_of
from data_stack.repository.missing_datasets import explain_scheme
from data_stack.util.logger import logger

#: Files of a FileSet that is a folder, or in a repository.
MAX_FILES: Final = 100_000
#: Entries of a folder that are searched for them.
_MAX_ENTRIES: Final = 1_000_000
#: Characters of an identifier that tell its file.
_MAX_SLUG_CHARACTERS: Final = 60

_GLOB: Final = re.compile(r"[*?[]")
_HUB: Final = re.compile(
    r"(?:git\+)?(?:https?://|ssh://git@|git@)(?:www\.)?(?:huggingface\.co|hf\.co)[/:]"
    r"datasets/([\w.-]+(?:/(?!tree/)[\w.-]+)?)/?(?:/tree/([^/]+)/?)?"
)
_SIZE: Final = re.compile(r"(\d+)\s*B?")
#: Bytes of the digests that documents state.
_DIGEST_BYTES: Final = {"sha256": 32, "md5": 16}


class Sources:
    """The resources of a document: on web servers, below its folder, in repositories of the Hub.

    Args:
        place: path or URL of the document.
        files: mlcroissant's FileObjects and FileSets by their identifiers.
        wanted: the nodes that record sets read.

    Attributes:
        definitions: of the resources.
        places: name and path of each resource of a node that is in no archive, by its identifier.
        facts: identify the files that have no digest in the document.

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
    _files: Mapping[str, Any]
    #: FileObjects by the paths that they name, as a FileSet of a folder may select them.
    _objects_by_path: dict[str, Any]
    #: The name of each resource by its source, as several nodes may name one file.
    _names: dict[str, str]
    #: The files of repositories by their URLs.
    _listings: dict[str, Mapping[str, ResourceDefinition]]

    def __init__(self, place: str, files: Mapping[str, Any], wanted: Iterable[Any]) -> None:
        self.definitions = []
        self.places = {}
        self.facts = []
        self._place = place
        self._files = files
        self._objects_by_path = {}
        for node in files.values():
            if _url_of(node):
                self._objects_by_path[unquote(_url_of(node))] = node
        self._names = {}
        self._listings = {}

        # The containers of a node are read, too: the list grows while it is walked.
        waiting = list(wanted)
        for node in waiting:
            if node.uuid not in self.places:
                waiting += [
                    container for container in self._add_node(node) if container not in waiting
                ]

    def _add_node(self, node: Any) -> list[Any]:
        """Add the resources of a node; return its containers if they have them."""
        containers = containers_of(node, self._files)
        if any(_is_repository(container) for container in containers):
            self._add_files_of_repositories(node, containers)
        elif containers:
            return containers
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
        return []

    def _add(
        self, node: Any, path: str, definition: ResourceDefinition, *, is_listed: bool = False
    ) -> None:
        """Add a file of a node, unless another node has it.

        Args:
            node: the FileObject or FileSet.
            path: of the file.
            definition: what to retrieve.
            is_listed: whether a catalogue, not the document, states its digest.
        """
        source = definition.source
        if source not in self._names:
            file_name = posixpath.basename(urlsplit(source).path)
            self._names[source] = f"raw/{len(self.definitions):04d}-{slug(file_name)}"
            self.definitions.append(replace(definition, identifier=self._names[source]))
            has_digest_in_document = (definition.sha256 or definition.md5_sum) and not is_listed
            if not has_digest_in_document:
                state = _state_of(source)
                self.facts.append(f"{path}:{definition.sha256 or source}{state}")
        self.places.setdefault(node.uuid, []).append((self._names[source], path))

    # ------------------------------------------------------------------ FileSets of a folder

    def _add_files_of_folder(self, node: Any) -> None:
        """Add the files of a FileSet without container: below the folder of the document."""
        for path in _choose(node, self._list_paths(node), ["*"]):
            definition = ResourceDefinition("", "")
            if path in self._objects_by_path:
                # Its digest and size.
                definition = define_source(self._objects_by_path[path], self._place)
            source = _locate(self._place, quote(path), node)
            self._add(node, path, replace(definition, source=source))

    def _list_paths(self, node: Any) -> list[str]:
        """Return the paths below the folder of the document that a FileSet includes."""
        includes = includes_of(node)
        if is_web(self._place):
            paths = [_unescape(pattern) for pattern in includes]
            if not paths or any(_GLOB.search(path) for path in paths):
                raise ConfigError(
                    f"{node.uuid!r} of {shorten(self._place)} is a FileSet without containedIn, "
                    f"but the files of a web server cannot be listed; copy the document and its "
                    f"files to a folder, or write full names"
                )
            return sorted(paths)
        # One more than is allowed, so that more are noticed.
        listed = itertools.islice(_list_folder(Path(self._place).parent, includes), MAX_FILES + 1)
        return sorted(listed)

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
            ConfigError: the node is a repository elsewhere, or the catalogue is not installed.
        """
        url = node.content_url or ""
        match = _HUB.fullmatch(url)
        if match is None:
            raise ConfigError(
                f"{node.uuid!r} of {shorten(self._place)} is a git repository, "
                f"{shorten(url):.200}, but only those on huggingface.co are read: copy the "
                f"document and the repository's files to a folder, and remove containedIn from its "
                f"FileSets"
            )
        repository = match[1].removesuffix(".git")
        revision = unquote(match[2] or "main")
        plugins = default_manager()
        catalogue = plugins.provided("catalogues").get("hf")
        if catalogue is None:
            advice = explain_scheme("hf:", plugins)
            raise ConfigError(f"{node.uuid!r} is the repository hf:{repository}{advice}")
        if url not in self._listings:
            self._listings[url] = catalogue.list_files(CatalogueName("hf", repository, revision))
        return self._listings[url]


def _url_of(node: Any) -> str:
    """Return the URL or path of a FileObject; empty for a FileSet."""
    return getattr(node, "content_url", None) or ""


def _is_repository(node: Any) -> bool:
    return any(str(media_type).startswith("git") for media_type in node.encoding_formats or ())


def _choose(node: Any, paths: Iterable[str], includes: Sequence[str]) -> list[str]:
    """Return the paths that a FileObject or FileSet includes, and does not exclude.

    Raises:
        ConfigError: there are none, or too many.
    """
    excludes = excludes_of(node)
    chosen = [path for path in paths if matches(path, includes) and not matches(path, excludes)]
    if chosen and len(chosen) <= MAX_FILES:
        return chosen
    problem = f"more than {MAX_FILES:,} files match" if chosen else "no file matches"
    patterns = ", ".join(includes_of(node) or [str(node.content_url)])
    raise ConfigError(f"{problem} {patterns!r:.200} of {node.uuid!r}")


# ---------------------------------------------------------------------- one file


def define_source(node: Any, place: str) -> ResourceDefinition:
    """Return the resource of a FileObject that is not contained in another.

    The caller replaces its identifier.

    Args:
        node: the FileObject.
        place: path or URL of the document.

    Raises:
        MaliciousFilePathError: it names a file outside of the document's folder.
    """
    source = _locate(place, node.content_url, node)
    size = _SIZE.fullmatch(node.content_size or "")
    return ResourceDefinition(
        "",
        source,
        sha256=_digest_of(node, "sha256"),
        md5_sum=_digest_of(node, "md5"),
        size=None if size is None else int(size[1]),
    )


def _locate(place: str, url: str, node: Any) -> str:
    """Return the path or URL of a file that a document names.

    Raises:
        MaliciousFilePathError: the document may not lead there.
    """
    if is_web(place) or is_web(url):
        try:
            return follow(place, url)
        except WebError as error:
            problem = error.reason
    else:
        folder = Path(place).parent
        path = (folder / unquote(url)).resolve()
        if path.is_relative_to(folder):
            return str(path)
        problem = f"leads to {shorten(url)[:200]}, which is outside of its folder"
    raise MaliciousFilePathError(
        f"{shorten(place)} {problem}, for {node.uuid!r}. Nothing was retrieved; ask its publisher "
        f"to correct it"
    )


def _digest_of(node: Any, algorithm: str) -> str | None:
    """Return a digest in hexadecimal digits; None for the placeholders that many documents have."""
    written = getattr(node, algorithm) or ""
    n_digits = 2 * _DIGEST_BYTES[algorithm]
    if re.fullmatch(f"[0-9a-fA-F]{{{n_digits}}}", written):
        return str(written)
    if written:
        logger.warning(
            "the %s of %r, %.80r, is not a digest, so its bytes are not verified",
            algorithm,
            node.uuid,
            written,
        )
    return None


def _state_of(source: str) -> str:
    """Return size and modification time of a local file, by which a change is noticed.

    Of other files it is empty.
    """
    if re.match("[a-z]+://", source) or not os.path.exists(source):
        return ""
    status = os.stat(source)
    return f":{status.st_size}:{status.st_mtime_ns}"


def slug(text: object) -> str:
    """Return a text as a part of an identifier."""
    allowed = re.sub(r"[^A-Za-z0-9_.]+", "-", str(text or 0))
    return allowed.strip("-.")[:_MAX_SLUG_CHARACTERS].rstrip(".") or "0"


# ---------------------------------------------------------------------- folders


def _unescape(pattern: str) -> str:
    """Return a glob without the brackets of :func:`glob.escape`."""
    return re.sub(r"\[([*?[])\]", r"\1", pattern)


def _list_folder(folder: Path, patterns: Sequence[str]) -> Iterator[str]:
    """Yield the paths below a folder that match, with ``/``.

    Raises:
        MaliciousFilePathError: a pattern begins outside of the folder.
        ConfigError: the folder has too many files.
    """
    starts = {_folder_of_pattern(pattern) for pattern in patterns}
    for start in starts:
        if not (folder / start).resolve().is_relative_to(folder):
            raise MaliciousFilePathError(
                f"a FileSet includes {start!r:.200}, which is not below the folder of its document"
            )
    n_entries = 0
    # The folders that no pattern can match are not searched.
    for parent, _, names in os.walk(folder / os.path.commonpath(starts or [""])):
        n_entries += len(names) + 1
        if n_entries > _MAX_ENTRIES:
            raise ConfigError(
                f"{folder} has more than {_MAX_ENTRIES:,} files, the limit for a FileSet"
            )
        for name in names:
            path = (Path(parent) / name).relative_to(folder).as_posix()
            if matches(path, patterns):
                yield path


def _folder_of_pattern(pattern: str) -> str:
    """Return the folder in which all files that match a glob lie."""
    without_wildcards = _GLOB.split(pattern)[0]
    return without_wildcards.rpartition("/")[0]
