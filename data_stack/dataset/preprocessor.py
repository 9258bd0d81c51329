"""The path of :mod:`data_stack.factories.preprocessor` in the original DataStack."""

from data_stack.factories.preprocessor import PreprocessingHelpers

__all__ = ["PreprocessingHelpers"]
