"""Keeps where the rows of large text files begin, and what their columns are."""

from __future__ import annotations

from typing import Any, Final

from data_stack.codecs.plain_data import json_digest
from data_stack.formats.text_tables.kept_folder import KeptFolder
from data_stack.formats.text_tables.pinned_file import PinnedFile
from data_stack.formats.text_tables.row_index import RowIndex, open_or_none

#: What a smaller text needs is found again in about a second.
MIN_BYTES_TO_KEEP: Final = 16 << 20

#: Changes when the layout of kept files, or the way in which types are inferred, does.
_LAYOUT: Final = 2


class KeptIndex:
    """What is kept of a version of a text file: where its rows begin, and what its columns are.

    The name of a kept file has a digest of what identifies the text file
    (:meth:`PinnedFile.name_kept`), and of what its rows are. So a text file that changes has
    another index. A damaged index is made again.

    Args:
        name: the name of the kept files.
        folder: their folder.
    """

    #: The folder of the kept files.
    _folder: KeptFolder

    #: The name of the kept files, without their suffix.
    _name: str

    def __init__(self, name: str, folder: KeptFolder) -> None:
        self._folder = folder
        self._name = name

    @classmethod
    def of(cls, file: PinnedFile | None, kind_of_rows: str) -> KeptIndex | None:
        """Return what is, or will be, kept of a text file; None if nothing is kept of it.

        Args:
            file: the file as it is stored; None for a text in memory.
            kind_of_rows: what the rows of the file are.
        """
        if file is None:
            return None
        name = file.name_kept(_LAYOUT, kind_of_rows)
        if name is None:
            return None
        return cls(name, KeptFolder.of_user())

    # ------------------------------------------------------------------ rows

    def load_rows(self) -> RowIndex | None:
        """Return the index of the rows; None if it is not kept, or damaged."""
        name = f"{self._name}.rows"
        if not self._folder.has_own(name):
            return None
        index = open_or_none(str(self._folder.path / name))
        if index is not None:
            self._folder.note_use(name)
        return index

    def store_rows(self, index: RowIndex) -> RowIndex:
        """Keep the index of the rows.

        Returns:
            The kept index, which processes share; ``index`` itself if it could not be kept.
        """
        name = f"{self._name}.rows"
        self._folder.store(name, index.stored_pieces(name))
        return self.load_rows() or index

    # ------------------------------------------------------------------ columns

    def load_columns(self, options: Any) -> Any:
        """Return the description of the columns; None if it is not kept, or damaged.

        Args:
            options: plain data that the columns depend on, beside the file.
        """
        name = self._name_of_columns(options)
        columns = self._folder.load_facts(name)
        if columns is not None:
            self._folder.note_use(name)
        return columns

    def store_columns(self, options: Any, columns: Any) -> None:
        """Keep a description of the columns, which is plain data.

        Args:
            options: as for :meth:`load_columns`.
            columns: the description.
        """
        self._folder.store_facts(self._name_of_columns(options), columns)

    def _name_of_columns(self, options: Any) -> str:
        return f"{self._name}.{json_digest(options)[:16]}.json"
