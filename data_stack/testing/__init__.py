"""Test suites of the interfaces, for authors of plugins to inherit.

::

    from data_stack.testing import StorageConnectorContract

    class TestMyStorageConnector(StorageConnectorContract):
        @pytest.fixture
        def connector(self, tmp_path: Path) -> StorageConnector:
            return MyStorageConnector(tmp_path)

A contract is a class whose tests say what the interface promises: their names and docstrings are
the documentation. Needs the extra ``testing``: pytest.
"""

from __future__ import annotations

from data_stack.exception import MissingDependencyError

try:
    import pytest
except ImportError as error:
    raise MissingDependencyError("data_stack.testing", "pytest", "testing") from error

# Before any of them is imported: a failed assert then shows its values, as in a test module.
pytest.register_assert_rewrite(
    f"{__name__}.codec",
    f"{__name__}.comparing",
    f"{__name__}.dataset",
    f"{__name__}.dataset_iterator",
    f"{__name__}.encoder",
    f"{__name__}.engine",
    f"{__name__}.layer",
    f"{__name__}.retriever",
    f"{__name__}.sharded_numbers",
    f"{__name__}.storage_connector",
)

from data_stack.testing.codec import CodecContract  # noqa: E402
from data_stack.testing.dataset import DatasetContract  # noqa: E402
from data_stack.testing.dataset_iterator import DatasetIteratorContract  # noqa: E402
from data_stack.testing.encoder import EncoderContract  # noqa: E402
from data_stack.testing.engine import EngineContract  # noqa: E402
from data_stack.testing.layer import LayerContract  # noqa: E402
from data_stack.testing.retriever import RetrieverContract  # noqa: E402
from data_stack.testing.storage_connector import StorageConnectorContract  # noqa: E402

__all__ = [
    "CodecContract",
    "DatasetContract",
    "DatasetIteratorContract",
    "EncoderContract",
    "EngineContract",
    "LayerContract",
    "RetrieverContract",
    "StorageConnectorContract",
]
