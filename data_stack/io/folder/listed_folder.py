"""A folder of a store that lists its files once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

from data_stack.io.folder.folder import Folder
from data_stack.io.storage_connectors.writer import TEMPORARY as TEMPORARY


class ListedFolder(Folder):
    """A folder of a store that lists its files once, at the first question for a name, and with them those of its subfolders.

    It is for a few questions in a row: what changes later, it does not see. It pickles as an ordinary folder.

    Args:
        store, name: as for :class:`Folder`.
        listed: the names of the files in the store that begin with ``name``; None to list them.
    """

    def __init__(
        self, store: Any, name: str, listed: Callable[[], Collection[str]] | None = None
    ) -> None:
        super().__init__(store, name)
        self._listed = listed or functools.cache(
            lambda: dict.fromkeys(self._list(self.full_name("")))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Folder, (self._store, self.name)

    def has_file(self, file: str) -> bool:
        return self.full_name(file) in self._listed()

    def list_files(self) -> list[str]:
        start = self.full_name("")
        return sorted(name[len(start) :] for name in self._listed() if name.startswith(start))

    def subfolder(self, name: str) -> Folder:
        return ListedFolder(self._store, self._check_prefix(self.full_name(name)), self._listed)

    @classmethod
    def of(cls, folder: Folder) -> Folder:
        """A folder, listed once if its store can list it; a folder of this machine as it is."""
        return (
            cls(folder._store, folder.name) if folder.can_delete and folder.path is None else folder
        )
