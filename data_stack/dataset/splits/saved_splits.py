"""Splits kept as a resource: which samples were in which part, for this dataset and no other."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json, from_plain, to_plain
from data_stack.dataset.iterator.access import NamedAccess, RearrangedAccess, access_to
from data_stack.dataset.iterator.contract import DatasetIteratorIF, as_iterator
from data_stack.dataset.iterator.informed import InformedDatasetIterator
from data_stack.dataset.iterator.view import DatasetIteratorView
from data_stack.dataset.positions import Positions, as_index_array, compose
from data_stack.dataset.recipes.recipe import fingerprint
from data_stack.dataset.splits.parts import Fold, add_tag
from data_stack.dataset.strict_json import JsonObject, seal_json
from data_stack.exception import ConfigError, DatasetFileCorruptError

__all__ = ["SavedPart", "SavedSplits"]

FORMAT = 2

_Indices = npt.NDArray[np.integer[Any]]

_MASK, _POSITIONS = "mask", "positions"


@dataclass(frozen=True)
class SavedPart:
    """The samples of one part.

    Attributes:
        name: where in the splits it stood, for messages: ``"train"``, ``"fold 2/test"``.
        tag: the key it had in a dict; None if it had none.
        n_indices: number of samples.
        form: how ``data`` holds them: ``"mask"``, deflated, with a bit for each sample of the dataset, the lowest bit first, if
            they ascend; otherwise ``"positions"``, little-endian, int32 if the dataset is small enough, else int64.
        data: the positions in that form.
    """

    name: str
    tag: str | None
    n_indices: int
    form: str
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, name: str, tag: str | None, indices: _Indices, n_samples: int) -> SavedPart:
        """The samples at ``indices`` of a dataset of ``n_samples``."""
        if bool((indices[1:] > indices[:-1]).all()):
            mask = np.zeros(n_samples, dtype=bool)
            mask[indices] = True
            form, data = _MASK, zlib.compress(np.packbits(mask, bitorder="little").tobytes())
        else:
            form, data = _POSITIONS, indices.astype(_position_dtype(n_samples)).tobytes()
        return cls(name, tag, len(indices), form, data)

    def indices(self, n_samples: int) -> _Indices:
        """The positions, shape ``(n_indices,)``, each in ``[0, n_samples)``.

        Raises:
            DatasetFileCorruptError: they are not as many as stated, or leave the dataset.
        """
        indices: _Indices | None = None
        if self.form == _MASK:
            n_bytes = (n_samples + 7) // 8
            inflating = zlib.decompressobj()
            try:
                packed = inflating.decompress(self.data, n_bytes + 1)  # never more, whatever the data say
            except zlib.error:
                packed = b""
            if len(packed) == n_bytes:
                bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little")
                indices = np.flatnonzero(bits)
        elif len(self.data) == self.n_indices * _position_dtype(n_samples).itemsize:
            indices = np.frombuffer(self.data, dtype=_position_dtype(n_samples)).astype(np.intp)
        if indices is None or len(indices) != self.n_indices:
            raise DatasetFileCorruptError(
                f"the indices of part {self.name!r} are damaged: they are not {self.n_indices} positions"
            )
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < n_samples:
            raise DatasetFileCorruptError(f"the indices of part {self.name!r} are damaged: they leave the {n_samples} samples")
        return indices


@dataclass(frozen=True)
class SavedSplits:
    """Which samples of which dataset are in which part.

    Attributes:
        fingerprint: of the iterator that was divided.
        n_samples: its length.
        arrangement: how the parts were given, as JSON.
        parts: in the order of the arrangement.
    """

    fingerprint: str
    n_samples: int
    arrangement: str
    parts: tuple[SavedPart, ...]

    @classmethod
    def of(cls, splits: Any, iterator: DatasetIteratorIF | None = None) -> SavedSplits:
        """Find out which samples of ``iterator`` the parts are; None for what the first part was directly made from.

        Raises:
            ConfigError: something is no view of it, or there are no parts.
        """
        found: list[tuple[str, str | None, Any]] = []
        arrangement = canonical_json(_arrange(splits, (), None, found))
        if not found:
            raise ConfigError("there is no part in these splits to be saved")
        dataset: Any = _make_from(found[0][2], found[0][0]) if iterator is None else iterator
        n_samples = len(dataset)
        parts = tuple(
            SavedPart.of(name, tag, as_index_array(_positions_in(part, dataset, name)), n_samples) for name, tag, part in found
        )
        return cls(fingerprint(as_iterator(dataset)), n_samples, arrangement, parts)

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
                f"or split it anew."
            )
        parts = [_as_view(dataset, part.indices(self.n_samples), part.tag) for part in self.parts]
        makers = {
            "part": lambda number: parts[number],
            "fold": lambda fold: Fold(parts[fold[1]], parts[fold[2]], fold[0]),
        }
        try:
            return from_plain(json.loads(self.arrangement), makers)
        except (ConfigError, ValueError, TypeError, LookupError) as error:
            raise DatasetFileCorruptError(f"splits are damaged: their parts cannot be arranged ({str(error)[:200]})") from error

    def to_json(self) -> bytes:
        """The splits as they are stored: indented ASCII JSON that states its own digest."""
        parts = [{**vars(part), "data": base64.b64encode(part.data).decode("ascii")} for part in self.parts]
        return seal_json({"format": FORMAT, **vars(self), "parts": parts})

    @classmethod
    def from_json(cls, data: bytes, identifier: str = "splits") -> SavedSplits:
        """Read stored splits. Nothing in them is believed before it was checked; the indices are, when they are used.

        Raises:
            DatasetFileCorruptError: they are damaged, or of a format that this version does not know.
        """
        what = f"{identifier!r} with splits"
        fields = JsonObject.unseal(data, what)
        if (number := fields.size("format")) != FORMAT:
            raise DatasetFileCorruptError(f"{what} has format {number}, but this version of data_stack reads format {FORMAT}")
        splits = cls(
            fingerprint=fields.text("fingerprint"),
            n_samples=fields.size("n_samples"),
            arrangement=fields.text("arrangement"),
            parts=tuple(_part(each, what) for each in fields.objects("parts")),
        )
        fields.done()
        return splits


def _part(fields: JsonObject, what: str) -> SavedPart:
    try:
        data = base64.b64decode(fields.text("data"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise DatasetFileCorruptError(f"{what} is damaged: the data of a part are no base64") from error
    part = SavedPart(
        name=fields.text("name"),
        tag=fields.optional_text("tag"),
        n_indices=fields.size("n_indices"),
        form=fields.text("form"),
        data=data,
    )
    fields.done()
    if part.form not in (_MASK, _POSITIONS):
        raise DatasetFileCorruptError(f"{what} is damaged: part {part.name!r:.80} has the unknown form {part.form!r:.20}")
    return part


def _arrange(splits: Any, path: tuple[str, ...], tag: str | None, found: list[tuple[str, str | None, Any]]) -> Any:
    """``splits`` as plain data, with numbers for the parts, which are added to ``find`` with name and tag."""
    if isinstance(splits, DatasetIteratorIF):
        found.append(("/".join(path) or "0", tag, splits))
        return {"part": len(found) - 1}
    if isinstance(splits, Fold):
        train, test = (
            _arrange(part, (*path[:-1], f"fold {splits.number}", side), None, found)["part"]
            for side, part in (("train", splits.train), ("test", splits.test))
        )
        return {"fold": [splits.number, train, test]}
    if isinstance(splits, Mapping):
        items = splits.items()
        return {"dict": [[to_plain(key), _arrange(each, (*path, str(key)), str(key), found)] for key, each in items]}
    if isinstance(splits, (list, tuple)):
        arranged = [_arrange(each, (*path, str(number)), None, found) for number, each in enumerate(splits)]
        return arranged if isinstance(splits, list) else {"tuple": arranged}
    where = f" at {'/'.join(path)!r}" if path else ""
    raise ConfigError(f"splits are views of an iterator, in lists and dicts, but there is a {type(splits).__name__}{where}")


def _make_from(part: Any, name: str) -> Any:
    """What a part was directly made from."""
    while isinstance(part, InformedDatasetIterator):
        part = part._stack_on()[0]
    if _is_plain_view(part):
        return part._dataset_iterator
    raise ConfigError(f"part {name!r} is no view of another iterator, but a {type(part).__name__}")


def _positions_in(part: Any, dataset: Any, name: str) -> Positions:
    """The positions in ``dataset`` of a view of it, maybe through other views."""
    positions: Positions = range(len(part))
    below = part
    while below is not dataset:
        if isinstance(below, InformedDatasetIterator):
            below = below._stack_on()[0]
        elif _is_plain_view(below):
            positions, below = compose(positions, below._given), below._dataset_iterator
        else:
            raise ConfigError(
                f"part {name!r} is no view of the iterator that the splits are of: it is a {type(part).__name__} on a "
                f"{type(below).__name__}. Save views of one and the same iterator; name it with iterator=… if they are deeper."
            )
    return positions


def _is_plain_view(part: Any) -> bool:
    """Whether it only chooses samples; a client's subclass may change them."""
    return isinstance(part, DatasetIteratorView) and isinstance(access_to(part), (RearrangedAccess, NamedAccess))


def _as_view(dataset: DatasetIteratorIF, indices: _Indices, tag: str | None) -> DatasetIteratorIF:
    view = dataset._stacked("view", indices=indices, view_tags=None if tag is None else {"part": tag})
    if tag is None or not isinstance(view, InformedDatasetIterator):
        return view
    return InformedDatasetIterator(view._stack_on()[0], add_tag(view.dataset_meta, tag))


def _position_dtype(n_samples: int) -> np.dtype[Any]:
    return np.dtype("<i4" if n_samples <= 2**31 else "<i8")
