"""Samples behind one interface, and what can be stacked on it."""

from __future__ import annotations

from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

# Every iterator has methods that look up layers and operations by name: all modules that register some are imported now.
from data_stack.dataset import encoding, reporting  # noqa: E402, F401
from data_stack.dataset.display import methods, page  # noqa: E402, F401
from data_stack.dataset.recipes import recipe  # noqa: E402, F401
from data_stack.dataset.reports import explanation, licences  # noqa: E402, F401
from data_stack.dataset.splits import parts  # noqa: E402, F401

for _name in __all__:
    __getattr__(_name)
