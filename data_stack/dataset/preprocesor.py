"""The original's misspelt name of :mod:`data_stack.dataset.preprocessor`."""

from __future__ import annotations

from data_stack.dataset.preprocessor import PreprocessingHelpers

__all__ = ["PreprocessingHelpers"]
