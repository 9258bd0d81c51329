"""Datasets from one format into another: streamed, resumable, and held against their source afterwards."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_stack.formats.conversion.conversion import ConversionReport, convert
    from data_stack.formats.conversion.location import FORMATS

_MODULES = {
    "FORMATS": "location",
    "ConversionReport": "conversion",
    "convert": "conversion",
}

__all__ = ["FORMATS", "ConversionReport", "convert"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
