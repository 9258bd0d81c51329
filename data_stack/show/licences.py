"""Implements ``iterator.licences``, ``citation`` and ``provenance``."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.recipes.recipe import list_origins
from data_stack.show.markup import Block, Document, Heading, Paragraph, Table
from data_stack.util.distributions import distributions_of

__all__ = ["LicencedDataset", "Licences", "citation", "is_denied", "licences", "obligations_of", "provenance", "spdx_problem"]

ATTRIBUTION, SHARE_ALIKE = "attribution", "share-alike"
NON_COMMERCIAL, NO_DERIVATIVES = "non-commercial", "no derivatives"
OBLIGATIONS = (ATTRIBUTION, SHARE_ALIKE, NON_COMMERCIAL, NO_DERIVATIVES)

# By the beginning of an SPDX identifier. A licence that is not listed is unknown, not free.
_TERMS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("0BSD", "CC0-", "CC-PDDC", "CC-PDM-", "MIT-0", "PDDL-", "Unlicense"), frozenset[str]()),
    **dict.fromkeys(
        ("Apache-", "BSD-", "C-UDA-", "CDLA-Permissive-", "DL-DE-BY-", "etalab-", "ISC", "MIT", "ODC-By-", "OGL-UK-", "PSF-"),
        frozenset({ATTRIBUTION}),
    ),
    **dict.fromkeys(
        ("AGPL-", "CDLA-Sharing-", "EUPL-", "GFDL-", "GPL-", "LGPL-", "MPL-", "ODbL-"), frozenset({ATTRIBUTION, SHARE_ALIKE})
    ),
}
_OWN_LICENCE = re.compile(r"\b(?:DocumentRef-[\w.-]+:)?LicenseRef-[\w.-]+", re.ASCII)
_CREATIVE_COMMONS = {"BY": ATTRIBUTION, "SA": SHARE_ALIKE, "NC": NON_COMMERCIAL, "ND": NO_DERIVATIVES}

_DATA_STACK = """\
@software{data_stack,
  title = {data_stack: any dataset, from any store, behind one lazy random-access interface},
  version = {%s}
}"""


# ---------------------------------------------------------------------- licence expressions


def spdx_problem(licence: str) -> str | None:
    """The reason why a text is not an SPDX licence expression (https://spdx.org/licenses); None if it is one."""
    if not licence.strip():
        return "it is empty"
    # SPDX also allows references to custom licences, whose terms are unknown
    found = _spdx().validate(_OWN_LICENCE.sub("MIT", licence))
    return "; ".join(found.errors) or None


def obligations_of(licence: str | None) -> frozenset[str] | None:
    """The obligations of a licence; None if they are unknown.

    ``A AND B`` has the obligations of both. The user may choose one of ``A OR B``, which has the obligations common to all
    known ones.
    """

    def combine(is_choice: bool, parts: list[Any]) -> Any:
        known = [part for part in parts if part is not None]
        if is_choice:
            return known[0].intersection(*known) if known else None
        return known[0].union(*known) if len(known) == len(parts) else None

    found: frozenset[str] | None = _walk(licence, _obligations_of_one, combine)
    return found


def is_denied(licence: str | None, patterns: Sequence[str]) -> bool | None:
    """Whether the patterns deny every way to use the data under its licence; None if that is unknown.

    Args:
        licence: an SPDX expression.
        patterns: of SPDX identifiers, such as ``"*-NC-*"``, in upper or lower case.
    """

    def matches(name: str) -> bool:
        return any(fnmatch.fnmatchcase(name.upper(), pattern.upper()) for pattern in patterns)

    def combine(is_choice: bool, parts: list[Any]) -> Any:
        decisive = not is_choice  # one denied part denies "A AND B"; one permitted part permits "A OR B"
        return decisive if decisive in parts else None if None in parts else not decisive

    denied: bool | None = _walk(licence, matches, combine)
    return denied


def _walk(licence: str | None, of_one: Callable[[str], Any], combine: Callable[[bool, list[Any]], Any]) -> Any:
    """Combine ``of_one`` of the identifiers of an expression; it returns None for an unknown one."""
    if licence is None or spdx_problem(licence) is not None:
        return None
    own = _OWN_LICENCE.findall(licence)

    def visit(node: Any) -> Any:
        if node.args:
            return combine(type(node).__name__ == "OR", [visit(each) for each in node.args])
        name = getattr(node, "license_symbol", node).key  # "GPL-2.0-only WITH …": an exception only permits more
        return None if name in own else of_one(name)

    return visit(_spdx().parse(licence))


def _obligations_of_one(name: str) -> frozenset[str] | None:
    if name.startswith("CC-BY"):
        return frozenset(_CREATIVE_COMMONS[part] for part in name.split("-") if part in _CREATIVE_COMMONS)
    beginnings = [each for each in _TERMS if name == each or (each.endswith("-") and name.startswith(each))]
    return _TERMS[beginnings[0]] if beginnings else None


def _spdx() -> Any:
    from license_expression import get_spdx_licensing  # with the list of SPDX 70 ms

    return get_spdx_licensing()


# ---------------------------------------------------------------------- licences of a stack


@dataclass(frozen=True, slots=True)
class LicencedDataset:
    """A dataset of a stack.

    Attributes:
        name: such as ``"digits"``.
        version: of the prepared data; None if its factory declares no version.
        licence: that of its card; None if the card has none.
        obligations: a subset of :data:`OBLIGATIONS`; None if the licence is missing or unknown.
        homepage: URL of its description.
    """

    name: str
    version: str | None
    licence: str | None
    obligations: frozenset[str] | None
    homepage: str | None


@dataclass(frozen=True, slots=True)
class Licences(Document):
    """The licences of all datasets in a stack. It prints as text, and shows as HTML in a notebook.

    The obligations are a reading aid, not legal advice: the text of each licence decides.

    Attributes:
        datasets: each listed once, in the order of the stack.
        n_unnamed: number of sources without a card, such as your own arrays.
    """

    datasets: tuple[LicencedDataset, ...]
    n_unnamed: int

    @property
    def obligations(self) -> frozenset[str] | None:
        """The obligations of all datasets together; None if those of a dataset or source are unknown."""
        known = [each.obligations for each in self.datasets]
        if self.n_unnamed or any(each is None for each in known):
            return None
        return frozenset().union(*(each for each in known if each is not None))

    def document(self, level: int = 1) -> list[Block]:
        rows = [
            [
                each.name if each.version is None else f"{each.name}@{each.version}",
                each.licence or "unknown",
                *("?" if each.obligations is None else "yes" if name in each.obligations else "no" for name in OBLIGATIONS),
            ]
            for each in self.datasets
        ]
        blocks: list[Block] = [Heading(level, "Licences"), Table(["dataset", "licence", *OBLIGATIONS], rows)]
        if self.n_unnamed:
            blocks.append(Paragraph(f"{self.n_unnamed} more source(s) without a card: their terms are unknown."))
        blocks.append(Paragraph("A reading aid, not legal advice: the text of each licence decides. Unknown is not free."))
        return blocks


def provenance(iterator: DatasetIteratorIF) -> list[dict[str, Any]]:
    """The preparer, time and sources of each dataset of a stack, as plain JSON data."""
    keys = ("name", "version", "split", "config", "distribution", "preparation")
    return [{key: origin.get(key) for key in keys} for origin in list_origins(iterator)[0]]


def licences(iterator: DatasetIteratorIF) -> Licences:
    """The licences of all datasets in a stack, with their obligations."""
    origins, n_unnamed = list_origins(iterator)
    found = {(each.get("name"), each.get("version")): each for each in origins}
    return Licences(tuple(map(_licenced, found.values())), n_unnamed)


def _licenced(origin: Mapping[str, Any]) -> LicencedDataset:
    licence = origin.get("license")
    return LicencedDataset(
        str(origin.get("name")), origin.get("version"), licence, obligations_of(licence), origin.get("homepage")
    )


# ---------------------------------------------------------------------- citations

_ENTRY = re.compile(r"\s*@\w+\s*\{\s*([^,\s]+)\s*,", re.ASCII)


def citation(iterator: DatasetIteratorIF, with_data_stack: bool = False) -> str:
    """BibTeX entries of all datasets in a stack, each once; a dataset without a citation gets a ``@misc`` entry."""
    entries: dict[str, str] = {}
    for origin in list_origins(iterator)[0]:
        for key, entry in _entries(origin):
            number = 2
            wanted = key
            while entries.get(key, entry) != entry:
                key, number = f"{wanted}_{number}", number + 1
            entries[key] = entry if key == wanted else entry.replace(wanted, key, 1)
    if with_data_stack:
        version = (distributions_of("data_stack") or ("datastack unknown",))[0].rpartition(" ")[2]
        entries["data_stack"] = _DATA_STACK % version
    return "\n\n".join(entries.values())


def _entries(origin: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The BibTeX entries of a dataset by their keys; plain text becomes the note of an entry."""
    name, text, homepage = str(origin.get("name")), (origin.get("citation") or "").strip(), origin.get("homepage")
    if text.startswith("@"):
        for part in re.split(r"(?m)^(?=\s*@\w+\s*\{)", text):
            if match := _ENTRY.match(part):
                yield match[1], part.strip()
        return
    fields = {"title": name, "note": text, "howpublished": homepage and rf"\url{{{homepage}}}", "version": origin.get("version")}
    lines = [f"  {field} = {{{_balanced(value)}}}" for field, value in fields.items() if value]
    key = re.sub(r"\W+", "_", name)
    yield key, "@misc{" + ",\n".join([key, *lines]) + "\n}"


def _balanced(text: str) -> str:
    """Text for a field of BibTeX, whose braces must be balanced."""
    return text if text.count("{") == text.count("}") else text.replace("{", "(").replace("}", ")")
