"""Implements ``iterator.explain``, ``licenses``, ``citation``, ``provenance``: what a stack consists of."""

from __future__ import annotations

import contextlib
import functools
import html
import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from data_stack.codecs.plain_data import shorten
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layers.informed import InformedDatasetIterator
from data_stack.dataset.iterator.stack import walk_stack
from data_stack.dataset.recipes.nodes import list_origins
from data_stack.show.markup import (
    Block,
    Document,
    Heading,
    Paragraph,
    Rich,
    Table,
    printable,
    readable,
)
from data_stack.util.distributions import distributions_of

_PARTS_FIRST = 4  # if there are more parts, only the first four and the last one are drawn
_MAX_DATASETS = 20
_DATA_STACK = """\
@software{data_stack,
  title = {data_stack: any dataset, from any store, behind one lazy random-access interface},
  version = {%s}
}"""


class ExplainedLayer(NamedTuple):
    """One iterator of a stack; an :class:`InformedDatasetIterator` is described with the iterator that it wraps.

    Attributes:
        number: counts from 1; an iterator comes before those below it.
        layer: its name in recipes, such as ``"view"``, or the name of its class.
        arguments: of its constructor, shortened; arguments equal to their defaults are left out.
        n_samples: None if unknown.
        stacked_on: numbers of the iterators below it, in order.
        dataset: name, version and split of its origin, or name and tag of its meta.
        license: that of its origin; None if unknown.
        is_origin: whether a repository loaded these samples.
        notes: randomness and cost.
    """

    number: int
    layer: str
    arguments: str
    n_samples: int | None
    stacked_on: tuple[int, ...]
    dataset: str | None
    license: str | None
    is_origin: bool
    notes: tuple[str, ...]


class Explanation(Document):
    """A stack of iterators as a tree. It prints as text, and shows as HTML in a notebook.

    Attributes:
        layers: all iterators, each once; ``layers[n - 1].number == n``.
        licenses: the loaded datasets, by license; the key None has those of unknown license.
    """

    def __init__(self, layers: Sequence[ExplainedLayer]) -> None:
        self.layers = tuple(layers)
        self._n_above = Counter(number for layer in layers for number in layer.stacked_on)
        self.licenses: dict[str | None, list[str]] = {}
        for layer in layers:
            datasets = self.licenses.setdefault(layer.license, []) if layer.is_origin else []
            if layer.dataset is not None and layer.dataset not in datasets:
                datasets.append(layer.dataset)

    def __str__(self) -> str:
        return "\n".join(
            [*self._lines(1, "", "", set()), *[""] * bool(self.licenses), *self._summary()]
        )

    __repr__ = __str__

    def document(self, level: int = 1) -> list[Block]:
        """The tree and the licenses."""
        tree = "\n".join(self._lines(1, "", "", set()))
        drawn = Rich(tree, f"<pre>{html.escape(printable(tree, keep=chr(10)))}</pre>")
        return [Paragraph(drawn), *map(Paragraph, self._summary())]

    def _summary(self) -> Iterator[str]:
        for license_, datasets in self.licenses.items():
            more = (
                f", … {len(datasets) - _MAX_DATASETS:,} more"
                if len(datasets) > _MAX_DATASETS
                else ""
            )
            what = "license unknown" if license_ is None else f"license {readable(license_)}"
            yield f"{what}: {', '.join(datasets[:_MAX_DATASETS])}{more}"

    def _lines(self, number: int, first: str, rest: str, drawn: set[int]) -> Iterator[str]:
        """The tree below a layer; ``first`` begins its first line, ``rest`` its others."""
        while True:  # a chain may be deep: it has no indent, and needs no recursion
            layer = self.layers[number - 1]
            arguments = f"({layer.arguments})" if layer.arguments else ""
            length = (
                "of unknown length" if layer.n_samples is None else samples_text(layer.n_samples)
            )
            name = f"[{number}] " if self._n_above[number] > 1 else ""
            yield f"{first}{name}{layer.layer}{arguments}  {length}{', as above' if number in drawn else ''}"
            if number in drawn:
                return
            drawn.add(number)
            margin = rest + ("│  " if layer.stacked_on else "   ")
            below = [self.layers[each - 1] for each in layer.stacked_on]
            is_named_below = any(part.is_origin or part.dataset == layer.dataset for part in below)
            if layer.is_origin:
                yield f"{margin}dataset {layer.dataset or 'without a name'}, license {readable(layer.license or 'unknown')}"
            elif layer.dataset is not None and (layer.number == 1 or not is_named_below):
                yield f"{margin}dataset {layer.dataset}"
            yield from (margin + note for note in layer.notes)
            if len(layer.stacked_on) != 1:
                break
            number, first = layer.stacked_on[0], rest
        parts = layer.stacked_on
        n_left_out = len(parts) - _PARTS_FIRST - 1 if len(parts) > 8 else 0
        for part in parts[:_PARTS_FIRST] if n_left_out else parts[:-1]:
            yield from self._lines(part, rest + "├─ ", rest + "│  ", drawn)
        if n_left_out:
            yield f"{rest}├─ … {n_left_out:,} more"
        for part in parts[-1:]:
            yield from self._lines(part, rest + "└─ ", rest + "   ", drawn)


