"""The form in which splits are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json, from_plain, to_plain
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.fold import Fold
from data_stack.dataset.iterator.layers.informed import InformedDatasetIterator, NamedAccess
from data_stack.dataset.iterator.layers.view import DatasetIteratorView, RearrangedAccess
from data_stack.dataset.positions import Positions, as_index_array, compose, narrow
from data_stack.dataset.recipes.fingerprint import fingerprint
from data_stack.dataset.splits.parts import add_tag
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.util.untrusted_text import JsonObject, parse_json, seal_json

_FORMAT = 3


@dataclass(frozen=True)
class SavedSplits:
    """Which samples of which dataset are in which part.

    Attributes:
        fingerprint: the fingerprint of the iterator that was divided.
        n_samples: the length of that iterator.
        parts: JSON of the lists and dicts in which the parts were passed. Each part stands in it as
            a pair. The first item is the key of the part if it was in a dict, otherwise null. The
            second one is an array: uint8 with one bit per sample of the dataset, lowest bit first,
            if the positions of the part ascend; otherwise the positions.
    """

    fingerprint: str
    n_samples: int
    parts: str

    @classmethod
    def of(cls, splits: Any, iterator: DatasetIteratorIF | None = None) -> SavedSplits:
        """Find out which samples of an iterator are in which part.

        Args:
            splits: views of one iterator, in nested lists, tuples and dicts.
            iterator: what the parts are views of; None: the iterator from which the first part was
                made.

        Raises:
            ConfigError: a part is not a view of the iterator, or there are no parts.
        """
        dataset: Any = iterator

        def describe_part(part: DatasetIteratorIF, name: str, tag: str | None) -> Any:
            nonlocal dataset
            if dataset is None:
                dataset = _directly_below(part, name)
            positions = _positions_in(part, dataset, name)
            return {"part": [tag, _write_positions(positions, len(dataset))]}

        arranged_parts = canonical_json(_Arrangement(describe_part).describe(splits))
        if dataset is None:
            raise ConfigError("these splits have no parts to save")
        return cls(fingerprint(as_iterator(dataset)), len(dataset), arranged_parts)

    def apply_to(self, iterator: DatasetIteratorIF) -> Any:
        """Return the parts as views of an iterator, in lists and dicts as they were passed.

        Raises:
            ConfigError: the iterator is another dataset than the one that was divided.
            DatasetFileCorruptError: a part is damaged.
        """
        dataset = as_iterator(iterator)
        self._check_dataset(dataset)

        def make_part(content: Any) -> DatasetIteratorIF:
            tag, written_positions = content
            return _view_of_part(dataset, tag, written_positions)

        def make_fold(content: Any) -> Fold:
            number, train, test = content
            return Fold(make_part(train["part"]), make_part(test["part"]), number)

        try:
            return from_plain(parse_json(self.parts), {"part": make_part, "fold": make_fold})
        except (ConfigError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise DatasetFileCorruptError(
                f"splits are damaged: their parts cannot be arranged ({str(error)[:200]})"
            ) from error

    def _check_dataset(self, dataset: DatasetIteratorIF) -> None:
        """Check that a dataset is the one that was divided.

        Raises:
            ConfigError: it is another one.
        """
        given = f"{len(dataset):,} samples"
        if len(dataset) == self.n_samples:
            # Computing the fingerprint may take long, so it is done only if the length is right.
            given_fingerprint = fingerprint(dataset)
            if given_fingerprint == self.fingerprint:
                return
            given += f" with fingerprint {given_fingerprint}"
        raise ConfigError(
            f"these splits are of a dataset of {self.n_samples:,} samples with fingerprint "
            f"{self.fingerprint}, the one given has {given}. "
            "Stack it as it was then, or split it again"
        )

    def to_json(self) -> bytes:
        """Return the splits as they are stored: indented ASCII JSON with its own digest."""
        return seal_json(
            {
                "format": _FORMAT,
                "fingerprint": self.fingerprint,
                "n_samples": self.n_samples,
                "parts": self.parts,
            }
        )

    @classmethod
    def from_json(cls, data: bytes, identifier: str = "splits") -> SavedSplits:
        """Read stored splits; :meth:`apply_to` checks the parts.

        Raises:
            DatasetFileCorruptError: they are damaged, or of a format that this version does not
                know.
        """
        fields = JsonObject.unseal(data, f"{identifier!r} with splits")
        fields.known_format(_FORMAT)
        splits = cls(fields.text("fingerprint"), fields.size("n_samples"), fields.text("parts"))
        fields.done()
        return splits


# -------------------------------------------------------------------------- positions of one part


def _write_positions(positions: Positions, n_samples: int) -> Any:
    """Return positions as plain data: a bit for each sample if they ascend."""
    indices = as_index_array(positions)
    is_ascending = bool((indices[1:] > indices[:-1]).all())
    if not is_ascending:
        return to_plain(narrow(indices, n_samples))
    is_in_part = np.zeros(n_samples, dtype=bool)
    is_in_part[indices] = True
    return to_plain(np.packbits(is_in_part, bitorder="little"))


def _read_positions(written_positions: Any, n_samples: int) -> npt.NDArray[Any]:
    """Return the positions that :func:`_write_positions` wrote."""
    positions = np.asarray(from_plain(written_positions))
    are_bits = positions.dtype == np.uint8
    if not are_bits:
        return positions
    return np.flatnonzero(np.unpackbits(positions, count=n_samples, bitorder="little"))


def _view_of_part(dataset: Any, tag: str | None, written_positions: Any) -> DatasetIteratorIF:
    """Return a stored part as a view; a part with a tag has it in its meta, if there is a meta."""
    view: DatasetIteratorIF = dataset._stack_layer(
        DatasetIteratorView,
        indices=_read_positions(written_positions, len(dataset)),
        view_tags=None if tag is None else {"part": tag},
    )
    if tag is None or not isinstance(view, InformedDatasetIterator):
        return view
    (view_without_meta,) = view._iterators_below()
    return InformedDatasetIterator(view_without_meta, add_tag(view.dataset_meta, tag))


def _directly_below(part: Any, name: str) -> Any:
    """Return the iterator from which a part was made: what lies below its uppermost view.

    Raises:
        ConfigError: the part is not a view.
    """
    below = part
    while isinstance(below, InformedDatasetIterator):
        below = below._iterators_below()[0]
    if not _is_plain_view(below):
        raise _not_a_view_error(part, below, name)
    return below._dataset_iterator


def _positions_in(part: Any, dataset: Any, name: str) -> Positions:
    """Return the positions in a dataset of a view of it, maybe through other views.

    Raises:
        ConfigError: the part is not a view of the dataset.
    """
    positions: Positions = range(len(part))
    below = part
    while below is not dataset:
        if isinstance(below, InformedDatasetIterator):
            below = below._iterators_below()[0]
        elif _is_plain_view(below):
            positions = compose(positions, below._positions)
            below = below._dataset_iterator
        else:
            raise _not_a_view_error(part, below, name)
    return positions


def _is_plain_view(iterator: Any) -> bool:
    """Return whether an iterator is a view that does not change samples.

    A client's subclass of a view may change samples.
    """
    if not isinstance(iterator, DatasetIteratorView):
        return False
    return isinstance(access_to(iterator), (RearrangedAccess, NamedAccess))


def _not_a_view_error(part: Any, below: Any, name: str) -> ConfigError:
    return ConfigError(
        f"part {name!r} is a {type(part).__name__} on a {type(below).__name__}, "
        "not a view of the iterator that was split; name that with iterator=…"
    )


# ----------------------------------------------------------------------------- arrangement of parts


@dataclass(frozen=True)
class _Arrangement:
    """Describes how parts are arranged, as plain data.

    Attributes:
        describe_part: describes a part; its arguments are the part, its name for messages, and its
            key if it is in a dict.
    """

    describe_part: Callable[[DatasetIteratorIF, str, str | None], Any]

    def describe(self, splits: Any, path: tuple[str, ...] = (), tag: str | None = None) -> Any:
        """Describe a part, a fold, or a container of such.

        Args:
            splits: what is described.
            path: the keys and numbers that lead to it.
            tag: its key in a dict; None elsewhere.

        Raises:
            ConfigError: it is something else.
        """
        if isinstance(splits, DatasetIteratorIF):
            name = "/".join(path) or "0"
            return self.describe_part(splits, name, tag)
        if isinstance(splits, Fold):
            place = (*path[:-1], f"fold {splits.number}")
            train = self.describe(splits.train, (*place, "train"))
            test = self.describe(splits.test, (*place, "test"))
            return {"fold": [splits.number, train, test]}
        if isinstance(splits, Mapping):
            pairs = []
            for key, item in splits.items():
                name = str(key)
                pairs.append([to_plain(key), self.describe(item, (*path, name), name)])
            return {"dict": pairs}
        if isinstance(splits, (list, tuple)):
            items = []
            for number, item in enumerate(splits):
                items.append(self.describe(item, (*path, str(number))))
            return items if isinstance(splits, list) else {"tuple": items}
        where = f" at {'/'.join(path)!r}" if path else ""
        raise ConfigError(
            "splits are views of an iterator, in lists and dicts, "
            f"but there is a {type(splits).__name__}{where}"
        )
