"""Describes iterators in notebooks: facts, eight samples, columns, classes, the stack."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any

from data_stack.show.column_report import ColumnReport, columns_of
from data_stack.show.counted_targets import (
    MAX_CLASSES,
    UNKNOWN_TARGETS,
    CountedTargets,
    count_targets,
)
from data_stack.show.display_value import shorten
from data_stack.show.explanation import Explanation, explain
from data_stack.show.markup import (
    Block,
    Document,
    Fold,
    Heading,
    Paragraph,
    SideBySide,
    as_text,
    samples_text,
)
from data_stack.show.report_tables import table_of_columns, table_of_targets
from data_stack.show.sample_parts import default_keys, hints_of
from data_stack.show.shown_samples import (
    ReadSample,
    ShownSamples,
    error_text,
    read_spread_samples,
)

#: Pictures and sounds of a page together, in bytes of HTML.
_MAX_MEDIA_BYTES = 130_000

#: The maximum number of datasets that the title of a page names.
_MAX_DATASETS_IN_TITLE = 3

#: The maximum number of licenses that a page names.
_MAX_LICENSES = 3

#: The maximum number of layers that the folded stack names.
_MAX_LAYERS_IN_SUMMARY = 4


def _part(
    make_blocks: Callable[[IteratorPage], list[Block]],
) -> Callable[[IteratorPage], list[Block]]:
    """Decorate a method that makes a part of a page.

    If the method raises, the page shows the error in place of the part.
    """

    @wraps(make_blocks)
    def make_blocks_or_show_error(page: IteratorPage) -> list[Block]:
        try:
            return make_blocks(page)
        except Exception as error:  # noqa: BLE001  # foreign code
            return [Paragraph(f"{make_blocks.__name__} cannot be shown: {error_text(error)}")]

    return make_blocks_or_show_error


@dataclass(frozen=True)
class IteratorPage(Document):
    """The page that a notebook shows for an iterator. It never raises.

    The page reads ``n_samples`` samples, spread over the iterator (over its first block if the
    source is read in blocks), within a second. It reads the target column if that reads no other
    column and takes at most 1 MB. ``str`` reads no sample.

    Args:
        iterator: any ``DatasetIteratorIF``.
        n_samples: number of samples shown.
        n_bytes: maximum size of all pictures and sounds together.
    """

    iterator: Any
    n_samples: int = 8
    n_bytes: int = _MAX_MEDIA_BYTES

    # ------------------------------------------------------------------ whole pages

    def document(self, level: int = 1) -> list[Block]:
        """Return all parts; ``level`` is that of the title."""
        blocks: list[Block] = [Heading(level, self.title)]
        blocks.extend(self.facts())
        blocks.extend(self.samples())
        tables = [part for part in (self.columns(), self.targets()) if part]
        if tables:
            blocks.append(SideBySide(tables))
        blocks.extend(self.stack())
        return blocks

    def __str__(self) -> str:
        return as_text([Heading(1, self.title), *self.facts(), *self.tree()])

    # ------------------------------------------------------------------ parts

    @cached_property
    def title(self) -> str:
        """The names, versions and splits of the datasets; without any the iterator's class."""
        names: list[str] = []
        # The layers are foreign code.
        with contextlib.suppress(Exception):
            names = [shorten(name) for name in _names_of_datasets(self._explanation)]
        if not names:
            return type(self.iterator).__name__
        if len(names) > _MAX_DATASETS_IN_TITLE:
            names = [*names[:_MAX_DATASETS_IN_TITLE], "…"]
        return " + ".join(names)

    @_part
    def facts(self) -> list[Block]:
        """Return the length, the licenses and the class."""
        n_samples = self._explanation.layers[0].n_samples
        facts = ["unknown length" if n_samples is None else samples_text(n_samples)]
        for license_name in list(self._explanation.licenses)[:_MAX_LICENSES]:
            facts.append(f"license {shorten(license_name)}" if license_name else "license unknown")
        class_name = type(self.iterator).__name__
        if class_name not in ("InformedDatasetIterator", self.title):
            facts.append(class_name)
        return [Paragraph(" · ".join(facts))]

    @_part
    def samples(self) -> list[Block]:
        """Return the samples: pictures side by side if each has one, otherwise a table."""
        shown_samples = ShownSamples(
            samples=self._read_samples,
            columns=self._columns,
            target_key=self._target_key,
            class_names=self._class_names,
            hints=hints_of(self.iterator),
            n_bytes=self.n_bytes,
        )
        return shown_samples.blocks()

    @_part
    def columns(self) -> list[Block]:
        """Return the columns, with the range or the number of classes of the target if known."""
        if not self._columns:
            return []
        about_target = self._counted_targets.description
        if not about_target and self._class_names:
            about_target = f"{len(self._class_names):,} classes"
        about_values = {}
        if about_target:
            about_values[self._target_key] = about_target
        return [Heading(2, "Columns"), table_of_columns(self._columns, about_values)]

    @_part
    def targets(self) -> list[Block]:
        """Return the classes with their counts, the largest first if there are many."""
        counts = self._counted_targets.counts
        # Targets of which each is different are no classes.
        if len(counts) < 2 or max(counts.values()) < 2:
            return []
        if len(counts) > MAX_CLASSES:
            counts = dict(Counter(counts).most_common())
        target_kind = getattr(self._meta, "target_kind", None)
        table = table_of_targets(counts, self._class_names, target_kind)
        heading = Heading(2, f"Classes of {shorten(self._name_of_target())}")
        return [heading, table._replace(max_rows=MAX_CLASSES)]

    @_part
    def tree(self) -> list[Block]:
        """Return the tree of layers."""
        return self._explanation.document()

    @_part
    def stack(self) -> list[Block]:
        """Return the tree of layers, folded below the names of the first ones."""
        names = [layer.layer for layer in self._explanation.layers]
        shown_names = [shorten(name) for name in names[:_MAX_LAYERS_IN_SUMMARY]]
        n_more = len(names) - len(shown_names)
        if n_more:
            shown_names.append(f"… {n_more:,} more")
        return [Fold(f"Stack: {' ← '.join(shown_names)}", self._explanation.document())]

    # ------------------------------------------------------------------ what the parts share

    @property
    def _meta(self) -> Any:
        return getattr(self.iterator, "dataset_meta", None)

    @property
    def _class_names(self) -> Sequence[Any] | None:
        return getattr(self._meta, "class_names", None)

    @cached_property
    def _explanation(self) -> Explanation:
        return explain(self.iterator)

    @cached_property
    def _read_samples(self) -> list[ReadSample]:
        """The samples to show, and those that cannot be read."""
        return read_spread_samples(self.iterator, self.n_samples)

    @cached_property
    def _good_samples(self) -> list[Any]:
        return [sample.sample for sample in self._read_samples if not sample.error]

    @cached_property
    def _columns(self) -> Sequence[ColumnReport]:
        if not self._good_samples:
            return ()
        return columns_of(self.iterator, self._good_samples)

    @cached_property
    def _target_key(self) -> Any:
        if not self._good_samples:
            return None
        _, target_key = default_keys(self._meta, self._good_samples[0])
        return target_key

    @cached_property
    def _counted_targets(self) -> CountedTargets:
        # Counting runs foreign code; a page without counts is better than an error.
        with contextlib.suppress(Exception):
            return count_targets(self.iterator, self._target_key, self._good_samples)
        return UNKNOWN_TARGETS

    def _name_of_target(self) -> str:
        for column in self._columns:
            if column.key == self._target_key:
                return str(column.name or column.key)
        return "target"


def _names_of_datasets(explanation: Explanation) -> list[str]:
    """Return the names of the datasets that the samples come from; else that of the top layer."""
    layers = explanation.layers
    names = [layer.dataset for layer in layers if layer.is_origin and layer.dataset]
    if not names and layers[0].dataset:
        names = [layers[0].dataset]
    return names
