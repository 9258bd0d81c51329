"""Datasets by name."""

from __future__ import annotations

from data_stack.repository.default_storage import default_storage, storage_connector_from_url
from data_stack.repository.description import DatasetDescription
from data_stack.repository.repository import DatasetRepository, default_repository

__all__ = [
    "DatasetDescription",
    "DatasetRepository",
    "default_repository",
    "default_storage",
    "storage_connector_from_url",
]
