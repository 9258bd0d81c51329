"""Samples behind one interface, and what can be stacked on it."""

from __future__ import annotations

from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)


def import_all() -> None:
    """Import all modules that register layers, or operations, which iterators look up by name."""
    from data_stack.dataset import encoding, reporting  # noqa: F401
    from data_stack.dataset.display import methods, page  # noqa: F401
    from data_stack.dataset.recipes import recipe  # noqa: F401
    from data_stack.dataset.reports import explanation, licences  # noqa: F401
    from data_stack.dataset.splits import parts  # noqa: F401

    for name in __all__:
        __getattr__(name)
