"""The functions that fetch sources, by scheme: files of this machine or of installed packages, the web, what plugins know."""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

from data_stack.exception import ConfigError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever.http import fetch_http
from data_stack.io.retriever.transfer import Fetch, SourceError, Transfer
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.io.url import StorageURL, redact, shorten
from data_stack.io.web import Limits
from data_stack.io.work import Workers
from data_stack.util.interrupts import open_descriptor

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # two letters at least: C: is a drive
_OFFLINE: Final = "DATA_STACK_OFFLINE"


def fetch_file(source: str, transfer: Transfer) -> None:
    """Copy a file, named by its path or by a ``file://`` URL (percent-encoded, of this host)."""
    url = StorageURL.parse(source)
    try:
        path = source if url is None or url.scheme != "file" else url.local_path()
    except ConfigError as error:
        raise SourceError(str(error)) from None
    copy_file(path, transfer)


def copy_file(path: str, transfer: Transfer) -> None:
    """Copy the regular file at ``path``."""
    with contextlib.ExitStack() as exits:
        try:
            # stat first: opening a device may have effects, opening a fifo waits for a writer.
            _check_regular(os.stat(path).st_mode)
            handle = exits.enter_context(open_descriptor(path, os.O_NONBLOCK))
        except OSError as error:
            raise SourceError(error.strerror or str(error)) from error
        before = os.fstat(handle)
        _check_regular(before.st_mode)
        if transfer.expected_size is not None and transfer.expected_size != before.st_size:
            raise SourceError(f"has {before.st_size:,} bytes, expected {transfer.expected_size:,}")
        transfer.expected_size = before.st_size
        buffer = memoryview(bytearray(min(1 << 20, before.st_size + 1)))
        while n_read := os.readv(handle, [buffer]):
            transfer.write(buffer[:n_read])
        after = os.fstat(handle)
    if (after.st_size, after.st_mtime_ns) != (
        before.st_size,
        before.st_mtime_ns,
    ) or transfer.size != after.st_size:
        raise SourceError("changed while it was read")


def _check_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise SourceError("is a folder; name its files")
    if not stat.S_ISREG(mode):
        raise SourceError("is not a regular file")


def fetch_package(source: str, transfer: Transfer) -> None:
    """Copy a file of an installed package: ``package:sklearn/datasets/data/iris.csv``.

    It runs no code of the package; the import finders locate its folder.
    """
    package, *names = source.partition(":")[2].split("/")
    # find_spec() would import the parents of a submodule.
    if (
        not package.isidentifier()
        or not names
        or any(name in ("", ".", "..") or "\\" in name for name in names)
    ):
        raise SourceError("not of the form package:NAME/folder/file")
    spec = find_spec(package)
    if spec is None:
        raise SourceError(f"no package {package!r} is installed here")
    for folder in spec.submodule_search_locations or ():
        path = os.path.join(folder, *names)
        if os.path.lexists(path):
            return copy_file(path, transfer)
    raise SourceError(f"the installed package {package!r} has no file {'/'.join(names)}")


#: Sources without a scheme are paths.
_LOCAL: Final[Mapping[str, Fetch]] = MappingProxyType(
    {"": fetch_file, "file": fetch_file, "package": fetch_package}
)
#: Functions that copy files of this machine, which are not worth resuming.
_COPYING: Final = (fetch_file, fetch_package, copy_file)
HTTP: Final[Mapping[str, Fetch]] = MappingProxyType({"http": fetch_http, "https": fetch_http})
_registered: dict[str, Fetch] = {}


def register_scheme(scheme: str, fetch: Fetch) -> None:
    """Let ``retrieve()`` fetch sources ``scheme:…`` with ``fetch`` in this process; for plugins.

    Raises:
        ConfigError: ``scheme`` is invalid, or taken by another function.
    """
    scheme = scheme.lower()
    if not _SCHEME.fullmatch(scheme + ":"):
        raise ConfigError(
            f"{scheme!r} is not a valid scheme: at least two of 'a-z0-9+.-', beginning with a letter"
        )
    if scheme in _LOCAL or scheme in HTTP or _registered.setdefault(scheme, fetch) is not fetch:
        raise ConfigError(f"the scheme {scheme!r} is already taken")


