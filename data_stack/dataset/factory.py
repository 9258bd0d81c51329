"""The path of :mod:`data_stack.factories.factory` in the original DataStack."""

from data_stack.factories.factory import (
    BaseDatasetFactory,
    DatasetCard,
    DatasetFactory,
    HigherOrderDatasetFactory,
    InformedDatasetFactory,
)

__all__ = ["BaseDatasetFactory", "DatasetCard", "DatasetFactory", "HigherOrderDatasetFactory", "InformedDatasetFactory"]
