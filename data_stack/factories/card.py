"""The card of a dataset: what its author says of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatasetCard:
    """Name, version, license and origin of a dataset.

    Args:
        name: the folder of the dataset in every store: one segment of an identifier, e.g.
            ``"digits"``. It should equal the name of the entry point.
        version: the version of the prepared data, e.g. ``"1.0.0"``: the folder below that, one
            segment too. Another version when the prepared bytes change makes every store prepare
            them again.
        license: an SPDX identifier such as ``"CC-BY-4.0"``, or a sentence.
        homepage: its web page.
        citation: how to cite it.
        keeps_versions: False for a dataset that is stored in ``name/`` itself, as by the original
            DataStack; then each version replaces the one before.
    """

    name: str
    version: str
    license: str | None = None
    homepage: str | None = None
    citation: str | None = None
    keeps_versions: bool = True