def fetcher_of(
    source: str, fetchers: Mapping[str, Fetch] | None = None, *, offline: bool
) -> tuple[Fetch, bool]:
    """The function that fetches ``source``, and whether it uses local files only.

    Raises:
        SourceError: the scheme is unknown, or needs the network in spite of ``offline``.
    """
    fetchers = {**_registered, **HTTP, **_LOCAL} if fetchers is None else fetchers
    match = _SCHEME.match(source)
    scheme = match[1].lower() if match else ""
    if scheme not in fetchers and os.path.lexists(source):
        scheme = ""  # a path with a colon in it
    if scheme not in fetchers:
        known = ", ".join(sorted(f"{scheme}:" if scheme else "paths" for scheme in fetchers))
        raise SourceError(f"has an unknown scheme; sources may be {known}")
    if offline and scheme not in _LOCAL:
        raise SourceError(f"not tried, as offline=True or {_OFFLINE} is set in the environment")
    return fetchers[scheme], scheme in _LOCAL


def may_be_resumed(fetch: Fetch, *, has_digest: bool) -> bool:
    """Whether what a function fetches may be resumed by a later retrieval, which a digest must verify.

    A function of a plugin may learn the digest from its source: :meth:`Transfer.expect`.
    """
    if fetch is fetch_http:
        return has_digest
    return fetch not in _COPYING


def is_offline() -> bool:
    """Whether the environment variable DATA_STACK_OFFLINE says to use no network."""
    return os.environ.get(_OFFLINE, "").strip().lower() not in ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """A resource that would be retrieved, or is stored.

    Attributes:
        identifier: its name.
        size: bytes that its source announces, or else those of the definition; None if neither is known.
        is_stored: whether the store has it; its bytes are compared with its digest when it is used.
        source: the first of its sources that sent its first bytes, without credentials; None if it is stored, or if none did.
        refusals: ``(source, reason)`` of each source before that one.
    """

    identifier: str
    size: int | None
    is_stored: bool
    source: str | None = None
    refusals: tuple[tuple[str, str], ...] = ()


def ask_sources(
    definitions: Sequence[ResourceDefinition],
    *,
    offline: bool | None = None,
    timeout_seconds: float = 10.0,
) -> list[PlannedSource]:
    """Ask the sources of each resource in turn until one sends its first bytes, which are discarded.

    Args:
        definitions: the resources, of different identifiers.
        offline: use no network; None: as ``DATA_STACK_OFFLINE`` says.
        timeout_seconds: longest silence of a source.

    Returns:
        One entry for each definition, in their order.
    """
    answers: dict[str, PlannedSource] = {}
    offline = is_offline() if offline is None else offline

    def ask(definition: ResourceDefinition) -> None:
        refusals: list[tuple[str, str]] = []
        for source in map(os.fsdecode, definition.sources):
            writer, limits = (
                ResourceWriter(definition.identifier, io.BytesIO()),
                Limits(n_retries=1),
            )
            transfer = _FirstBytes(
                definition, writer, timeout_seconds=timeout_seconds, limits=limits
            )
            reason = ""
            try:
                fetcher_of(source, offline=offline)[0](source, transfer)
            except Exception as error:  # noqa: BLE001  # fetchers may raise anything
                kind = "" if isinstance(error, SourceError) else f"{type(error).__name__}: "
                reason = redact(f"{kind}{error}"[:300], source)
            if transfer.has_answered or not reason:
                name, size = definition.identifier, transfer.expected_size
                answers[name] = PlannedSource(name, size, False, shorten(source), tuple(refusals))
                return
            refusals.append((shorten(source), reason))
        answers[definition.identifier] = PlannedSource(
            definition.identifier, definition.size, False, None, tuple(refusals)
        )

    Workers(definitions, ask, 4).run()
    return [answers[definition.identifier] for definition in definitions]


class _FirstBytes(Transfer):
    """A transfer that ends with the first bytes."""

    has_answered = False

    def write(self, data: object) -> None:
        self.has_answered = True
        raise SourceError("answered")
