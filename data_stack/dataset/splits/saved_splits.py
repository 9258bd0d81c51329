"""Splits kept as a resource: which samples were in which part, for this dataset and no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_stack.codecs.plain_data import canonical_json, from_plain, to_plain
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.contract import DatasetIteratorIF, as_iterator
from data_stack.dataset.iterator.layer import DatasetIteratorView, InformedDatasetIterator, NamedAccess, RearrangedAccess
from data_stack.dataset.positions import Positions, as_index_array, compose, narrow
from data_stack.dataset.recipes.recipe import fingerprint
from data_stack.dataset.splits.parts import Fold, add_tag
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.util.untrusted_text import JsonObject, parse_json, seal_json

FORMAT = 3


@dataclass(frozen=True)
class SavedSplits:
    """Which samples of which dataset are in which part.

    Attributes:
        fingerprint: of the iterator that was divided.
        n_samples: its length.
        parts: the parts as they were arranged, as JSON. A part is its key in a dict (or null) and an array: where its samples
            ascend, uint8 with one bit per sample of the dataset, lowest bit first; otherwise their positions.
    """

    fingerprint: str
    n_samples: int
    parts: str

    @classmethod
    def of(cls, splits: Any, iterator: DatasetIteratorIF | None = None) -> SavedSplits:
        """Find out which samples of ``iterator`` the parts are; None for what the first part was directly made from.

        Raises:
            ConfigError: a part is not a view of it, or there are no parts.
        """
        dataset: Any = iterator

        def describe(part: DatasetIteratorIF, name: str, tag: str | None) -> Any:
            nonlocal dataset
            positions, dataset = _positions_in(part, dataset, name)
            return {"part": [tag, to_plain(_pack(positions, len(dataset)))]}

        parts = canonical_json(_arrange(splits, (), None, describe))
        if dataset is None:
            raise ConfigError("these splits have no parts to save")
        return cls(fingerprint(as_iterator(dataset)), len(dataset), parts)

    def apply_to(self, iterator: DatasetIteratorIF) -> Any:
        """The parts as views of ``iterator``, arranged as they were.

        Raises:
            ConfigError: it is another dataset.
            DatasetFileCorruptError: a part is damaged.
        """
        dataset = as_iterator(iterator)
        found = fingerprint(dataset) if len(dataset) == self.n_samples else None
        if found != self.fingerprint:
            other = "" if found is None else f" with fingerprint {found}"
            raise ConfigError(
                f"these splits are of a dataset of {self.n_samples:,} samples with fingerprint {self.fingerprint}, "
                f"but the iterator given has {len(dataset):,} samples{other}. Stack the iterator as it was when it was split, "
                f"or split it again."
            )

        def make_part(content: Any) -> DatasetIteratorIF:
            tag, positions = content
            return _as_view(dataset, np.asarray(from_plain(positions)), tag)

        def make_fold(content: Any) -> Fold:
            number, train, test = content
            return Fold(make_part(train["part"]), make_part(test["part"]), number)

        try:
            return from_plain(parse_json(self.parts), {"part": make_part, "fold": make_fold})
        except (ConfigError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise DatasetFileCorruptError(f"splits are damaged: their parts cannot be arranged ({str(error)[:200]})") from error

    def to_json(self) -> bytes:
        """The splits as they are stored: indented ASCII JSON with its own digest."""
        return seal_json({"format": FORMAT, **vars(self)})

    @classmethod
    def from_json(cls, data: bytes, identifier: str = "splits") -> SavedSplits:
        """Read stored splits; :meth:`apply_to` checks the parts.

        Raises:
            DatasetFileCorruptError: they are damaged, or of a format that this version does not know.
        """
        what = f"{identifier!r} with splits"
        fields = JsonObject.unseal(data, what)
        if (number := fields.size("format")) != FORMAT:
            raise DatasetFileCorruptError(f"{what} has format {number}, but this version of data_stack reads format {FORMAT}")
        splits = cls(fields.text("fingerprint"), fields.size("n_samples"), fields.text("parts"))
        fields.done()
        return splits


def _arrange(
    splits: Any, path: tuple[str, ...], tag: str | None, describe: Callable[[DatasetIteratorIF, str, str | None], Any]
) -> Any:
    """``splits`` as plain data, with what ``describe`` returns for each part."""
    if isinstance(splits, DatasetIteratorIF):
        return describe(splits, "/".join(path) or "0", tag)
    if isinstance(splits, Fold):
        place = (*path[:-1], f"fold {splits.number}")
        sides = {"train": splits.train, "test": splits.test}
        return {"fold": [splits.number, *(_arrange(part, (*place, side), None, describe) for side, part in sides.items())]}
    if isinstance(splits, Mapping):
        items = splits.items()
        return {"dict": [[to_plain(key), _arrange(each, (*path, str(key)), str(key), describe)] for key, each in items]}
    if isinstance(splits, (list, tuple)):
        arranged = [_arrange(each, (*path, str(number)), None, describe) for number, each in enumerate(splits)]
        return arranged if isinstance(splits, list) else {"tuple": arranged}
    where = f" at {'/'.join(path)!r}" if path else ""
    raise ConfigError(f"splits are views of an iterator, in lists and dicts, but there is a {type(splits).__name__}{where}")


def _positions_in(part: Any, dataset: Any, name: str) -> tuple[Positions, Any]:
    """The positions in ``dataset`` of a view of it, maybe through other views; None for what the view was directly made from."""
    positions: Positions = range(len(part))
    below = part
    while below is not dataset:
        if isinstance(below, InformedDatasetIterator):
            below = below._stack_on()[0]
        # a client's subclass of a view may change samples
        elif isinstance(below, DatasetIteratorView) and isinstance(access_to(below), (RearrangedAccess, NamedAccess)):
            positions, below = compose(positions, below._given), below._dataset_iterator
            if dataset is None:
                break
        else:
            raise ConfigError(
                f"part {name!r} is not a view of the iterator that was split: it is a {type(part).__name__} on a "
                f"{type(below).__name__}. Save views of one and the same iterator; name it with iterator=… if they are deeper."
            )
    return positions, below


def _pack(positions: Positions, n_samples: int) -> Any:
    indices = as_index_array(positions)
    if not bool((indices[1:] > indices[:-1]).all()):
        return narrow(indices, n_samples)
    mask = np.zeros(n_samples, dtype=bool)
    mask[indices] = True
    return np.packbits(mask, bitorder="little")


def _as_view(dataset: DatasetIteratorIF, packed: Any, tag: str | None) -> DatasetIteratorIF:
    indices = packed
    if packed.dtype == np.uint8:
        indices = np.flatnonzero(np.unpackbits(packed, count=len(dataset), bitorder="little"))
    view = dataset._stack_layer(DatasetIteratorView, indices=indices, view_tags=None if tag is None else {"part": tag})
    if tag is None or not isinstance(view, InformedDatasetIterator):
        return view
    return InformedDatasetIterator(view._stack_on()[0], add_tag(view.dataset_meta, tag))
