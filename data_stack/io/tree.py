"""The files below a folder of this machine, and the links in it that are not followed.

Tools keep data behind symbolic links: the cache of Hugging Face, DVC, git-annex, or a user who
links a folder of a class. But a folder may come from a stranger, and a link in it may name any file
of this machine. So a link that was found in a folder is followed if its target lies

- below that folder;
- in the ``blobs`` of the same repository, if the folder is a snapshot in Hugging Face's cache;
- below one of the paths that the environment variable ``DATA_STACK_FOLLOW_LINKS`` lists, separated
  as in ``PATH``.

Other links are not followed. To open a file behind one is an error, and a folder behind one is left
out. A link that the user names by its own path is always followed.
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
#: Limit of links to folders that lie in folders behind links. More of them are a trap: k folders
#: that link to each other have k! paths.
_MAX_NESTED_LINKS: Final = 1000

# The rules that leave a link out.
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


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder to look through.

    Attributes:
        path: its path relative to the root, through the links that lead to it; empty for the root.
        real_path: where it is.
        linked_paths: the real paths to which links on the way to it lead.
    """

    path: str
    real_path: str
    linked_paths: tuple[str, ...] = ()


def walk_folder(root: str, below: str = "", *, links: LinkRule | None = None) -> Tree:
    """Return all files below a folder of this machine, however deep.

    Args:
        root: the folder.
        below: path of the folder in ``root`` to look through.
        links: which links are followed; None for those that lead below ``root``.

    Returns:
        Paths relative to ``root``; none if the folder does not exist, or lies elsewhere: ``below``
        is absolute, or leads through a link that is not followed.

    Raises:
        OSError: a folder cannot be listed.
        StorageError: more than 1,000 links to folders are in folders behind links.
    """
    if links is None:
        links = LinkRule(root)
    tree = Tree()
    n_nested_links = 0
    start = os.path.join(root, below)
    if os.path.isabs(below):
        return tree
    if below and links.leads_out(start):
        tree.left_out.append(LeftOut(below, LEADS_OUT))
        return tree
    pending = [_Folder(below, start)]
    while pending:
        folder = pending.pop()
        prefix = ""
        if folder.path:
            prefix = f"{folder.path}/"
        for entry in entries_of(folder.real_path):
            path = prefix + entry.name
            if not entry.is_symlink():
                if entry.is_dir(follow_symlinks=False):
                    pending.append(_Folder(path, entry.path, folder.linked_paths))
                else:
                    tree.files.append(path)
                continue

            # A link to a file is listed, even if it dangles or leads out. Opening it is an error
            # then, so it is not left out silently.
            target = os.path.realpath(entry.path)
            if not os.path.isdir(target):
                tree.files.append(path)
                continue

            # A link to a folder is followed, unless a rule leaves it out.
            rule = _rule_that_leaves_out(folder, target, links)
            if rule is not None:
                tree.left_out.append(LeftOut(path, rule))
                continue

            if folder.linked_paths:
                n_nested_links += 1
            if n_nested_links > _MAX_NESTED_LINKS:
                raise StorageError(
                    f"{root!r} has more than {_MAX_NESTED_LINKS:,} links to folders in folders "
                    f"behind links, {path!r:.200} among them; remove links to folders"
                )
            pending.append(_Folder(path, target, (*folder.linked_paths, target)))
    tree.files.sort()
    tree.left_out.sort(key=lambda left_out: left_out.name)
    return tree


def _rule_that_leaves_out(folder: _Folder, target: str, links: LinkRule) -> str | None:
    """Return the rule that leaves out a link to a folder; None if it is followed.

    Args:
        folder: the folder that holds the link.
        target: the real path to which the link leads.
        links: which links are followed.
    """
    if not links.allows(target):
        return LEADS_OUT
    is_above = is_below(os.path.realpath(folder.real_path), target)
    if is_above or target in folder.linked_paths:
        return LEADS_BACK
    return None


def entries_of(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder; none if it was removed meanwhile, or never existed."""
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

    place: str
    #: Real paths below which a target may lie; None until the first link is seen.
    _allowed_paths: list[str] | None

    def __init__(self, place: str) -> None:
        self.place = place
        self._allowed_paths = None

    def allows(self, target: str) -> bool:
        """Return whether a link may lead to ``target``, a real path."""
        if self._allowed_paths is None:
            self._allowed_paths = _allowed_paths_of(self.place)
        return any(is_below(target, path) for path in self._allowed_paths)

    def leads_out(self, path: str) -> bool:
        """Return whether a link is not followed."""
        return not self.allows(os.path.realpath(path))

    def check(self, path: str, name: str) -> None:
        """Check that a file may be opened: that it is no link, or one that may be followed.

        Args:
            path: the path of the file.
            name: its name in the message.

        Raises:
            MaliciousFilePathError: it is a link that leads out.
        """
        is_link_to_file = os.path.islink(path) and os.path.isfile(path)
        if is_link_to_file and self.leads_out(path):
            raise MaliciousFilePathError(
                f"{name!r:.200} is a link to a file outside the folder {self.place!r}; "
                f"if you trust it, set the environment variable {FOLLOW_LINKS} to a path above "
                "the files that links lead to"
            )


def is_below(path: str, folder: str) -> bool:
    """Return whether a real path is a folder, itself a real path, or below it."""
    return path == folder or path.startswith(os.path.join(folder, ""))


def _allowed_paths_of(place: str) -> list[str]:
    """Return the real paths below which the links of a folder may lead."""
    root = os.path.realpath(place)
    allowed_paths = [root]
    blobs = _blobs_of_snapshot(root)
    if blobs is not None:
        allowed_paths.append(blobs)
    for path in os.environ.get(FOLLOW_LINKS, "").split(os.pathsep):
        if os.path.isabs(path):
            allowed_paths.append(os.path.realpath(path))
    return allowed_paths


def _blobs_of_snapshot(root: str) -> str | None:
    """Return the folder of blobs to which a snapshot in Hugging Face's cache links.

    The layout is ``datasets--OWNER--NAME/snapshots/REVISION/…``, with links to
    ``datasets--OWNER--NAME/blobs/…``
    (https://huggingface.co/docs/huggingface_hub/guides/manage-cache).

    Returns:
        None if ``root`` is in no such snapshot.
    """
    parts = root.split(os.sep)
    for position in range(1, len(parts) - 1):
        repository = parts[position - 1]
        if parts[position] == "snapshots" and _HUB_REPOSITORY.fullmatch(repository):
            return os.path.realpath(os.sep.join([*parts[:position], "blobs"]))
    return None
