"""Croissant, the vocabulary of MLCommons for datasets (https://docs.mlcommons.org/croissant).

Programs call :func:`data_stack.from_croissant` and :func:`data_stack.to_croissant`, which are
those of this package. Writing does not import mlcroissant, which takes seconds.
"""

from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
