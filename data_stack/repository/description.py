"""What is known of a dataset before it is prepared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from data_stack.show.markup import Block, Document, Facts, Heading, Paragraph

#: Files and folders that are left out of a place, of which the description shows the first.
_MAX_SHOWN = 3


@dataclass(frozen=True, slots=True)
class DatasetDescription(Document):
    """The facts of a dataset that are known without preparing it.

    It prints as text, and shows as HTML in a notebook.

    Attributes:
        name: the name by which it is loaded.
        version: the version of its prepared data. A legacy factory declares neither this nor what
            follows.
        description: the docstring of its factory; it may be empty.
        license: an SPDX identifier, or a sentence.
        homepage: where to read about it.
        citation: how to cite it.
        splits: the names of the splits; empty if the factory does not declare them.
        options: configuration keys besides ``split``, with their defaults, e.g.
            ``("scaled=False",)``.
        class_names: the names of the classes of targets; empty if the factory does not declare
            them.
        distribution: the installed package that provides it; None if this program registered it.
        distribution_version: the version of that package.
        left_out: the files and folders of a place that are not read and may be data, each with the
            rule that leaves it out.
    """

    name: str
    version: str | None = None
    description: str = ""
    license: str | None = None
    homepage: str | None = None
    citation: str | None = None
    splits: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    distribution: str | None = None
    distribution_version: str | None = None
    left_out: tuple[str, ...] = ()

    def document(self, level: int = 1) -> list[Block]:
        """Return name, description and facts.

        Args:
            level: the level of the heading.
        """
        return [*self.header(level), Facts(self.facts())]

    def header(self, level: int) -> list[Block]:
        """Return name, version, and the first paragraph of the description."""
        title = self.name
        if self.version is not None:
            title += f" {self.version}"
        blocks: list[Block] = [Heading(level, title)]
        if self.description:
            first_paragraph = self.description.partition("\n\n")[0]
            blocks.append(Paragraph(first_paragraph))
        return blocks

    def facts(self) -> list[tuple[str, str]]:
        """Return the facts that are known, by their names."""
        package = None
        if self.distribution is not None:
            package = f"{self.distribution} {self.distribution_version}"
        facts = [
            ("license", self.license),
            ("homepage", self.homepage),
            ("citation", self.citation),
            ("splits", ", ".join(self.splits)),
            ("options", ", ".join(self.options)),
            ("from", package),
            ("left out", _list_first(self.left_out)),
        ]
        return [(name, fact) for name, fact in facts if fact]


def _list_first(texts: Sequence[str]) -> str:
    """Return the first of some texts, and the number of the others."""
    shown = "; ".join(texts[:_MAX_SHOWN])
    n_more = len(texts) - _MAX_SHOWN
    if n_more > 0:
        return f"{shown} and {n_more:,} more"
    return shown
