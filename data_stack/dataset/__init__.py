"""Samples: the iterator contract, what can be stacked on an iterator, splits, encoders, reports, factories."""

from __future__ import annotations

# Layers, and what the methods of iterators call, put themselves into the registry: whichever module is the first, all are there.
import data_stack.dataset.encoding
import data_stack.dataset.iterator
import data_stack.dataset.recipes.recipe
import data_stack.dataset.reporting
import data_stack.dataset.reports.explanation
import data_stack.dataset.splits.parts  # noqa: F401
