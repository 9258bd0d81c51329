"""Frees what stores keep of replaced content and of writers that died."""

from __future__ import annotations

from data_stack.io.storage_connectors.connector import Garbage
from data_stack.repository.default_storage import Storage, as_storage_connector, check_there


def collect_garbage(
    storage: Storage | None = None, grace_seconds: float = 86_400.0, *, dry_run: bool = False
) -> list[Garbage]:
    """Remove replaced content and leftovers of dead writers.

    Other processes may read and write meanwhile.

    Args:
        storage: a connector, URL or path; None for the default store.
        grace_seconds: keep content that was replaced since, for its readers.
        dry_run: only report what would be removed.

    Returns:
        The items that were removed, or would be.

    Raises:
        StorageError: the place of the store does not exist, or the store failed.
    """
    connector = as_storage_connector(storage)
    # The default store is made when it is first used.
    check_there(connector, may_be_new=storage is None)
    return connector.collect_garbage(grace_seconds, dry_run=dry_run)
