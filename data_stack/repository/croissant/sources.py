"""The files of a document's FileObjects and FileSets: on web servers, below its folder, in repositories of the Hub."""

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
from data_stack.repository.croissant.plans import globs_of
from data_stack.repository.croissant.rows import containers_of, matches
from data_stack.repository.missing_datasets import explain_scheme
from data_stack.util.logger import logger

#: Files of a FileSet that is a folder, or in a repository.
MAX_FILES: Final = 100_000
#: Entries of a folder that are searched for them.
_MAX_ENTRIES: Final = 1_000_000
_GLOB: Final = re.compile(r"[*?[]")
_HUB: Final = re.compile(
    r"(?:git\+)?(?:https?://|ssh://git@|git@)(?:www\.)?(?:huggingface\.co|hf\.co)[/:]"
    r"datasets/([\w.-]+(?:/(?!tree/)[\w.-]+)?)/?(?:/tree/([^/]+)/?)?"
)


class Sources:
    """The resources of a document.

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

    def __init__(self, place: str, files: Mapping[str, Any], wanted: Iterable[Any]) -> None:
        self._place, self._files = place, files
        self.definitions: list[ResourceDefinition] = []
        self.places: dict[str, list[tuple[str, str]]] = {}
        self.facts: list[str] = []
        self._names: dict[str, str] = {}
        self._listings: dict[str, Mapping[str, ResourceDefinition]] = {}
        self._by_path = {
            unquote(node.content_url): node
            for node in files.values()
            if getattr(node, "content_url", None)
        }
        waiting = list(wanted)
        for node in waiting:
            if node.uuid in self.places:
                continue
            containers = containers_of(node, files)
            if any(_is_repository(each) for each in containers):
                self._add_of_repositories(node, containers)
            elif containers:
                waiting += [each for each in containers if each not in waiting]
            elif getattr(node, "content_url", None) is None:
                self._add_of_folder(node)
            elif _is_repository(node):
                raise ConfigError(
                    f"{node.uuid!r} is a git repository, not a file: select its files by a FileSet containedIn it"
                )
            else:
                definition = define_source(node, place)
                self._add(
                    node, unquote(urlsplit(definition.source).path).rpartition("/")[2], definition
                )

    def _add(
        self, node: Any, path: str, definition: ResourceDefinition, *, is_listed: bool = False
    ) -> None:
        """Add a file of a node, unless another node has it; ``is_listed``: a catalogue, not the document, states its digest."""
        name = self._names.get(definition.source)
        if name is None:
            name = f"raw/{len(self.definitions):04d}-{slug(urlsplit(definition.source).path.rpartition('/')[2])}"
            self._names[definition.source] = name
            self.definitions.append(replace(definition, identifier=name))
            if is_listed or not (definition.sha256 or definition.md5_sum):
                self.facts.append(
                    f"{path}:{definition.sha256 or definition.source}{_state(definition.source)}"
                )
        self.places.setdefault(node.uuid, []).append((name, path))

    def _add_of_folder(self, node: Any) -> None:
        """The files of a FileSet without container: below the folder of the document, or with full names."""
        patterns = globs_of(node, "includes")
        if is_web(self._place):
            if not patterns or any(map(_GLOB.search, (_unescape(each) for each in patterns))):
                problem = "is a FileSet without containedIn, but the files of a web server cannot be listed"
                advice = "copy the document and its files to a folder, or write full names"
                raise ConfigError(f"{node.uuid!r} of {shorten(self._place)} {problem}; {advice}")
            paths: Iterable[str] = sorted(map(_unescape, patterns))
        else:
            paths = sorted(
                itertools.islice(_list_folder(Path(self._place).parent, patterns), MAX_FILES + 1)
            )
        for path in _choose(node, paths, ["*"]):
            known = self._by_path.get(path)
            definition = (
                ResourceDefinition("", "") if known is None else define_source(known, self._place)
            )
            self._add(
                node, path, replace(definition, source=_locate(self._place, quote(path), node))
            )

    def _add_of_repositories(self, node: Any, repositories: Sequence[Any]) -> None:
        """The files of a FileObject or FileSet in repositories of the Hub."""
        includes = [
            *globs_of(node, "includes"),
            glob.escape(posixpath.normpath(getattr(node, "content_url", None) or ".")),
        ]
        for repository in repositories:
            listed = self._list_repository(repository)
            for path in _choose(node, sorted(listed), includes):
                self._add(node, path, listed[path], is_listed=True)

    def _list_repository(self, node: Any) -> Mapping[str, ResourceDefinition]:
        match = _HUB.fullmatch(node.content_url or "")
        if match is None:
            what = f"{node.uuid!r} of {shorten(self._place)} is a git repository, {shorten(node.content_url or ''):.200}"
            advice = "copy the document and the repository's files to a folder, and remove containedIn from its FileSets"
            raise ConfigError(f"{what}, but only those on huggingface.co are read: {advice}")
        repo, revision = match[1].removesuffix(".git"), unquote(match[2] or "main")
        catalogue = default_manager().provided("catalogues").get("hf")
        if catalogue is None:
            raise ConfigError(
                f"{node.uuid!r} is the repository hf:{repo}{explain_scheme('hf:', default_manager())}"
            )
        if node.content_url not in self._listings:
            self._listings[node.content_url] = catalogue.list_files(
                CatalogueName("hf", repo, revision)
            )
        return self._listings[node.content_url]


def _choose(node: Any, paths: Iterable[str], includes: Sequence[str]) -> list[str]:
    """The paths that a FileObject or FileSet includes, and does not exclude."""
    excludes = globs_of(node, "excludes")
    chosen = [path for path in paths if matches(path, includes) and not matches(path, excludes)]
    if not chosen or len(chosen) > MAX_FILES:
        patterns = ", ".join(globs_of(node, "includes") or [str(node.content_url)])
        number = f"more than {MAX_FILES:,} files match" if chosen else "no file matches"
        raise ConfigError(f"{number} {patterns!r:.200} of {node.uuid!r}")
    return chosen


def define_source(node: Any, place: str) -> ResourceDefinition:
    """The resource of a FileObject that is not contained in another; the caller replaces its identifier.

    Raises:
        MaliciousFilePathError: it names a file outside of the document's folder.
    """
    source = _locate(place, node.content_url, node)
    size = re.fullmatch(r"(\d+)\s*B?", node.content_size or "")
    sha256, md5 = _digest(node, "sha256", 32), _digest(node, "md5", 16)
    return ResourceDefinition(
        "", source, sha256=sha256, md5_sum=md5, size=int(size[1]) if size else None
    )


def _locate(place: str, url: str, node: Any) -> str:
    """The path or URL that a document names."""
    if is_web(place) or is_web(url):
        try:
            return follow(place, url)
        except WebError as error:
            refused = error.reason
    else:
        source = (Path(place).parent / unquote(url)).resolve()
        if source.is_relative_to(Path(place).parent):
            return str(source)
        refused = f"leads to {shorten(url)[:200]}, which is outside of its folder"
    advice = "Nothing was retrieved; ask its publisher to correct it"
    raise MaliciousFilePathError(f"{shorten(place)} {refused}, for {node.uuid!r}. {advice}")


def _digest(node: Any, name: str, n_bytes: int) -> str | None:
    """A digest in hexadecimal digits; None for the placeholders that many documents have."""
    written = getattr(node, name) or ""
    if re.fullmatch(f"[0-9a-fA-F]{{{2 * n_bytes}}}", written):
        return str(written)
    if written:
        logger.warning(
            "the %s of %r, %.80r, is not a digest, so its bytes are not verified",
            name,
            node.uuid,
            written,
        )
    return None


def _state(source: str) -> str:
    """Size and modification time of a local file, to notice changes; empty for other files."""
    if re.match("[a-z]+://", source) or not os.path.exists(source):
        return ""
    status = os.stat(source)
    return f":{status.st_size}:{status.st_mtime_ns}"


def _is_repository(node: Any) -> bool:
    return any(str(each).startswith("git") for each in node.encoding_formats or ())


def _unescape(pattern: str) -> str:
    """A glob without the brackets of :func:`glob.escape`."""
    return re.sub(r"\[([*?[])\]", r"\1", pattern)


def _list_folder(folder: Path, patterns: Sequence[str]) -> Iterator[str]:
    """The paths below a folder that match, with ``/``."""
    starts = {_GLOB.split(pattern)[0].rpartition("/")[0] for pattern in patterns}
    for start in starts:
        if not (folder / start).resolve().is_relative_to(folder):
            raise MaliciousFilePathError(
                f"a FileSet includes {start!r:.200}, which is not below the folder of its document"
            )
    n_entries = 0
    for parent, _, names in os.walk(folder / os.path.commonpath(starts or [""])):
        n_entries += len(names) + 1
        if n_entries > _MAX_ENTRIES:
            raise ConfigError(
                f"{folder} has more than {_MAX_ENTRIES:,} files, the limit for a FileSet"
            )
        paths = ((Path(parent) / name).relative_to(folder).as_posix() for name in names)
        yield from (path for path in paths if matches(path, patterns))


def slug(text: object) -> str:
    """A text as a part of an identifier."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", str(text or 0)).strip("-.")[:60].rstrip(".") or "0"
