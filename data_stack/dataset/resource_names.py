"""Which names the resources of one dataset have taken, so that each gets a file of its own in any store."""

from __future__ import annotations

from collections.abc import Iterable

from data_stack.exception import ConfigError
from data_stack.io.identifiers import check_identifier

MANIFEST, JOURNAL = "manifest.json", "journal.json"
#: Names of what waits for its own name begin so; no resource of a dataset has such a name.
STAGED = "preparing@"


class ResourceNames:
    """The names taken below a dataset, its manifest and journal among them.

    Args:
        dataset: the folder they are all below.
        names: taken from the start.

    Raises:
        MalformedIdentifierError: a name is outside of the grammar of identifiers.
        ConfigError: a name is taken, differs from a taken one in case only, or is the folder of one; or it is kept for us.
    """

    def __init__(self, dataset: str, names: Iterable[str] = ()) -> None:
        self._dataset = dataset
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        for name in (MANIFEST, JOURNAL, *names):
            self.take(name)

    def take(self, name: str) -> None:
        """Take a name, or raise and leave things as they were."""
        check_identifier(name)
        check_identifier(f"{self._dataset}/{name}")
        # Windows and macOS fold case; a store must survive being copied there.
        folded = name.casefold()
        if folded.startswith(STAGED):
            raise ConfigError(
                f"dataset {self._dataset!r} cannot have the resource {name!r}: names that begin with {STAGED!r} are those of "
                f"shards that are being prepared"
            )
        folders = _folders_of(folded)
        other = self._files.get(folded) or self._folders.get(folded) or next(filter(None, map(self._files.get, folders)), None)
        if other is not None:
            raise ConfigError(
                f"dataset {self._dataset!r} cannot have the resource {name!r}: {other!r} is taken, "
                f"and both would need the same file or folder"
            )
        self._files[folded] = name
        for folder in folders:
            self._folders.setdefault(folder, name)

    def give_back(self, name: str) -> None:
        """Free a name that was taken but came to nothing."""
        del self._files[name.casefold()]
        self._folders = {folder: user for user in self._files.values() for folder in _folders_of(user.casefold())}


def _folders_of(name: str) -> list[str]:
    segments = name.split("/")
    return ["/".join(segments[:n]) for n in range(1, len(segments))]
