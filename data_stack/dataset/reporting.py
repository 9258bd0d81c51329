"""The path of :mod:`data_stack.show.reporting` in the original DataStack."""

from data_stack.show.reporting import DatasetIteratorReportGenerator

__all__ = ["DatasetIteratorReportGenerator"]
