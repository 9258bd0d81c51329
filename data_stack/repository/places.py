"""Files or folders as datasets: ``data_stack.load("./pictures")`` recognises their format, opens them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from data_stack.dataset.recipes.nodes import note_place
from data_stack.exception import ConfigError, DataStackError, UnknownSplitError
from data_stack.formats.opening import open_as as open_as
from data_stack.formats.opening import open_splits
from data_stack.formats.place_accounts import (
    account_beside,
    account_of_datasets,
    check_no_split_is_left_out,
)
from data_stack.formats.place_splits import find_places
from data_stack.formats.registry import format_of_file, stem_of_file
from data_stack.io.location import Location, location_of, location_of_url
from data_stack.io.progress import progress_as
from data_stack.io.storage_connectors import StorageConnector
from data_stack.io.url import scheme_of
from data_stack.io.web import is_web
from data_stack.repository.default_storage import as_storage_connector, storage_connector_from_url
from data_stack.repository.published import PublishedDataset, open_published
from data_stack.repository.split_expressions import load_expression
from data_stack.show.markup import Block, Document, Facts, Heading, Paragraph
from data_stack.util.suggestions import did_you_mean


@dataclass(frozen=True, slots=True)
class DatasetDescription(Document):
    """The facts of a dataset that are known without preparing it. It prints as text, and shows as HTML in a notebook.

    Attributes:
        name: to load it by.
        version: of its prepared data; None for legacy factories, like all that follows.
        description: docstring of its factory, may be empty.
        license: an SPDX identifier or a sentence.
        homepage: where to read about it.
        citation: how to cite it.
        splits: their names; empty if the factory does not declare them.
        options: configuration keys besides ``split``, with their defaults, e.g. ``("scaled=False",)``.
        class_names: names of the classes of targets; empty if the factory does not declare them.
        distribution: the installed package that provides it; None if this program registered it.
        distribution_version: its version.
        left_out: of a place, the files and folders that are not read and may be data, each with the rule that leaves it out.
    """

    name: str
    version: str | None = None
    description: str = ""
    license: str | None = None
    homepage: str | None = None
    citation: str | None = None
    splits: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    distribution: str | None = None
    distribution_version: str | None = None
    left_out: tuple[str, ...] = ()

    def document(self, level: int = 1) -> list[Block]:
        """Name, description and facts; ``level`` is that of the heading."""
        return [*self.header(level), Facts(self.facts())]

    def header(self, level: int) -> list[Block]:
        """Name, version, and the first paragraph of the description."""
        title: list[Block] = [Heading(level, f"{self.name} {self.version or ''}".rstrip())]
        return (
            [*title, Paragraph(self.description.partition("\n\n")[0])]
            if self.description
            else title
        )

    def facts(self) -> list[tuple[str, str]]:
        """Those that are known, by their names."""
        package = f"{self.distribution} {self.distribution_version}" if self.distribution else None
        facts = [
            ("license", self.license),
            ("homepage", self.homepage),
            ("citation", self.citation),
        ]
        facts += [
            ("splits", ", ".join(self.splits)),
            ("options", ", ".join(self.options)),
            ("from", package),
            ("left out", _listed(self.left_out)),
        ]
        return [(name, fact) for name, fact in facts if fact]


def _listed(texts: Sequence[str]) -> str:
    """The first few of some texts, and the number of the others."""
    shown = "; ".join(texts[:3])
    return shown if len(texts) <= 3 else f"{shown} and {len(texts) - 3:,} more"


def is_place(name: Any) -> bool:
    """Whether a name is a path or URL: a ``Path``, or a text with ``://`` or such a beginning or end.

    A path begins with ``./``, ``../``, ``/`` or ``~``, or ends with ``/``.

    All other names are those of datasets, so that no file or folder hides a dataset.
    """
    if not isinstance(name, str):
        return isinstance(name, os.PathLike)
    if name in (".", "..") or name.startswith(("./", "../", "/", "~")):
        return True
    return name.endswith("/") or "://" in name


def locate(text: str) -> Any:
    """A path or URL as it is, or a place in a store, also of a plugin's scheme: ``mongodb://host/database/sets/train``.

    Raises:
        ConfigError: it is a URL that names nothing in a store.
    """
    if "://" not in text or scheme_of(text) in ("file", "hdfs", "viewfs"):
        return text
    return location_of_url(text, storage_connector_from_url)


@dataclass(frozen=True)
class Place:
    """Files at a path or URL, which are opened as they are.

    Attributes:
        name: the path or URL; or a name in a store.
        location: of the name in the store; None for a path or URL.
    """

    name: str
    location: Location | None = None

    version = None

    @property
    def factory(self) -> NoReturn:
        """A place has no factory: ConfigError."""
        raise ConfigError(
            f"{self.name!r:.200} is a file or folder, which has no factory; load, show or browse it"
        )

    def find_published(self) -> tuple[PublishedDataset, StorageConnector] | None:
        """The published dataset here, see :func:`~data_stack.repository.published.open_published`; None without one."""
        if is_web(self.name):
            return open_published(self.name)
        vars(self)["_location"] = location = self._locate()
        return open_published(location)

    def _locate(self) -> Location:
        """Where it is. What it was asked for at first serves the next question too: listing takes a request of a store."""
        known: Location | None = vars(self).pop("_location", None)
        return known or (self.location or location_of_place(self.name)).listed()

    def describe(self) -> DatasetDescription:
        """The path, the splits and what is left out; raises as :func:`find_places`."""
        place = self._locate()
        found = find_places(place)
        accounts = [account_beside(place, found), *account_of_datasets(found.values())]
        left_out = [
            f"{account.place.rstrip('/')}: {item.name!r} ({item.rule})"
            for account in accounts
            for item in account.unexplained
        ]
        return DatasetDescription(
            self.name,
            description="Files at a place.",
            splits=tuple(name for name, files in found.items() if not files.is_place),
            left_out=tuple(left_out),
        )

    def check_license(self) -> None:
        """Files have no card, so no policy applies."""

    def load(
        self,
        split: str | Sequence[str] | None = None,
        *,
        progress: bool | None = None,
        **options: Any,
    ) -> Any:
        """The samples; those of a CSV or JSON lines file are read at once, others when they are used.

        Args:
            split: of a folder with a file or folder for each split, such as ``train.csv`` and ``test.csv``; None for all splits.
                See :func:`data_stack.load`.
            progress: draw bars.
            options: ``format``, the name of a format, otherwise detected by names and contents; ``target``, the column of the
                target; ``columns``, a selection in this order; the options of :func:`data_stack.from_csv`,
                :func:`data_stack.from_jsonl` and :func:`data_stack.from_folder`; of Parquet ``nulls``, see
                :class:`~data_stack.formats.parquet.ParquetDataset`.

        Returns:
            An iterator; of a folder with splits a dict of one for each, unless ``split`` names one.

        Raises:
            ConfigError: the place is empty, its format is not recognised, or it lacks the column or option.
            UnknownSplitError: the place has no such split.
            DatasetFileCorruptError: a file is damaged, or of another format.
        """
        with progress_as(progress):
            return load_expression(
                partial(self._open, **options), split, lambda: self._splits(options.get("format"))
            )

    def _splits(self, kind: str | None = None) -> tuple[str, ...]:
        place = self._locate()
        return tuple(name for name, files in find_places(place, kind).items() if not files.is_place)

    def _open(
        self,
        split: str | None,
        *,
        format: str | None = None,  # noqa: A002  # what users call it
        target: str | None = None,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> Any:
        place = self._locate()
        found = find_places(place, format)
        is_one = next(iter(found.values())).is_place
        if split is not None and split not in found:
            known = "none: it is one dataset" if is_one else ", ".join(found)
            hint = f"{did_you_mean(split, found)}; its splits are {known}"
            raise UnknownSplitError(f"{place.full_name} has no split {split!r:.60}{hint}")
        if format is None:  # a user who says the format wants nothing else
            account = account_beside(place, found)
            check_no_split_is_left_out(account, found)
            account.warn()
        chosen = list(found) if split is None else [split]
        opened = open_splits(found, chosen, target, columns, options)
        if place.path is not None:
            given = {"format": format, "target": target, "columns": columns, **options}
            passed = {name: value for name, value in given.items() if value is not None}
            for name, iterator in opened.items():
                note_place(iterator, str(place.path), None if is_one else name, passed)
        if split is not None or is_one:
            return next(iter(opened.values()))
        from data_stack.show.page import Splits  # takes as long to import as a fifth of the rest

        return Splits(opened)


def format_of_name(name: str) -> str | None:
    """The format of a file by the suffix of its name; None if the suffix is unknown."""
    known = format_of_file(name)
    return None if known is None else known.name


def stem_of_name(name: str) -> str:
    """The name of a file without the suffix of its format; another name as it is: ``a.b`` of ``a.b.csv.gz``, and of ``a.b``."""
    return stem_of_file(name)


def location_of_place(source: str | os.PathLike[str]) -> Location:
    """The location of a path or URL; ``~`` is the home folder."""
    return location_of(locate(os.path.expanduser(os.fspath(source))))


def find_in_store(name: str, storage: Any) -> Place | None:
    """The records or Parquet that a program wrote into a store under a name, or under the names of splits in it; None without."""
    try:
        place = location_of((as_storage_connector(storage), name))
        found = find_places(place)
    except DataStackError:  # no place has such a name, the store is away, or nothing is there
        return None
    return (
        Place(name, place)
        if {files.kind for files in found.values()} <= {"records", "parquet"}
        else None
    )
