"""Metadata and row-group indexes of datasets."""

from __future__ import annotations

__all__ = ["RowGroupIndexerBase"]


class RowGroupIndexerBase:
    """Base of the two row-group indexes of :mod:`data_stack_petastorm.etl.rowgroup_indexers`."""
