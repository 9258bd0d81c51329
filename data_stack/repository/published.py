"""Published datasets: the code of an installed plugin reads files that anyone may serve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from data_stack.exception import DatasetFileCorruptError, ResourceNotFoundError
from data_stack.formats.registry import format_of_file
from data_stack.io.folder import Folder
from data_stack.io.storage_connectors import StorageConnector
from data_stack.io.storage_connectors.url import split_cache
from data_stack.io.url import StorageURL
from data_stack.io.web.files import WebFiles
from data_stack.repository.licenses import check_license
from data_stack.repository.named_dataset import NamedDataset, has_prepared_resources
from data_stack.repository.published_description import DESCRIPTION, Pin, PublishedDescription
from data_stack.repository.published_store import (
    DescriptionStore,
    FolderFiles,
    PublishedFiles,
    PublishedStore,
)


@dataclass(frozen=True)
class Publication:
    """The files of a published dataset, whose plugin is not looked for yet.

    Attributes:
        description: what ``data_stack.json`` says.
        store: has the prepared resources, and cannot be written.
    """

    description: PublishedDescription
    store: StorageConnector


def open_folder(folder: Folder) -> Publication | None:
    """Open the published dataset in a folder; None if there is none.

    Raises:
        DatasetFileCorruptError: its description is damaged.
    """
    if not folder.has_file(DESCRIPTION):
        return None
    files = FolderFiles(folder)
    description = _read_description(DescriptionStore(files, pin=None), files, pin=None)
    return Publication(description, PublishedStore(files, description))


def is_published_on_web(url: StorageURL) -> bool:
    """Return whether a URL names a published dataset of a web server, not a single file.

    The suffix decides: ``https://example.org/train.csv`` is a file. With a pin, which files do not
    have, it is a published dataset.
    """
    if not url.is_web:
        return False
    if url.fragment:
        return True
    name = url.path.rpartition("/")[2]
    return format_of_file(unquote(name)) is None


def open_web(url: StorageURL) -> Publication:
    """Open the published dataset of a web server.

    Args:
        url: ``https://example.org/digits#sha256=…``, with a pin or without.
            ``?cache=/folder&cacheBytes=50GB`` before the ``#`` keeps what is read; the description
            is requested each time, with ``&cacheFresh=60`` once a minute, and with a pin once.

    Raises:
        ResourceNotFoundError: the web server has no published dataset there.
        DatasetFileCorruptError: its description is damaged; ChecksumMismatchError: it is not the
            pinned one.
        ConfigError: the text after ``#`` is not a pin, or the cache is malformed.
    """
    pin = Pin.parse(url.fragment)
    url = url.without_fragment()
    url, put_cache = split_cache(url)
    files = WebFiles(str(url))

    description_store: StorageConnector = DescriptionStore(files, pin)
    if put_cache is not None and pin is not None:
        # A pinned description stays as it is.
        description_store = put_cache(description_store, fresh_seconds=math.inf)
    elif put_cache is not None:
        description_store = put_cache(description_store)
    description = _read_description(description_store, files, pin)

    store: StorageConnector = PublishedStore(files, description)
    if put_cache is not None:
        # Asking the store whether a resource changed takes no request: the description says it.
        store = put_cache(store, fresh_seconds=0.0)
    return Publication(description, store)


def _read_description(
    store: StorageConnector, files: PublishedFiles, pin: Pin | None
) -> PublishedDescription:
    try:
        with store.get_resource(DESCRIPTION) as resource:
            data = bytes(resource.read())
    except ResourceNotFoundError:
        raise ResourceNotFoundError(
            f"{files!r} is not a published dataset: {DESCRIPTION}, which `data-stack publish` "
            f"writes, is missing; the URL of a single file ends with the suffix of its format, "
            f"such as .jsonl"
        ) from None
    if pin is not None:
        # Again, as these bytes may be those of the cache.
        pin.check(data, repr(files))
    return PublishedDescription.parse(data, repr(files))


@dataclass(frozen=True)
class PublishedDataset(NamedDataset):
    """A published dataset: its store is the folder or web server with the files.

    Attributes:
        license: the license that was published with the files.
    """

    license: str | None = None

    def check_license(self) -> None:
        """Refuse a dataset if its published license, or that of the plugin's card, is denied.

        Raises:
            LicenseDeniedError: see :func:`data_stack.policy`.
        """
        check_license(self.name, self.license)
        super().check_license()

    def load(
        self,
        split: str | Sequence[str] | None = None,
        *,
        progress: bool | None = None,
        **config: Any,
    ) -> Any:
        """Load the samples; see :func:`data_stack.load`.

        Raises:
            DatasetFileCorruptError: the plugin that is installed cannot read the files.
        """
        self.check_license()
        problem = self._find_problem()
        if problem is not None:
            raise DatasetFileCorruptError(
                f"the installed plugin cannot read {self.storage!r}: {problem}"
            )
        return super().load(split, progress=progress, **config)

    def _find_problem(self) -> str | None:
        """Return why the installed plugin cannot read the files; None if it can."""
        factory = self.factory
        if not has_prepared_resources(factory):
            return "its factory opens no prepared files"
        readiness = factory.readiness()
        if readiness.manifest is not None:
            return None
        return readiness.reason or "its version has no files there"
