"""A folder of a store whose files are listed only once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from data_stack.io.folder.folder import Folder, paths_below


class _Listing:
    """The full names of the files below a prefix of a store, listed on first use.

    Args:
        list_names: lists the names.
    """

    _list_names: Callable[[], list[str]]
    #: The names as keys, in the order of the store; None before they are listed.
    _names: dict[str, None] | None

    def __init__(self, list_names: Callable[[], list[str]]) -> None:
        self._list_names = list_names
        self._names = None

    def names(self) -> dict[str, None]:
        """Return the names as the keys of a dict; threads that come first may list them each."""
        if self._names is None:
            self._names = dict.fromkeys(self._list_names())
        return self._names


class ListedFolder(Folder):
    """A folder of a store whose files are listed once, when the first name is looked up.

    Its subfolders share the list. It is for a few look-ups in a row, as it does not notice later
    changes. It is pickled as an ordinary folder.

    Args:
        store: as for :class:`Folder`.
        name: as for :class:`Folder`.
        listing: the files of a folder above; None to list those of this folder.
    """

    _listing: _Listing

    def __init__(self, store: Any, name: str, listing: _Listing | None = None) -> None:
        super().__init__(store, name)
        if listing is None:
            listing = _Listing(self._list_store)
        self._listing = listing

    def __reduce__(self) -> tuple[Any, ...]:
        return Folder, (self._store, self.name)

    @classmethod
    def of(cls, folder: Folder) -> Folder:
        """Return a folder with the same files, which are listed once.

        Returns:
            The same folder, if it is on this machine or if its store cannot list.
        """
        if folder.path is not None or not folder.can_delete:
            return folder
        return cls(folder._store, folder.name)

    def has_file(self, file: str) -> bool:
        return self.full_name(file) in self._listing.names()

    def list_files(self) -> list[str]:
        return paths_below(self.full_name(""), self._listing.names())

    def subfolder(self, name: str) -> Folder:
        prefix = self._check_prefix(self.full_name(name))
        return ListedFolder(self._store, prefix, self._listing)
