"""Contact sheets and reports of datasets."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_stack.display.contact_sheet import contact_sheet
    from data_stack.display.report import DatasetReport

__all__ = ["DatasetReport", "contact_sheet"]

_MODULES = {"contact_sheet": "contact_sheet", "DatasetReport": "report"}


def __getattr__(name: str) -> Any:
    """Import Pillow and numpy when a picture is asked for, not before (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # also undoes that importing the submodule puts the module under its name
    return value
