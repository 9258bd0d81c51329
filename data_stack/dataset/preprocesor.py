"""The misspelt path of :mod:`data_stack.factories.base_factory` in the original DataStack."""

from __future__ import annotations

from data_stack.factories.base_factory import PreprocessingHelpers

__all__ = ["PreprocessingHelpers"]
