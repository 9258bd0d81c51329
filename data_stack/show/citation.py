"""Makes the BibTeX entries of the datasets in a stack."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.recipes.nodes import list_origins
from data_stack.util.distributions import distributions_of

_ENTRY_OF_DATA_STACK = """\
@software{data_stack,
  title = {data_stack: any dataset, from any store, behind one lazy random-access interface},
  version = {%s}
}"""

#: Where an entry begins, such as ``@misc{``, at the start of a line.
_START_OF_ENTRY = re.compile(r"(?m)^(?=\s*@\w+\s*\{)")

#: The key of an entry: ``@misc{key,``.
_KEY_OF_ENTRY = re.compile(r"\s*@\w+\s*\{\s*([^,\s]+)\s*,", re.ASCII)


def citation(iterator: DatasetIteratorIF, with_data_stack: bool = False) -> str:
    """Return the BibTeX entries of all datasets in a stack, each once.

    A dataset whose citation is plain text, or that has none, becomes an entry ``@misc``.

    Args:
        iterator: the stack.
        with_data_stack: whether the last entry is that of data_stack.
    """
    entries: dict[str, str] = {}
    origins, _ = list_origins(iterator)
    for origin in origins:
        for key, entry in _entries_of(origin):
            _add_entry(entries, key, entry)
    if with_data_stack:
        entries["data_stack"] = _ENTRY_OF_DATA_STACK % _version_of_data_stack()
    return "\n\n".join(entries.values())


def _add_entry(entries: dict[str, str], wanted_key: str, entry: str) -> None:
    """Add an entry, unless the same entry is there already.

    If another entry has the key, the new one gets a number after its key: ``author20_2``.

    Args:
        entries: the entries by key; changed in place.
        wanted_key: the key that the entry has.
        entry: the entry, as BibTeX.
    """
    type_of_entry, brace, fields = entry.partition("{")
    key = wanted_key
    number = 2
    keyed_entry = entry
    while entries.get(key, keyed_entry) != keyed_entry:
        key = f"{wanted_key}_{number}"
        number += 1
        # The type may contain the key as well: "@article{art,".
        keyed_entry = type_of_entry + brace + fields.replace(wanted_key, key, 1)
    entries[key] = keyed_entry


def _version_of_data_stack() -> str:
    """Return the installed version of data_stack, or ``"unknown"``."""
    distributions = distributions_of("data_stack")
    if not distributions:
        return "unknown"
    _, _, version = distributions[0].rpartition(" ")
    return version


def _entries_of(origin: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the entries of a dataset with their keys."""
    text = (origin.get("citation") or "").strip()
    if not text.startswith("@"):
        yield _entry_of_text(origin, text)
        return
    for part in _START_OF_ENTRY.split(text):
        match = _KEY_OF_ENTRY.match(part)
        if match is not None:
            yield match[1], part.strip()


def _entry_of_text(origin: Mapping[str, Any], text: str) -> tuple[str, str]:
    """Return key and entry of a dataset whose citation is plain text, the note of the entry."""
    name = str(origin.get("name"))
    homepage = origin.get("homepage")
    howpublished = None
    if homepage:
        howpublished = rf"\url{{{homepage}}}"
    fields = {
        "title": name,
        "note": text,
        "howpublished": howpublished,
        "version": origin.get("version"),
    }
    key = re.sub(r"\W+", "_", name)
    lines = [key]
    for field, value in fields.items():
        if value:
            lines.append(f"  {field} = {{{_with_balanced_braces(value)}}}")
    return key, "@misc{" + ",\n".join(lines) + "\n}"


def _with_balanced_braces(value: str) -> str:
    """Return a value whose braces BibTeX can read."""
    if value.count("{") == value.count("}"):
        return value
    return value.replace("{", "(").replace("}", ")")
