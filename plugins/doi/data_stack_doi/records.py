"""Records: what a repository publishes under a DOI."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from data_stack.exception import CatalogueAccessError

#: Lengths of digests in hexadecimal digits, by hashlib's names of the algorithms.
_DIGEST_LENGTHS: Final = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}

#: What stands for the names of the restricted files of a repository that does not name them.
UNNAMED_FILES: Final = ("all",)


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of a record.

    Attributes:
        name: the author's name of the file, with its folders.
        url: URL of the file.
        size: size in bytes; None if the repository does not state it.
        algorithm: ``"md5"``, ``"sha1"``, ``"sha256"`` or ``"sha512"``; None if the repository
            states no digest.
        digest: hexadecimal digest; None likewise.
        listed_as: another name that the repository shows, such as ``table.tab`` for ``table.csv``;
            or empty.
    """

    name: str
    url: str
    size: int | None
    algorithm: str | None
    digest: str | None
    listed_as: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """The answer of a repository for a DOI.

    Attributes:
        title: title, one line.
        license: license as the repository states it; or None.
        files: public files, in the order of the listing.
        restricted: names of the restricted files; :data:`UNNAMED_FILES` if the repository does not
            name them.
    """

    title: str
    license: str | None
    files: tuple[RecordFile, ...]
    restricted: tuple[str, ...] = ()

    def find(self, name: str) -> RecordFile | None:
        """Return the file of a name, which may be percent-encoded; None if it does not exist.

        Raises:
            CatalogueAccessError: the file is restricted.
        """
        for wanted_name in (name, unquote(name)):
            for file in self.files:
                if wanted_name in (file.name, file.listed_as):
                    return file
            if wanted_name in self.restricted:
                raise CatalogueAccessError(
                    f"the file {wanted_name!r:.200} is restricted: ask its authors for access"
                )
        return None

    def describe_files(self) -> str:
        """Return the names of the files, as written after ``#``."""
        names = [quote(file.name, safe=" /()+,;=!$&':") for file in self.files]
        return ", ".join(names) or "none"


def listed_file(
    name: str,
    url: str,
    size: int | None,
    *,
    algorithm: str,
    digest: str | None,
    listed_as: str = "",
) -> RecordFile:
    """Return a file as a repository lists it; an unknown or malformed digest is left out.

    Args:
        name: the author's name of the file, with its folders.
        url: URL of the file.
        size: size in bytes; None if the repository does not state it.
        algorithm: the repository's name of the algorithm, such as ``"SHA-1"``.
        digest: the stated digest; None if there is none.
        listed_as: another name that the repository shows; or empty.
    """
    hashlib_name = algorithm.lower().replace("-", "")
    if digest is None or not _is_digest(digest, hashlib_name):
        return RecordFile(name, url, size, None, None, listed_as)
    return RecordFile(name, url, size, hashlib_name, digest.lower(), listed_as)


def _is_digest(text: str, hashlib_name: str) -> bool:
    """Return whether a text is a hexadecimal digest of a known algorithm."""
    is_hexadecimal = re.fullmatch(r"[0-9a-fA-F]+", text) is not None
    return is_hexadecimal and len(text) == _DIGEST_LENGTHS.get(hashlib_name)
