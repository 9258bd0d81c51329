"""Finds out whether a store has the resource of a definition already."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from data_stack.exception import DatasetFileCorruptError, ResourceNotFoundError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever.delivery import RetrievedResource
from data_stack.io.storage_connectors.connector import StorageConnector, info_of
from data_stack.io.storage_connectors.storable import binary_chunks
from data_stack.util.logger import logger


def find_stored_resource(
    definition: ResourceDefinition,
    connector: StorageConnector,
    *,
    verify: bool,
    check_wanted: Callable[[], None],
) -> RetrievedResource | None:
    """Return the stored resource; None if it is missing, or not the one of the definition.

    Args:
        definition: the resource.
        connector: the store.
        verify: whether the bytes are compared with the digest that the store has recorded.
        check_wanted: called while the bytes are read; raises to end that.
    """
    identifier = definition.identifier
    try:
        info = info_of(connector, identifier)
        if info is None:
            return None
        if verify:
            info = connector.verify_resource(identifier)
        sha256 = info.sha256 or None
        md5 = None

        # If the store does not know the digest that the definition has, the bytes are read. That is
        # pointless if the size differs.
        has_right_size = definition.size in (None, info.size)
        if has_right_size and definition.sha256 is not None and sha256 is None:
            sha256 = _hash_stored(connector, identifier, "sha256", check_wanted)
        if has_right_size and definition.sha256 is None and definition.md5_sum is not None:
            md5 = _hash_stored(connector, identifier, "md5", check_wanted)
    except ResourceNotFoundError:
        return None  # deleted meanwhile
    except DatasetFileCorruptError as error:
        logger.warning("stored resource %r is retrieved again: %s", identifier, error)
        return None

    difference = _describe_difference(definition, info.size, sha256, md5)
    if difference is not None:
        logger.warning("stored resource %r has %s; it is retrieved again", identifier, difference)
        return None
    is_verified = definition.sha256 is not None or definition.md5_sum is not None
    return RetrievedResource(identifier, None, info.size, sha256, is_verified)


def _hash_stored(
    connector: StorageConnector,
    identifier: str,
    algorithm: str,
    check_wanted: Callable[[], None],
) -> str:
    """Read a stored resource, and return its digest in hexadecimal digits."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with connector.get_resource(identifier) as resource:
        for chunk in binary_chunks(resource):
            digest.update(chunk)
            check_wanted()
    return digest.hexdigest()


def _describe_difference(
    definition: ResourceDefinition, size: int, sha256: str | None, md5: str | None
) -> str | None:
    """Return how a stored resource differs from its definition, such as ``"size 3, expected 4"``.

    Returns:
        None if it does not differ, as far as is known.
    """
    if definition.size is not None and definition.size != size:
        return f"size {size}, expected {definition.size}"
    if definition.sha256 is not None and sha256 is not None and definition.sha256 != sha256:
        return f"sha256 {sha256}, expected {definition.sha256}"
    if definition.md5_sum is not None and md5 is not None and definition.md5_sum != md5:
        return f"md5 {md5}, expected {definition.md5_sum}"
    return None
