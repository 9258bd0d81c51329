"""Stands in for torchvision and transformers, which MosaicML Streaming imports and these programs
do not use.

torchvision has no build without CUDA for the torch of the benchmarks.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any


class _StandIn(ModuleType):
    """A module that has a class for every name."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in ("torchvision", "transformers"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None: ...


def use_stand_ins() -> None:
    """Import stand-ins from now on, in this process."""
    sys.meta_path.insert(0, _Finder())
