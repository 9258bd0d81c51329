"""Catalogues: datasets that others publish, by name, without a package for each."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from data_stack.exception import CatalogueError
from data_stack.factories.base_factory import BaseDatasetFactory
from data_stack.factories.declarative import DatasetCard, DatasetFactory
from data_stack.io.identifiers import check_identifier
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors.connector import StorageConnector

#: ``scheme:name@version#part``, or ``scheme:name#part@version``: the version comes last where it is
#: added to a name with a part.
_NAME = re.compile(
    r"(?![^@]*@[^@]*@)"  # not two versions
    r"([a-z][a-z0-9-]*):"  # the scheme
    r"((?!/)[^@#]+)"  # the name; after a slash, it would be a URL
    r"(?:@([^@#]+))?"  # the version
    r"(?:#([^@#]+))?"  # the part
    r"(?:@([^@#]+))?",  # the version at the end
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class CatalogueName:
    """The name of a dataset of a catalogue, ``scheme:name@version#part``.

    As text, the version comes last.

    Attributes:
        scheme: the scheme of the catalogue, e.g. ``"hf"``.
        name: in the catalogue, e.g. ``"owner/name"``.
        version: a moving one, such as a branch, or an exact one; None for the latest.
        part: a configuration or a file of the dataset; None for its default.
    """

    scheme: str
    name: str
    version: str | None = None
    part: str | None = None

    @classmethod
    def parse(cls, text: str) -> CatalogueName | None:
        """Return the parts of ``scheme:name@version#part`` or ``scheme:name#part@version``.

        Returns:
            The name; None for any other text.
        """
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        scheme, name, version, part, version_at_end = match.groups()
        return cls(scheme, name, version or version_at_end, part)

    @property
    def plain(self) -> str:
        """The name without its version: ``scheme:name#part``."""
        text = f"{self.scheme}:{self.name}"
        if self.part:
            text += f"#{self.part}"
        return text

    @property
    def folder(self) -> str:
        """What a card calls the dataset, and so its folder in every store: ``"hf+owner+name"``.

        ``:`` and ``/`` become ``+``, and ``#`` becomes ``,``. Letters, digits and ``._-`` stay. All
        other characters become their UTF-8 bytes as ``=2A``. So different names have different
        folders.

        Raises:
            MalformedIdentifierError: no folder of a store can have that name: it is too long, or
                ends with a dot.
        """
        escaped = quote(self.plain, safe=":/#", errors="surrogatepass")
        escaped = escaped.replace("%", "=").replace("~", "=7E")
        return check_identifier(escaped.translate(str.maketrans(":/#", "++,")))

    def __str__(self) -> str:
        text = self.plain
        if self.version:
            text += f"@{self.version}"
        return text


def stored_name(name: str) -> str:
    """Return the name under which stores keep a dataset, or a version of it.

    ``"hf:owner/name@v1"`` is ``"hf+owner+name/v1"``. Names of other datasets are returned as they
    are.
    """
    catalogue_name = CatalogueName.parse(name)
    if catalogue_name is None:
        return name
    if catalogue_name.version is None:
        return catalogue_name.folder
    return f"{catalogue_name.folder}/{catalogue_name.version}"


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A dataset that a catalogue lists.

    Attributes:
        name: the name by which it is loaded, with the scheme: ``"hf:owner/name"``.
        title: one line of description; may be empty.
        license: an SPDX identifier, or the catalogue's text; None if unknown.
        size: in bytes; None if unknown.
    """

    name: str
    title: str = ""
    license: str | None = None
    size: int | None = None


class Catalogue(ABC):
    """Datasets by names such as ``hf:owner/name``.

    Plugins bring one by the hook ``data_stack_catalogues``.

    Making a catalogue contacts nothing; :meth:`find` and :meth:`search` do. It pickles as its
    configuration, threads may share it, and it never shows a password or token, in a repr, an
    error, a recipe or a log line.

    Both methods raise :class:`~data_stack.exception.CatalogueError` and the errors derived from it.
    """

    @abstractmethod
    def find(
        self, name: CatalogueName, store: StorageConnector | None = None
    ) -> BaseDatasetFactory:
        """Return the factory of a dataset, e.g. a :class:`CatalogueDataset`.

        The factory tells what is known of the dataset before anything of it is retrieved.

        Its ``card.version`` is exact: the same version always means the same bytes. A name with
        such a version must find it again. ``card.name`` is ``name.folder``.

        Args:
            name: the name of the dataset; its version may be missing, or move, such as a branch.
            store: where the dataset may have been prepared before: without network
                (``data_stack.io.retriever.is_offline()``), the catalogue may read there what it has
                stored.

        Returns:
            A factory that has no store and pickles; copies of it get one.

        Raises:
            DatasetNotFoundError: the dataset is unknown; the message offers near names. Its
                subclass RevisionNotFoundError: the version or part is unknown.
        """

    @abstractmethod
    def search(self, text: str, limit: int = 20) -> list[CatalogueEntry]:
        """Return datasets that match some words, the best first.

        Args:
            text: what the user asks for.
            limit: how many at most.
        """

    def list_files(self, name: CatalogueName) -> Mapping[str, ResourceDefinition]:
        """Return the files of a repository by their paths.

        Documents such as those of Croissant name files by their paths.

        Args:
            name: the name of the repository; its version may be a branch.

        Returns:
            What to retrieve, of exactly one version; the identifiers are the caller's to replace.

        Raises:
            CatalogueError: as for :meth:`find`; also where the catalogue has no files by paths.
        """
        raise CatalogueError(
            f"the catalogue of {name.scheme}: does not list the files of {name}: update its package"
        )


class CatalogueDataset(DatasetFactory):
    """A dataset of a catalogue: a factory whose objects, not classes, declare what they are.

    Override ``open`` in a subclass.

    Args:
        card: its name (``CatalogueName.folder``), version, license and origin.
        splits: their names.
        sources: what to retrieve.
        description: what it is; the first line is its title.
    """

    _is_base_of_authors = True

    def __init__(
        self,
        card: DatasetCard,
        splits: Sequence[str],
        sources: Sequence[ResourceDefinition] = (),
        description: str = "",
    ) -> None:
        super().__init__(None)
        # On the object: these are class variables of a factory that an author writes.
        self.card = card  # type: ignore[misc]
        self.splits = tuple(splits)  # type: ignore[misc]
        self.sources = tuple(sources)  # type: ignore[misc]
        self.__doc__ = description
