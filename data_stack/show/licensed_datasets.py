"""Lists the licenses of the datasets in a stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.recipes.nodes import list_origins
from data_stack.show.markup import Block, Document, Heading, Paragraph, Table


class LicensedDataset(NamedTuple):
    """A dataset of a stack.

    Attributes:
        name: the name of the dataset, such as ``"digits"``.
        version: the version of the prepared data; None if the factory declares none.
        license: the license in the card; None if the card names no license.
        homepage: the URL of a page about the dataset; None if the card names none.
    """

    name: str
    version: str | None
    license: str | None
    homepage: str | None


@dataclass(frozen=True, slots=True)
class Licenses(Document):
    """The licenses of all datasets in a stack. It prints as text, and shows as HTML in a notebook.

    Attributes:
        datasets: the datasets, each once, in the order of the stack.
        n_unnamed: the number of sources that no card of a dataset describes, such as arrays of
            your own.
    """

    datasets: tuple[LicensedDataset, ...]
    n_unnamed: int

    def document(self, level: int = 1) -> list[Block]:
        """Return a row for each dataset."""
        rows = []
        for dataset in self.datasets:
            name = dataset.name
            if dataset.version is not None:
                name += f"@{dataset.version}"
            rows.append((name, dataset.license or "unknown", dataset.homepage or ""))
        table = Table(("dataset", "license", "homepage"), rows)
        blocks: list[Block] = [Heading(level, "Licenses"), table]
        if self.n_unnamed:
            note = f"{self.n_unnamed} more source(s) have no card, so their licenses are unknown."
            blocks.append(Paragraph(note))
        return blocks


def licenses(iterator: DatasetIteratorIF) -> Licenses:
    """List the licenses of all datasets in a stack."""
    origins, n_unnamed = list_origins(iterator)
    # Several splits of a dataset have one license.
    origin_of_dataset: dict[tuple[Any, Any], Mapping[str, Any]] = {}
    for origin in origins:
        origin_of_dataset[origin.get("name"), origin.get("version")] = origin
    datasets = []
    for origin in origin_of_dataset.values():
        dataset = LicensedDataset(
            name=str(origin.get("name")),
            version=origin.get("version"),
            license=origin.get("license"),
            homepage=origin.get("homepage"),
        )
        datasets.append(dataset)
    return Licenses(tuple(datasets), n_unnamed)
