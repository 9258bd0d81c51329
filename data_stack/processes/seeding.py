"""Seeds the global generators of random numbers in a process of the program."""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import os
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

_SEED_BYTES = 16

#: The number of calls of :func:`draw_entropy`.
_numbers = itertools.count()


def draw_entropy(*facts: int) -> bytes:
    """Return entropy for the generators of other processes: other bytes in each call.

    A program that has imported torch decides by ``torch.manual_seed`` whether its runs repeat each
    other, as with torch's own workers: the bytes depend on that seed, which torch draws itself in
    other programs, on the facts and on the number of calls. They come from the system otherwise.
    """
    if loaded_torch() is None:
        return os.urandom(_SEED_BYTES)
    return _digest(loaded_torch().initial_seed(), next(_numbers), *facts)


def seed_generators(entropy: bytes, *facts: int) -> None:
    """Seed the global generators of ``random``, numpy and torch; torch's once it is imported.

    A fork has the generators of its parent, so that all forks would draw the same numbers.

    Args:
        entropy: what :func:`draw_entropy` returned.
        facts: integers that distinguish this process, and what it works on, from others.
    """
    seeds = _digest(int.from_bytes(entropy, "little"), *facts)
    random.seed(seeds[:16])
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        words = [int.from_bytes(seeds[at : at + 4], "little") for at in range(16, 32, 4)]
        numpy_random.seed(words)
    torch_seed = int.from_bytes(seeds[32:40], "little") >> 1
    call_with_torch(lambda torch: torch.manual_seed(torch_seed), key="seed")


def _digest(*numbers: int) -> bytes:
    return hashlib.sha512(repr(numbers).encode()).digest()


def loaded_torch() -> Any:
    """Return torch if this process has imported it, as a whole; None otherwise."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "set_grad_enabled") else None


def call_with_torch(function: Callable[[Any], Any], *, key: str = "settings") -> None:
    """Call a function with torch: now if torch is imported, otherwise as soon as it is.

    Args:
        function: called with the module.
        key: a later function of the same key replaces one that has not been called.
    """
    torch = loaded_torch()
    if torch is not None:
        function(torch)
        return
    for finder in sys.meta_path:
        if isinstance(finder, _TorchFinder):
            break
    else:
        finder = _TorchFinder()
        sys.meta_path.insert(0, finder)
    finder.functions[key] = function


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Finds torch where it is, and calls functions when its import is complete.

    A worker process that does not use torch must not import it, which takes seconds; one that does
    may import it inside of the user's function, which then works with torch's own settings.
    """

    def __init__(self) -> None:
        self.functions: dict[str, Callable[[Any], Any]] = {}
        self._is_searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch" or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _CallingLoader(spec.loader, self)
        return spec


class _CallingLoader(importlib.abc.Loader):
    """The loader of a module, which calls the functions of a finder afterwards."""

    def __init__(self, loader: Any, finder: _TorchFinder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:  # what else loaders have, such as get_source
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        sys.meta_path.remove(self._finder)
        for function in self._finder.functions.values():
            function(module)
