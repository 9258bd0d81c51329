"""Chooses the client for a store: obstore, or the file system of fsspec."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, Final

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.io.storage_connectors.object_store.azure_account import AZURE_PROTOCOLS

OBSTORE: Final = "obstore"
FSSPEC: Final = "fsspec"

_S3_OPTIONS: Final = frozenset(
    {"endpoint_url", "key", "secret", "token", "anon", "profile", "client_kwargs"}
)
_GS_OPTIONS: Final = frozenset({"access", "endpoint_url", "project", "token"})
_AZ_OPTIONS: Final = frozenset(
    {
        "account_host",
        "account_key",
        "account_name",
        "anon",
        "client_id",
        "client_secret",
        "connection_string",
        "endpoint_url",
        "sas_token",
        "tenant_id",
    }
)
#: The schemes that obstore serves, and the options of their file systems that it has, too.
OBSTORE_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "s3": _S3_OPTIONS,
    "s3a": _S3_OPTIONS,
    "gs": _GS_OPTIONS,
    "gcs": _GS_OPTIONS,
    **dict.fromkeys(AZURE_PROTOCOLS, _AZ_OPTIONS),
}
_CLIENT_ARGUMENTS: Final = {"region_name", "endpoint_url"}
#: Buckets of S3 Express One Zone have sessions of their own.
_EXPRESS_SUFFIX: Final = "--x-s3"


def choose_client(
    client: str | None,
    protocol: str,
    bucket: str,
    options: Mapping[str, Any],
    *,
    is_installed: bool,
) -> str:
    """Return the client for a store.

    Args:
        client: the wanted client; None: obstore for S3, Google and Azure, where it serves the store
            and is installed.
        protocol: the scheme of the URL.
        bucket: the bucket.
        options: the arguments of the file system of fsspec.
        is_installed: whether obstore is installed.

    Raises:
        ConfigError: the wanted client does not exist, or does not serve the store.
        MissingDependencyError: the wanted client is not installed.
    """
    if client not in (None, OBSTORE, FSSPEC):
        raise ConfigError(f"client must be {OBSTORE!r} or {FSSPEC!r}")
    if client == FSSPEC:
        return FSSPEC
    reason = why_not_obstore(protocol, bucket, options)
    if client is None:
        return OBSTORE if reason is None and is_installed else FSSPEC
    if reason is not None:
        raise ConfigError(f"the client {OBSTORE!r} {reason}; use the client {FSSPEC!r}")
    if not is_installed:
        raise MissingDependencyError(f"the client {OBSTORE!r}", OBSTORE, "s3")
    return OBSTORE


def why_not_obstore(protocol: str, bucket: str, options: Mapping[str, Any]) -> str | None:
    """Return why obstore does not serve a store; None if it does."""
    known_options = OBSTORE_OPTIONS.get(protocol)
    if known_options is None:
        return f"does not know the scheme {protocol}://"
    if bucket.endswith(_EXPRESS_SUFFIX):
        return "does not serve buckets of S3 Express"
    unknown_options = set(options) - known_options
    client_arguments = options.get("client_kwargs") or {}
    unknown_options.update(set(client_arguments) - _CLIENT_ARGUMENTS)
    if unknown_options:
        return f"does not know the options {', '.join(sorted(unknown_options))}"
    return None


def is_obstore_installed() -> bool:
    """Return whether obstore is installed. It is not imported."""
    return importlib.util.find_spec(OBSTORE) is not None
