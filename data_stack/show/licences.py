"""Implements ``iterator.licences``, ``citation`` and ``provenance``: where datasets of a stack come from."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.recipes.recipe import list_origins
from data_stack.show.markup import Block, Document, Heading, Paragraph, Table
from data_stack.util.distributions import distributions_of

__all__ = ["LicencedDataset", "Licences", "citation", "is_denied", "licences", "provenance", "spdx_problem"]

_OWN_LICENCE = re.compile(r"\b(?:DocumentRef-[\w.-]+:)?LicenseRef-[\w.-]+", re.ASCII)
_DATA_STACK = """\
@software{data_stack,
  title = {data_stack: any dataset, from any store, behind one lazy random-access interface},
  version = {%s}
}"""


# ---------------------------------------------------------------------- licence expressions


def spdx_problem(licence: str) -> str | None:
    """Why a text is not an SPDX licence expression (https://spdx.org/licenses); None if it is one."""
    if not licence.strip():
        return "it is empty"
    # references to licences of one's own are SPDX, too, and their terms are not known
    found = _spdx().validate(_OWN_LICENCE.sub("MIT", licence))
    return "; ".join(found.errors) or None


def is_denied(licence: str | None, patterns: Sequence[str]) -> bool | None:
    """Whether a licence is denied: no choice of its ``OR`` avoids the patterns; None if the licence is not known.

    Args:
        licence: an SPDX expression.
        patterns: of SPDX identifiers, such as ``"*-NC-*"``, in upper or lower case.
    """
    if licence is None or spdx_problem(licence) is not None:
        return None
    own = _OWN_LICENCE.findall(licence)

    def visit(node: Any) -> bool | None:
        if node.args:
            parts = [visit(each) for each in node.args]
            decisive = type(node).__name__ != "OR"  # one denied part denies "A AND B"; one permitted part permits "A OR B"
            return decisive if decisive in parts else None if None in parts else not decisive
        name = getattr(node, "license_symbol", node).key  # "GPL-2.0-only WITH …": an exception only permits more
        return None if name in own else any(fnmatch.fnmatchcase(name.upper(), pattern.upper()) for pattern in patterns)

    return visit(_spdx().parse(licence))


def _spdx() -> Any:
    from license_expression import get_spdx_licensing  # with the list of SPDX 70 ms

    return get_spdx_licensing()


# ---------------------------------------------------------------------- licences of a stack


@dataclass(frozen=True, slots=True)
class LicencedDataset:
    """A dataset of a stack.

    Attributes:
        name: such as ``"digits"``.
        version: of the prepared data; None if its factory declares none.
        licence: the licence on its card; None if the card names no licence.
        homepage: where to read about it.
    """

    name: str
    version: str | None
    licence: str | None
    homepage: str | None


@dataclass(frozen=True, slots=True)
class Licences(Document):
    """The licences of all datasets in a stack. It prints as text, and shows as HTML in a notebook.

    Attributes:
        datasets: each once, in the order of the stack.
        n_unnamed: sources of the stack that no dataset's card describes, such as arrays of your own.
    """

    datasets: tuple[LicencedDataset, ...]
    n_unnamed: int

    def document(self, level: int = 1) -> list[Block]:
        rows = [
            (each.name if each.version is None else f"{each.name}@{each.version}", each.licence or "unknown", each.homepage or "")
            for each in self.datasets
        ]
        blocks: list[Block] = [Heading(level, "Licences"), Table(("dataset", "licence", "homepage"), rows)]
        if self.n_unnamed:
            blocks.append(Paragraph(f"{self.n_unnamed} more source(s) have no card, so their licences are unknown."))
        return blocks


def provenance(iterator: DatasetIteratorIF) -> list[dict[str, Any]]:
    """Who prepared each dataset of a stack, when, and from which sources; plain JSON data."""
    keys = ("name", "version", "split", "config", "distribution", "preparation")
    return [{key: origin.get(key) for key in keys} for origin in list_origins(iterator)[0]]


def licences(iterator: DatasetIteratorIF) -> Licences:
    """The licences of all datasets in a stack."""
    origins, n_unnamed = list_origins(iterator)
    found = {(each.get("name"), each.get("version")): each for each in origins}
    datasets = [
        LicencedDataset(str(each.get("name")), each.get("version"), each.get("license"), each.get("homepage"))
        for each in found.values()
    ]
    return Licences(tuple(datasets), n_unnamed)


# ---------------------------------------------------------------------- citations

_ENTRY = re.compile(r"\s*@\w+\s*\{\s*([^,\s]+)\s*,", re.ASCII)


def citation(iterator: DatasetIteratorIF, with_data_stack: bool = False) -> str:
    """BibTeX entries of all datasets in a stack, each once; datasets without a citation are named by a comment."""
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
