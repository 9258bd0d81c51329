"""Keeps what samples cost in a store, so that they are read only once."""

from __future__ import annotations

import hashlib
import os

import numpy as np

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layers.mapped import MappedDatasetIterator
from data_stack.dataset.recipes.fingerprint import fingerprint
from data_stack.dataset.recipes.stability import code_digest, instability_reason
from data_stack.exception import ConfigError
from data_stack.io.storage_connectors.connector import StorageConnector, read_if_stored
from data_stack.io.storage_connectors.url import storage_connector_from_url
from data_stack.loader.budgets.budget import Budget, Cost
from data_stack.loader.budgets.costs import Costs, is_column, narrow_costs, read_costs
from data_stack.util.logger import logger

#: The folder in the store.
_FOLDER = "costs"

#: The first bytes of a resource. Its last digit is the version of the format.
_MARK = b"data_stack costs 1\n"

_DIGEST_BYTES = 32

#: The sizes of integers that costs have, in bytes. One byte of a resource states the size.
_SIZES = (1, 2, 4, 8)


def costs_of(iterator: DatasetIteratorIF, budget: Budget) -> Costs:
    """Return what the samples of an iterator cost: as the budget's store knows it, or read now.

    A resource ``costs/<digest>.costs`` consists of a mark, a SHA-256 of the rest, a byte with the
    size of an integer, and the costs as little-endian unsigned integers. A damaged one is made
    again.

    Raises:
        ConfigError: as :func:`read_costs`; or the budget has a store, and the samples have no
            reliable fingerprint.
        StorageError: the store cannot be read or written to.
    """
    if budget.storage is None:
        return read_costs(iterator, budget.cost)
    storage = _connector_of(budget.storage)
    identifier = f"{_FOLDER}/{_find_name(iterator, budget.cost)}.costs"
    n_samples = len(iterator)
    max_bytes = len(_MARK) + _DIGEST_BYTES + 1 + max(_SIZES) * n_samples
    stored = read_if_stored(storage, identifier, max_bytes + 1)
    if stored is not None:
        costs = parse_costs(stored, n_samples)
        if costs is not None:
            return costs
        logger.warning("the costs %r in %r are damaged; they are made again", identifier, storage)
    costs = read_costs(iterator, budget.cost)
    storage.set_resource(identifier, format_costs(costs))
    return costs


def format_costs(costs: Costs) -> bytes:
    """Return the bytes that :func:`parse_costs` reads."""
    size = costs.dtype.itemsize
    content = bytes([size]) + costs.astype(f"<u{size}").tobytes()
    return _MARK + hashlib.sha256(content).digest() + content


def parse_costs(data: bytes, n_samples: int) -> Costs | None:
    """Return what :func:`format_costs` wrote; None if ``data`` is damaged, or of other samples."""
    start = len(_MARK) + _DIGEST_BYTES
    content = data[start:]
    if data[:start] != _MARK + hashlib.sha256(content).digest():
        return None
    size = content[0] if content else 0
    if size not in _SIZES or len(content) != 1 + size * n_samples:
        return None
    return narrow_costs(np.frombuffer(content, dtype=f"<u{size}", offset=1))


def _connector_of(storage: StorageConnector | str | os.PathLike[str]) -> StorageConnector:
    """Return the store that a path, a URL or a connector means.

    Raises:
        ConfigError: it is none of them.
    """
    if isinstance(storage, (str, os.PathLike)):
        return storage_connector_from_url(storage)
    if not isinstance(storage, StorageConnector):
        raise ConfigError(
            f"storage= takes a path, a URL or a StorageConnector, got {storage!r:.80}"
        )
    return storage


def _find_name(iterator: DatasetIteratorIF, cost: Cost) -> str:
    """Return a name that the samples, and what reads their costs, decide.

    Raises:
        ConfigError: the costs are an array, or their fingerprint is not reliable.
    """
    stack = iterator
    column = ""
    if is_column(cost):
        column = repr(cost)
    elif callable(cost):
        # The fingerprint of a map covers its function.
        stack = MappedDatasetIterator(iterator, cost)
    else:
        raise ConfigError("storage= keeps costs that are read; leave it out for an array of costs")
    reason = instability_reason(stack)
    if reason is not None:
        raise ConfigError(
            f"these samples have no reliable fingerprint ({reason}), so the costs in a store could "
            "be those of other samples. Put cache(storage=…, version='1') below, or leave out "
            "storage="
        )
    parts = [fingerprint(stack), str(code_digest(stack)), column]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
