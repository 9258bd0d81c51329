"""Checks that the resources of one dataset have names that any store can keep side by side."""

from __future__ import annotations

from collections.abc import Iterable

from data_stack.exception import ConfigError
from data_stack.io.identifiers import check_identifier

MANIFEST, JOURNAL = "manifest.json", "journal.json"
#: Digests of samples that were read for a lock file.
SAMPLE_DIGESTS = "digests@samples.json"
#: Prefix of temporary names, reserved.
STAGED = "preparing@"


class ResourceNames:
    """The names used below a dataset, including those of data_stack itself.

    Args:
        dataset: its folder.
        names: used from the start.

    Raises:
        MalformedIdentifierError: a name is outside of the grammar of identifiers.
        ConfigError: a name is used, differs from a used one in case only, is the folder of one, or is reserved.
    """

    def __init__(self, dataset: str, names: Iterable[str] = ()) -> None:
        self._dataset = dataset
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        for name in (MANIFEST, JOURNAL, SAMPLE_DIGESTS, *names):
            self.take(name)

    def take(self, name: str) -> None:
        """Reserve a name."""
        check_identifier(name)
        check_identifier(f"{self._dataset}/{name}")
        # Windows and macOS fold case.
        folded = name.casefold()
        if folded.startswith(STAGED):
            raise ConfigError(f"dataset {self._dataset!r} cannot have the resource {name!r}: the prefix {STAGED!r} is reserved")
        folders = _folders_of(folded)
        other = self._files.get(folded) or self._folders.get(folded) or next(filter(None, map(self._files.get, folders)), None)
        if other is not None:
            raise ConfigError(
                f"dataset {self._dataset!r} cannot have the resource {name!r}: {other!r} needs the same file or folder"
            )
        self._files[folded] = name
        for folder in folders:
            self._folders.setdefault(folder, name)

    def give_back(self, name: str) -> None:
        """Free a reserved name."""
        del self._files[name.casefold()]
        self._folders = {folder: user for user in self._files.values() for folder in _folders_of(user.casefold())}


def _folders_of(name: str) -> list[str]:
    segments = name.split("/")
    return ["/".join(segments[:n]) for n in range(1, len(segments))]
