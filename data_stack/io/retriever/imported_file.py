"""Stores a file that was downloaded by other means."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Literal

from data_stack.exception import ConfigError, RetrievalError
from data_stack.io.redaction import hide_credentials
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever.delivery import RetrievedResource, deliver
from data_stack.io.retriever.file import copy_file
from data_stack.io.retriever.transfer import SourceError
from data_stack.io.storage_connectors.connector import StorageConnector


def import_file(
    definition: ResourceDefinition | str,
    path: str | os.PathLike[str],
    storage_connector: StorageConnector,
    *,
    sha256: str | None = None,
    md5_sum: str | None = None,
) -> RetrievedResource:
    """Verify and store a file that was downloaded by other means; replaces a stored one.

    Args:
        definition: the resource, or just its identifier.
        path: the file.
        storage_connector: the store.
        sha256: expected SHA-256, if the definition has none.
        md5_sum: expected MD5, if the definition has none.

    Raises:
        ChecksumMismatchError: the file has another digest; nothing was stored.
        RetrievalError: the file cannot be read.
        ConfigError: the definition has other digests than the arguments.
    """
    if isinstance(definition, str):
        definition = ResourceDefinition(definition, "")
    path = os.fspath(path)
    definition = replace(
        definition,
        source=path,
        mirrors=(),
        sha256=_combine_digests(definition, "sha256", sha256),
        md5_sum=_combine_digests(definition, "md5_sum", md5_sum),
    )
    try:
        return deliver(definition, path, copy_file, storage_connector)
    except SourceError as error:
        raise RetrievalError(
            definition.identifier, [(hide_credentials(path), str(error))]
        ) from error


def _combine_digests(
    definition: ResourceDefinition, field: Literal["sha256", "md5_sum"], expected: str | None
) -> str | None:
    """Return the digest of a definition, or else the one that the caller expects.

    Raises:
        ConfigError: there are two, and they differ.
    """
    defined = getattr(definition, field)
    if defined is None:
        return expected
    if expected is not None and expected.lower() != defined:
        raise ConfigError(
            f"{definition.identifier!r} is defined with {field} {defined}, not {expected.lower()}"
        )
    return str(defined)
