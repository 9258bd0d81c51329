"""What is made beside the files of a dataset: metadata and row-group indexes."""

from __future__ import annotations

__all__ = ["RowGroupIndexerBase"]


class RowGroupIndexerBase:
    """Which row groups hold what. There are two: see :mod:`data_stack_petastorm.etl.rowgroup_indexers`."""
