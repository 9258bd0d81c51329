"""Samples behind one interface, and what can be stacked on it."""

from __future__ import annotations

from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(
    __name__, __file__, earlier_names={"Column": "ColumnArray"}
)
