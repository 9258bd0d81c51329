"""The files below a folder of this machine, and the links in it that are not followed.

Tools keep data behind symbolic links: the cache of Hugging Face, DVC, git-annex, or a user who links a folder of a class.
But a folder may come from a stranger, and a link in it may name any file of this machine. So a link that was found in a
folder is followed if its target lies

- below that folder;
- in the ``blobs`` of the same repository, if the folder is a snapshot in Hugging Face's cache;
- below one of the paths that the environment variable ``DATA_STACK_FOLLOW_LINKS`` lists, separated as in ``PATH``.

Opening another one is an error; a folder behind another one is left out. What a user names by its own path is always followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from data_stack.exception import MaliciousFilePathError, StorageError

#: The environment variable that lists the paths to which links may lead.
FOLLOW_LINKS: Final = "DATA_STACK_FOLLOW_LINKS"
#: A folder of a repository in Hugging Face's cache.
_HUB_REPOSITORY: Final = re.compile(r"(datasets|models|spaces)--[^/]+")
#: More links to folders in folders behind links are a trap: k folders that link to each other have k! paths.
_MAX_LINKED_AGAIN: Final = 1000

LEADS_OUT: Final = f"a link to a folder outside; {FOLLOW_LINKS} may name a path above its target"
LINK_OF_STORE: Final = "a link in a store, which is not followed"
LEADS_BACK: Final = "a link to a folder above it, whose files are read there"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file or folder that was found and is not read.

    Attributes:
        name: its path relative to the place, with ``/`` between the parts.
        rule: the rule that leaves it out, as a noun: ``"a link that leads out of the folder"``.
    """

    name: str
    rule: str


@dataclass(slots=True)
class Tree:
    """The files below a folder.

    Attributes:
        files: their paths relative to the folder, sorted; those of links that are followed too.
        left_out: the links that are not followed, sorted by name.
    """

    files: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def walk_folder(root: str, below: str = "", *, links: LinkRule | None = None) -> Tree:
    """Look through a folder of this machine, however deep.

    Args:
        root: the folder.
        below: path of the folder in ``root`` to look through.
        links: which links are followed; by default those that lead below ``root``.

    Returns:
        Paths relative to ``root``; none if the folder does not exist.

    Raises:
        OSError: a folder cannot be listed.
        StorageError: more than 1,000 links to folders are in folders behind links.
    """
    tree = Tree()
    links = links or LinkRule(root)
    n_linked_again = 0
    # Each folder comes with its real path, and the real paths to which links above it led.
    pending: list[tuple[str, str, tuple[str, ...]]] = [(below, os.path.join(root, below), ())]
    while pending:
        folder, real_folder, chain = pending.pop()
        for entry in entries_of(real_folder):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if not entry.is_symlink():
                if entry.is_dir(follow_symlinks=False):
                    pending.append((path, entry.path, chain))
                else:
                    tree.files.append(path)
                continue
            target = os.path.realpath(entry.path)
            if not os.path.isdir(target):
                # One that dangles or leads out is listed as well: opening it is an error.
                tree.files.append(path)
            elif not links.allows(target):
                tree.left_out.append(LeftOut(path, LEADS_OUT))
            elif target in chain or is_below(os.path.realpath(real_folder), target):
                tree.left_out.append(LeftOut(path, LEADS_BACK))
            else:
                n_linked_again += bool(chain)
                if n_linked_again > _MAX_LINKED_AGAIN:
                    raise StorageError(
                        f"{root!r} has more than {_MAX_LINKED_AGAIN:,} links to folders in folders "
                        f"behind links, {path!r:.200} among them; remove links to folders"
                    )
                pending.append((path, target, (*chain, target)))
    tree.files.sort()
    tree.left_out.sort(key=lambda left_out: left_out.name)
    return tree


def entries_of(folder: str) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder; none if it was removed meanwhile, or never existed."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return


class LinkRule:
    """Which links of a folder are followed; see the module.

    Args:
        place: the folder of this machine from which links must not lead out.

    Attributes:
        place: this folder.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        #: Real paths below which a target may lie; None until the first link is seen.
        self._allowed: list[str] | None = None

    def allows(self, target: str) -> bool:
        """Whether a link may lead to ``target``, a real path."""
        if self._allowed is None:
            root = os.path.realpath(self.place)
            listed = os.environ.get(FOLLOW_LINKS, "").split(os.pathsep)
            allowed = [os.path.realpath(path) for path in listed if os.path.isabs(path)]
            self._allowed = [root, *_blobs_of_snapshot(root), *allowed]
        return any(is_below(target, place) for place in self._allowed)

    def leads_out(self, path: str) -> bool:
        """Whether a link is not followed."""
        return not self.allows(os.path.realpath(path))

    def check(self, path: str, name: str) -> None:
        """Check that a file may be opened: that it is no link, or one that may be followed.

        Raises:
            MaliciousFilePathError: it is a link that leads out.
        """
        if os.path.islink(path) and os.path.isfile(path) and self.leads_out(path):
            raise MaliciousFilePathError(
                f"{name!r:.200} is a link to a file outside the folder {self.place!r}; if you trust it, "
                f"set the environment variable {FOLLOW_LINKS} to a path above the files that links lead to"
            )


def is_below(path: str, folder: str) -> bool:
    """Whether a real path is a folder, itself a real path, or below it."""
    return path == folder or path.startswith(os.path.join(folder, ""))


def _blobs_of_snapshot(root: str) -> list[str]:
    """The folder of blobs that a snapshot in Hugging Face's cache links to; none if ``root`` is in no such snapshot.

    The layout is ``datasets--OWNER--NAME/snapshots/REVISION/…``, with links to ``datasets--OWNER--NAME/blobs/…``
    (https://huggingface.co/docs/huggingface_hub/guides/manage-cache).
    """
    parts = root.split(os.sep)
    for number in range(1, len(parts) - 1):
        if parts[number] == "snapshots" and _HUB_REPOSITORY.fullmatch(parts[number - 1]):
            blobs = os.sep.join([*parts[:number], "blobs"])
            return [os.path.realpath(blobs)]
    return []
