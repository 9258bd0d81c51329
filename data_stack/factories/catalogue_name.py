"""Names of datasets of catalogues, such as ``hf:owner/name@revision#config``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from data_stack.io.identifiers import check_identifier

# The version may also come last: so a version is added to a name that has a part. No URL is such a name.
_NAME = re.compile(r"(?![^@]*@[^@]*@)([a-z][a-z0-9-]*):((?!/)[^@#]+)(?:@([^@#]+))?(?:#([^@#]+))?(?:@([^@#]+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class CatalogueName:
    """The name of a dataset of a catalogue, ``scheme:name@version#part``; as text, the version comes last.

    Attributes:
        scheme: of the catalogue, e.g. ``"hf"``.
        name: in the catalogue, e.g. ``"owner/name"``.
        version: a moving one, such as a branch, or an exact one; None for the latest.
        part: a configuration or a file of the dataset; None for its default.
    """

    scheme: str
    name: str
    version: str | None = None
    part: str | None = None

    @classmethod
    def parse(cls, text: str) -> CatalogueName | None:
        """The parts of ``scheme:name@version#part`` or ``scheme:name#part@version``; None for any other text."""
        match = _NAME.fullmatch(text)
        return match and cls(match[1], match[2], match[3] or match[5], match[4])

    @property
    def plain(self) -> str:
        """The name without its version: ``scheme:name#part``."""
        return f"{self.scheme}:{self.name}" + (f"#{self.part}" if self.part else "")

    @property
    def folder(self) -> str:
        """What a card calls the dataset, and so its folder in every store: ``"hf+owner+name"``.

        ``:`` and ``/`` become ``+``, ``#`` becomes ``,`` and other characters than letters, digits and ``._-`` their UTF-8
        bytes as ``=2A``, so no two names have one folder.

        Raises:
            MalformedIdentifierError: no folder of a store can have that name: it is too long, or ends with a dot.
        """
        written = quote(self.plain, safe=":/#", errors="surrogatepass").replace("%", "=").replace("~", "=7E")
        return check_identifier(written.translate(str.maketrans(":/#", "++,")))

    def __str__(self) -> str:
        return self.plain + (f"@{self.version}" if self.version else "")


def stored_name(name: str) -> str:
    """The name under which stores keep a dataset, or a version of it: ``"hf:owner/name@v1"`` is ``"hf+owner+name/v1"``.

    Names of other datasets are returned as they are.
    """
    found = CatalogueName.parse(name)
    return name if found is None else f"{found.folder}/{found.version or ''}".removesuffix("/")