def samples_text(n_samples: int) -> str:
    """The number of samples in words."""
    return f"{n_samples:,} sample{'' if n_samples == 1 else 's'}"


def explain(iterator: Any) -> Explanation:
    """Describe ``iterator`` and its stack without reading samples.

    Args:
        iterator: any iterator or sequence.

    Raises:
        ConfigError: an iterator is stacked on itself.
    """
    informed: dict[int, tuple[Any, Mapping[str, Any] | None]] = {}  # metas and origins

    def unwrap(layer: Any) -> Any:
        meta, origin = None, None
        while type(layer) is InformedDatasetIterator:
            meta = layer.dataset_meta if meta is None else meta
            origin = layer._origin if origin is None else origin
            layer = layer._dataset_iterator
        informed.setdefault(
            id(layer), (getattr(layer, "dataset_meta", None) if meta is None else meta, origin)
        )
        return layer

    def below_of(layer: Any) -> list[Any]:
        given = (
            layer._iterators_below()
            if _is_ours(layer)
            else getattr(layer, "underlying_iterators", ())
        )
        return [unwrap(each) for each in reversed(list(given))]

    found = list(walk_stack(unwrap(iterator), below_of))[::-1]
    numbers = {id(layer): number for number, (layer, _) in enumerate(found, start=1)}
    explained = []
    for layer, below in found:
        meta, origin = informed[id(layer)]
        parts = [getattr(meta, "dataset_name", None), getattr(meta, "dataset_tag", None)]
        if origin is not None:
            parts = [
                " ".join(str(origin[key]) for key in ("name", "version") if origin.get(key)),
                origin.get("split"),
            ]
        given: list[tuple[str, Any]] = []
        if below and _is_ours(layer):
            known = inspect.signature(type(layer).__init__).parameters
            items = layer._arguments().items()
            given = [
                (name, value)
                for name, value in items
                if name not in known or value is not known[name].default
            ]
        n_samples = None
        with contextlib.suppress(Exception):  # foreign code
            n_samples = len(layer)
        is_ours, license_ = _is_ours(layer), (origin or {}).get("license")
        each = ExplainedLayer(
            number=numbers[id(layer)],
            layer=str(layer._layer_name) if is_ours else type(layer).__name__,
            arguments=readable(", ".join(f"{name}={_short(value)}" for name, value in given), 120),
            n_samples=n_samples,
            stacked_on=tuple(numbers[id(part)] for part in reversed(below)),
            dataset=", ".join(readable(part) for part in parts if part) or None,
            license=str(license_) if license_ else None,
            is_origin=origin is not None,
            notes=tuple(_notes(layer, bool(below))),
        )
        explained.append(each)
    return Explanation(explained)


def _is_ours(layer: Any) -> bool:
    """Whether its class is a layer of ours; a client's subclass may not have called our constructor."""
    return isinstance(layer, DatasetIteratorIF) and "_layer_name" in vars(type(layer))


