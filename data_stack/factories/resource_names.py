"""The names of the resources of one dataset, with those that are reserved for data_stack."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from data_stack.exception import ConfigError
from data_stack.io.identifiers import check_identifier

#: The resource that makes a dataset ready, see :class:`~data_stack.factories.manifest.Manifest`.
MANIFEST: Final = "manifest.json"

#: The resource that lists finished steps, see :class:`~data_stack.factories.journal.Journal`.
JOURNAL: Final = "journal.json"

#: The resource with the digests of samples that were read for a lock file.
SAMPLE_DIGESTS: Final = "digests@samples.json"

#: The resource with the small files that ``open()`` reads, see
#: :class:`~data_stack.factories.opening_files.OpeningFiles`.
OPENING_FILES: Final = "opening@files"

#: Temporary names of resources begin with this.
STAGED: Final = "preparing@"

#: The resources of data_stack itself.
_OUR_NAMES = (MANIFEST, JOURNAL, SAMPLE_DIGESTS, OPENING_FILES)


class ResourceNames:
    """The names that are used below a dataset, including those of data_stack itself.

    Names that differ in case only are one name, as Windows and macOS fold case.

    Args:
        dataset: the folder of the dataset.
        names: the names to take from the start.

    Raises:
        MalformedIdentifierError, ConfigError: as for :meth:`take`.
    """

    #: The folder of the dataset, for messages.
    _dataset: str

    #: The taken names, by their folded form.
    _names: dict[str, str]

    #: For each folder of a taken name, folded: a name in it.
    _names_in_folders: dict[str, str]

    def __init__(self, dataset: str, names: Iterable[str] = ()) -> None:
        self._dataset = dataset
        self._names = {}
        self._names_in_folders = {}
        for name in _OUR_NAMES:
            self.take(name)
        for name in names:
            self.take(name)

    def take(self, name: str) -> None:
        """Take a name.

        Raises:
            MalformedIdentifierError: the name is outside of the grammar of identifiers.
            ConfigError: the name is taken, differs from a taken one in case only, is the folder
                of a taken one, lies below a taken one, or is reserved.
        """
        check_identifier(name)
        check_identifier(f"{self._dataset}/{name}")
        if is_temporary(name):
            raise ConfigError(
                f"dataset {self._dataset!r} cannot have the resource {name!r}: the prefix "
                f"{STAGED!r} is reserved"
            )
        other_name = self._name_in_conflict(name.casefold())
        if other_name is not None:
            raise ConfigError(
                f"dataset {self._dataset!r} cannot have the resource {name!r}: {other_name!r} "
                f"needs its file or folder"
            )
        self._add(name)

    def release(self, name: str) -> None:
        """Release a taken name."""
        del self._names[name.casefold()]
        # Other names may need the same folders.
        remaining_names = list(self._names.values())
        self._names.clear()
        self._names_in_folders.clear()
        for remaining_name in remaining_names:
            self._add(remaining_name)

    def _add(self, name: str) -> None:
        folded_name = name.casefold()
        self._names[folded_name] = name
        for folder in _folders_of(folded_name):
            self._names_in_folders.setdefault(folder, name)

    def _name_in_conflict(self, folded_name: str) -> str | None:
        """Return the taken name that needs the same file or folder; None if there is none."""
        if folded_name in self._names:
            return self._names[folded_name]
        if folded_name in self._names_in_folders:
            return self._names_in_folders[folded_name]
        for folder in _folders_of(folded_name):
            if folder in self._names:
                return self._names[folder]
        return None


def is_reserved(name: str) -> bool:
    """Return whether a name is reserved for data_stack, in any case of its letters."""
    return name.casefold() in _OUR_NAMES or is_temporary(name)


def is_temporary(name: str) -> bool:
    """Return whether a name begins as temporary names do, in any case of its letters."""
    return name.casefold().startswith(STAGED)


def _folders_of(name: str) -> list[str]:
    """Return the folders of a name, from the outermost: ``a`` and ``a/b`` for ``a/b/c``."""
    segments = name.split("/")
    return ["/".join(segments[:n_segments]) for n_segments in range(1, len(segments))]
