"""The path of :mod:`data_stack.factories.base_factory` in the original DataStack."""

from data_stack.factories.base_factory import (
    BaseDatasetFactory,
    HigherOrderDatasetFactory,
    InformedDatasetFactory,
)
from data_stack.factories.declarative import DatasetCard, DatasetFactory

__all__ = [
    "BaseDatasetFactory",
    "DatasetCard",
    "DatasetFactory",
    "HigherOrderDatasetFactory",
    "InformedDatasetFactory",
]
