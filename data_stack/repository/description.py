"""The facts of a dataset that are known without preparing it."""

from __future__ import annotations

from dataclasses import dataclass

from data_stack.show.markup import Block, Document, Facts, Heading, Paragraph


@dataclass(frozen=True, slots=True)
class DatasetDescription(Document):
    """The facts of a dataset that are known without preparing it. It prints as text, and shows as HTML in a notebook.

    Attributes:
        name: to load it by.
        version: of its prepared data; None for legacy factories, like all that follows.
        description: docstring of its factory, may be empty.
        license: an SPDX identifier or a sentence.
        homepage: where to read about it.
        citation: how to cite it.
        splits: their names; empty if the factory does not declare them.
        options: configuration keys besides ``split``, with their defaults, e.g. ``("scaled=False",)``.
        class_names: names of the classes of targets; empty if the factory does not declare them.
        distribution: the installed package that provides it; None if this program registered it.
        distribution_version: its version.
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

    def document(self, level: int = 1) -> list[Block]:
        """Name, description and facts; ``level`` is that of the heading."""
        return [*self.header(level), Facts(self.facts())]

    def header(self, level: int) -> list[Block]:
        """Name, version, and the first paragraph of the description."""
        title: list[Block] = [Heading(level, f"{self.name} {self.version or ''}".rstrip())]
        return [*title, Paragraph(self.description.partition("\n\n")[0])] if self.description else title

    def facts(self) -> list[tuple[str, str]]:
        """Those that are known, by their names."""
        package = f"{self.distribution} {self.distribution_version}" if self.distribution else None
        facts = [("license", self.license), ("homepage", self.homepage), ("citation", self.citation)]
        facts += [("splits", ", ".join(self.splits)), ("options", ", ".join(self.options)), ("from", package)]
        return [(name, fact) for name, fact in facts if fact]