def _notes(layer: Any, is_stacked: bool) -> Iterator[str]:
    if not is_stacked and (noted := getattr(layer, "_repr_details", "")):
        yield noted.strip()
    arguments = layer._arguments() if is_stacked and _is_ours(layer) else {}
    if is_stacked and _is_ours(layer) and layer._draw is not None:
        yield "random: at_epoch changes it"
    if callable(arguments.get("function")):
        yield f"calls a Python function for each {'batch' if arguments.get('batched') else 'sample'}"


def _short(value: Any) -> str:
    """A value in a few words, a function by its name."""
    if isinstance(name := getattr(value, "__qualname__", None), str):
        return name
    if isinstance(value, functools.partial):
        return f"partial({_short(value.func)})"
    return (
        shorten(value) if type(value).__module__ in ("builtins", "numpy") else type(value).__name__
    )


# ---------------------------------------------------------------------- licenses of a stack


class LicensedDataset(NamedTuple):
    """A dataset of a stack.

    Attributes:
        name: such as ``"digits"``.
        version: of the prepared data; None if its factory declares none.
        license: the license on its card; None if the card names no license.
        homepage: where to read about it.
    """

    name: str
    version: str | None
    license: str | None
    homepage: str | None


@dataclass(frozen=True, slots=True)
class Licenses(Document):
    """The licenses of all datasets in a stack. It prints as text, and shows as HTML in a notebook.

    Attributes:
        datasets: each once, in the order of the stack.
        n_unnamed: sources of the stack that no dataset's card describes, such as arrays of your own.
    """

    datasets: tuple[LicensedDataset, ...]
    n_unnamed: int

    def document(self, level: int = 1) -> list[Block]:
        names = [
            each.name + ("" if each.version is None else f"@{each.version}")
            for each in self.datasets
        ]
        pairs = zip(names, self.datasets, strict=True)
        rows = [(name, each.license or "unknown", each.homepage or "") for name, each in pairs]
        blocks: list[Block] = [
            Heading(level, "Licenses"),
            Table(("dataset", "license", "homepage"), rows),
        ]
        if self.n_unnamed:
            blocks.append(
                Paragraph(
                    f"{self.n_unnamed} more source(s) have no card, so their licenses are unknown."
                )
            )
        return blocks


def provenance(iterator: DatasetIteratorIF) -> list[dict[str, Any]]:
    """Who prepared each dataset of a stack, when, and from which sources; plain JSON data."""
    keys = ("name", "version", "split", "config", "distribution", "preparation")
    return [{key: origin.get(key) for key in keys} for origin in list_origins(iterator)[0]]


def licenses(iterator: DatasetIteratorIF) -> Licenses:
    """The licenses of all datasets in a stack."""
    origins, n_unnamed = list_origins(iterator)
    found = {(each.get("name"), each.get("version")): each for each in origins}
    fields = ("version", "license", "homepage")
    datasets = (
        LicensedDataset(str(each.get("name")), *map(each.get, fields)) for each in found.values()
    )
    return Licenses(tuple(datasets), n_unnamed)


# ---------------------------------------------------------------------- citations


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
        version = (distributions_of("data_stack") or ("lazy-data-stack unknown",))[0].rpartition(
            " "
        )[2]
        entries["data_stack"] = _DATA_STACK % version
    return "\n\n".join(entries.values())


def _entries(origin: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The BibTeX entries of a dataset by their keys; plain text becomes the note of an entry."""
    name, text, homepage = (
        str(origin.get("name")),
        (origin.get("citation") or "").strip(),
        origin.get("homepage"),
    )
    if text.startswith("@"):
        for part in re.split(r"(?m)^(?=\s*@\w+\s*\{)", text):
            if match := re.match(r"\s*@\w+\s*\{\s*([^,\s]+)\s*,", part, re.ASCII):
                yield match[1], part.strip()
        return
    fields = {
        "title": name,
        "note": text,
        "howpublished": homepage and rf"\url{{{homepage}}}",
        "version": origin.get("version"),
    }
    key = re.sub(r"\W+", "_", name)
    lines = [key]
    for field, value in fields.items():
        if value and value.count("{") != value.count("}"):  # braces of BibTeX must be balanced
            value = value.replace("{", "(").replace("}", ")")
        lines += [f"  {field} = {{{value}}}"] if value else []
    yield key, "@misc{" + ",\n".join(lines) + "\n}"
