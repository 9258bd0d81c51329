"""The original's misspelt name of :mod:`data_stack.factories.preprocessor`."""

from __future__ import annotations

from data_stack.factories.preprocessor import PreprocessingHelpers

__all__ = ["PreprocessingHelpers"]
