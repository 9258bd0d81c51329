"""What our interfaces promise, as test suites that the authors of plugins inherit.

::

    from data_stack.testing import StorageConnectorContract

    class TestMyStorageConnector(StorageConnectorContract):
        @pytest.fixture
        def connector(self, tmp_path: Path) -> StorageConnector:
            return MyStorageConnector(tmp_path)

Needs pytest and nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from data_stack.exception import MissingDependencyError

try:
    import pytest
except ImportError as error:
    raise MissingDependencyError("data_stack.testing", "pytest", "test") from error

if TYPE_CHECKING:
    from data_stack.testing.factories import DatasetFactoryContract
    from data_stack.testing.iterators import DatasetIteratorContract
    from data_stack.testing.storage import StorageConnectorContract

__all__ = ["DatasetFactoryContract", "DatasetIteratorContract", "StorageConnectorContract"]

_MODULES = {
    "DatasetFactoryContract": "data_stack.testing.factories",
    "DatasetIteratorContract": "data_stack.testing.iterators",
    "StorageConnectorContract": "data_stack.testing.storage",
}

# Before any of them is imported: a failed assert then shows its values, as in a test module.
pytest.register_assert_rewrite(*_MODULES.values(), "data_stack.testing.storage_samples", "data_stack.testing.storage_upkeep")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
