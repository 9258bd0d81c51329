"""A file system that does not tell upper from lower case, as those of macOS and Windows, for the
calls of this process.

The calls of the operating system are answered by a real folder; a name that is missing stands for
the one that differs in upper and lower case only. No test may mount such a file system.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

#: The calls that name one file, and those that name two, with the arguments that hold the folders'
#: handles.
_ONE = ("open", "stat", "lstat", "unlink", "rmdir", "mkdir", "scandir", "listdir", "access")
_TWO = ("replace", "rename", "link")


def fold_case(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    """Let names below ``root`` be found in any case, until the test ends."""
    real: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in (*_ONE, *_TWO)}

    def stored(path: Any, dir_fd: int | None) -> Any:
        """The path under which a file is stored."""
        if not isinstance(path, str) or (dir_fd is None and not path.startswith(f"{root}/")):
            return path
        above, parts = (
            (dir_fd, path.split("/"))
            if dir_fd is not None
            else (None, path[len(root) + 1 :].split("/"))
        )
        folder: Any = above if above is not None else root
        found: list[str] = []
        for part in parts:
            name = part
            try:
                names = real["listdir"](folder)
            except OSError:
                names = []
            if name not in names:
                name = next((each for each in names if each.lower() == name.lower()), name)
            found.append(name)
            folder = os.path.join(f"/proc/self/fd/{dir_fd}" if dir_fd is not None else root, *found)
        return "/".join(found) if dir_fd is not None else os.path.join(root, *found)

    def of_one(name: str) -> Callable[..., Any]:
        def call(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            return real[name](stored(path, options.get("dir_fd")), *arguments, **options)

        return call

    def of_two(name: str) -> Callable[..., Any]:
        def call(source: Any, target: Any, **options: Any) -> Any:
            source = stored(source, options.get("src_dir_fd"))
            target = stored(target, options.get("dst_dir_fd"))
            return real[name](source, target, **options)

        return call

    for name in _ONE:
        monkeypatch.setattr(os, name, of_one(name))
    for name in _TWO:
        monkeypatch.setattr(os, name, of_two(name))
