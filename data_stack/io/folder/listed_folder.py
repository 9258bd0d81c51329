"""A folder of a store that lists its files once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from data_stack.io.folder.folder import Folder


class _Listing:
    """The full names of the files below a prefix of a store, listed when they are first asked for.

    Args:
        list_names: lists them.
    """

    def __init__(self, list_names: Callable[[], list[str]]) -> None:
        self._list_names = list_names
        #: The names as keys, in the order of the store; None before the first question.
        self._names: dict[str, None] | None = None

    def names(self) -> dict[str, None]:
        """Return the names as the keys of a dict."""
        if self._names is None:
            self._names = dict.fromkeys(self._list_names())
        return self._names


class ListedFolder(Folder):
    """A folder of a store that lists its files once, at the first question for a name.

    Its subfolders share the list. The folder is for a few questions in a row: what changes later,
    it does not see. It pickles as an ordinary folder.

    Args:
        store: as for :class:`Folder`.
        name: as for :class:`Folder`.
        listing: the files of a folder above; None to list those of this folder.
    """

    def __init__(self, store: Any, name: str, listing: _Listing | None = None) -> None:
        super().__init__(store, name)
        if listing is None:
            listing = _Listing(self._list_store)
        self._listing = listing

    def __reduce__(self) -> tuple[Any, ...]:
        return Folder, (self._store, self.name)

    @classmethod
    def of(cls, folder: Folder) -> Folder:
        """Return a folder that lists its files once; a folder of this machine as it is.

        A folder of a store that cannot list is returned as it is, too.
        """
        if folder.path is not None or not folder.can_delete:
            return folder
        return cls(folder._store, folder.name)

    def has_file(self, file: str) -> bool:
        return self.full_name(file) in self._listing.names()

    def list_files(self) -> list[str]:
        start = self.full_name("")
        names = self._listing.names()
        return sorted(name[len(start) :] for name in names if name.startswith(start))

    def subfolder(self, name: str) -> Folder:
        prefix = self._check_prefix(self.full_name(name))
        return ListedFolder(self._store, prefix, self._listing)
