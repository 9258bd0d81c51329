"""Seeds the global generators of random numbers in a process of the program."""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import os
import random
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

_SEED_BYTES = 16

#: The number of calls of :func:`draw_entropy`.
_numbers = itertools.count()


def draw_entropy(*facts: int) -> bytes:
    """Return entropy for the generators of other processes: other bytes in each call.

    If the program has imported torch, the bytes depend on torch's seed, on the facts and on the
    number of calls so far. So ``torch.manual_seed`` makes two runs of a program draw the same, as
    with torch's own workers; without it, torch draws its seed itself. If the program has not
    imported torch, the bytes come from the system.
    """
    if loaded_torch() is None:
        return os.urandom(_SEED_BYTES)
    return _digest(loaded_torch().initial_seed(), next(_numbers), *facts)


def seed_generators(entropy: bytes, *facts: int) -> None:
    """Seed the global generators of ``random``, numpy and torch.

    Those of numpy and torch are seeded as soon as ``numpy.random`` and ``torch`` are imported.

    A fork has the generators of its parent, so that all forks would draw the same numbers.

    Args:
        entropy: what :func:`draw_entropy` returned.
        facts: integers that distinguish this process, and what it works on, from others.
    """
    seeds = _digest(int.from_bytes(entropy, "little"), *facts)
    random.seed(seeds[:16])
    # Four numbers of 32 bits, little-endian.
    numpy_seeds = list(struct.unpack("<4I", seeds[16:32]))
    # torch takes 63 bits.
    torch_seed = int.from_bytes(seeds[32:40], "little") >> 1

    def seed_numpy(numpy_random: Any) -> None:
        numpy_random.seed(numpy_seeds)

    def seed_torch(torch: Any) -> None:
        torch.manual_seed(torch_seed)

    _call_after_import("numpy.random", _loaded_numpy_random(), seed_numpy, key="seed")
    _call_after_import("torch", loaded_torch(), seed_torch, key="seed")


def _digest(*numbers: int) -> bytes:
    """Return 64 bytes that all numbers and their order decide."""
    return hashlib.sha512(repr(numbers).encode()).digest()


def loaded_torch() -> Any:
    """Return torch if this process has imported it, as a whole; None otherwise."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "set_grad_enabled") else None


def call_with_torch(function: Callable[[Any], Any]) -> None:
    """Call a function with torch: now if torch is imported, otherwise as soon as it is.

    Args:
        function: called with the module. A later function replaces one that was not called yet.
    """
    _call_after_import("torch", loaded_torch(), function, key="settings")


def _loaded_numpy_random() -> Any:
    # numpy imports it when a program asks for ``numpy.random``.
    numpy_random = sys.modules.get("numpy.random")
    return numpy_random if hasattr(numpy_random, "seed") else None


def _call_after_import(
    name: str, loaded_module: Any, function: Callable[[Any], Any], *, key: str
) -> None:
    """Call a function with a module, now or as soon as it is imported.

    Args:
        name: of the module.
        loaded_module: the module; None if it is not imported.
        function: called with the module.
        key: a later function of the same key replaces one that was not called yet.
    """
    if loaded_module is not None:
        function(loaded_module)
        return
    finder = _installed_finder()
    finder.functions.setdefault(name, {})[key] = function


def _installed_finder() -> _Finder:
    """Return the finder of this process, which is installed at its first use."""
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            return finder
    new_finder = _Finder()
    sys.meta_path.insert(0, new_finder)
    return new_finder


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules where they are, and calls functions when their import is complete.

    A worker process that does not use torch must not import it, which takes seconds. One that does
    may import it inside of the user's function, which then works with our seed and settings.
    """

    #: The functions to call, by the names of modules, and by their keys.
    functions: dict[str, dict[str, Callable[[Any], Any]]]

    #: Modules that are being searched for, by this finder itself.
    _searched: set[str]

    def __init__(self) -> None:
        self.functions = {}
        self._searched = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec that other finders return, with a loader that calls the functions."""
        if name not in self.functions or name in self._searched:
            return None
        self._searched.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searched.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _CallingLoader(spec.loader, self, name)
        return spec


class _CallingLoader(importlib.abc.Loader):
    """The loader of a module, which calls the functions of a finder afterwards."""

    def __init__(self, loader: Any, finder: _Finder, name: str) -> None:
        self._loader = loader
        self._finder = finder
        self._name = name

    def __getattr__(self, name: str) -> Any:  # what else loaders have, such as get_source
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        """Return what the module's own loader returns."""
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """Run the module, then call the functions."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        # Not when the module was found: a program may only ask whether there is one.
        functions = self._finder.functions.pop(self._name, {})
        if not self._finder.functions and self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        for function in functions.values():
            function(module)
