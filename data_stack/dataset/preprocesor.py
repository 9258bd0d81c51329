"""The path of :mod:`data_stack.factories.preprocessor` in the original DataStack, misspelt there."""

from __future__ import annotations

from data_stack.factories.preprocessor import PreprocessingHelpers

__all__ = ["PreprocessingHelpers"]
