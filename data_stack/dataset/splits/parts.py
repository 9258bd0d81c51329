"""Parts and folds of an iterator: layers that know how they were divided; the form in which they are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json, from_plain, to_plain
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF, Fold, as_iterator
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.informed import InformedDatasetIterator, NamedAccess
from data_stack.dataset.iterator.layers.view import DatasetIteratorView, RearrangedAccess
from data_stack.dataset.meta import DatasetMetaIF, MetaFactory
from data_stack.dataset.positions import Positions, as_index_array, check_integer, compose, narrow
from data_stack.dataset.randomness import derive_seed
from data_stack.dataset.recipes.fingerprint import fingerprint
from data_stack.dataset.splits.class_numbers import class_numbers
from data_stack.dataset.splits.splitting import (
    Shares,
    check_sizes,
    divide,
    divide_by_group,
    divide_by_time,
    positions_of_parts,
    warn_of_empty_parts,
)
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.util.suggestions import did_you_mean
from data_stack.util.untrusted_text import JsonObject, parse_json, seal_json

PositionsOfPart = Union[range, npt.NDArray[np.integer[Any]]]

_FORMAT = 3  # of stored splits

PartName = Any
"""The key of a part: its number, its name, or a value of a column."""


def check_division(
    ratios: Sequence[float] | Mapping[str, float] | None = None,
    *,
    seed: SupportsIndex = 0,
    stratify: ColumnKey | None = None,
    group_by: ColumnKey | None = None,
    time: ColumnKey | None = None,
    by: ColumnKey | None = None,
) -> dict[str, Any]:
    """The arguments of :meth:`FluentIterator.split`, checked, those that matter only.

    * Without columns the samples are drawn. Each part's size is less than 1 from its share, the largest remainders rounded up.
      Sizes that are integers of sum 2 or more are counts of samples, of all there are; ``group_by`` and ``time`` meet them as
      nearly as groups and equal times allow.
    * ``stratify``: the members of each class are drawn; of each class and of the whole each part has less than 1 from its share.
    * ``group_by``: groups are placed whole, large ones first, see
      :func:`data_stack.dataset.splits.splitting.divide_by_group`. With
      ``stratify``, such that classes are mixed as equally as the groups allow.
    * ``time``: cuts in the order of time; one that would separate equal times is moved to the nearer end of them.
    * ``by``: one part for each value, in the order in which the values appear.

    Every sample is in one part, and every part keeps the iterator's order: ``part.shuffle(seed)`` shuffles it. A part with ratio
    0 is empty, as are all parts of an empty iterator. Equal values decide, not how they are written: labels and their one-hot
    rows give the same split. It is the same in every process, on every machine, with every version of data_stack.

    Raises:
        ConfigError: ratios are not a division, or arguments exclude each other.
    """
    columns = {"stratify": stratify, "group_by": group_by, "time": time, "by": by}
    given: dict[str, Any] = {name: key for name, key in columns.items() if key is not None}
    allowed = (
        {"by"}
        if by is not None
        else {"time", "ratios"}
        if time is not None
        else {*columns, "ratios"}
    )
    if wrong := sorted((given.keys() | ({"ratios"} if ratios is not None else set())) - allowed):
        name = "by" if by is not None else "time"
        raise ConfigError(f"a split with {name}={given[name]!r} takes no {wrong[0]}")
    if by is not None:
        return {"by": by}
    if ratios is None:
        raise ConfigError(
            "a split needs sizes, such as [0.8, 0.2], or by=…, a column that names the part of each sample"
        )
    if time is None:
        given["seed"] = check_integer("the seed of a split", seed)
    if not isinstance(ratios, Mapping):
        return {"ratios": check_sizes(ratios), **given}
    if not all(isinstance(name, str) for name in ratios):
        raise ConfigError(f"parts are named by strings, not by {list(ratios)!r:.80}")
    return {
        "ratios": dict(zip(ratios, check_sizes(ratios.values(), tuple(ratios)), strict=True)),
        **given,
    }


def has_names(division: Mapping[str, Any]) -> bool:
    """Whether parts are found by name, not by number."""
    return "by" in division or isinstance(division["ratios"], dict)


def divide_positions(
    dataset_iterator: DatasetIteratorIF, division: Mapping[str, Any]
) -> dict[PartName, PositionsOfPart]:
    """The positions of each part, ascending, by the part's name or number; reads the columns named, as a whole.

    Args:
        dataset_iterator: what is divided.
        division: see :func:`check_division`.

    Raises:
        ConfigError: a class has fewer members than there are parts, or there are fewer groups than parts; a value is missing
            (NaN, None), or a column does not exist.
    """
    iterator = as_iterator(dataset_iterator)
    n_samples = len(iterator)
    if "by" in division:
        refusal, by = f"column {division['by']!r} does not name parts", [division["by"]]
        classes = class_numbers(
            access_to(iterator).columns(by)[0] if n_samples else np.empty(0), refusal
        )
        if classes.values.size != len(classes):
            raise ConfigError(
                f"{refusal}: its values have the shape {classes.values.shape[1:]}; one value names a part"
            )
        return dict(
            zip(
                classes.values.ravel().tolist(),
                positions_of_parts(classes.numbers, len(classes)),
                strict=True,
            )
        )
    ratios = division["ratios"]
    shares = Shares.of_sizes(
        list(ratios.values()) if isinstance(ratios, dict) else ratios, n_samples
    )
    if n_samples == 0:
        part_of: npt.NDArray[np.integer[Any]] = np.empty(0, dtype=np.uint8)
    elif "time" in division:
        refusal = f"samples cannot be divided by the times in column {division['time']!r}"
        part_of = divide_by_time(
            access_to(iterator).columns([division["time"]])[0], shares, refusal
        )
    else:
        seed = derive_seed("split", division["seed"])
        part_of = _draw(iterator, shares, seed, division.get("stratify"), division.get("group_by"))
    return dict(
        zip(
            ratios if has_names(division) else range(len(ratios)),
            positions_of_parts(part_of, len(ratios)),
            strict=True,
        )
    )


def check_folding(
    n_folds: Any,
    *,
    seed: SupportsIndex | None = 0,
    stratify: ColumnKey | None = None,
    group_by: ColumnKey | None = None,
) -> dict[str, Any]:
    """The arguments of :meth:`FluentIterator.folds`, checked, those that matter only.

    As :func:`check_division` into equal parts: sizes differ by 1 at most, of the whole and of each class. Without a seed folds
    are consecutive, within each class if stratified, and groups are placed strictly by size.

    Raises:
        ConfigError: fewer than 2 folds.
    """
    columns = {
        name: key
        for name, key in (("stratify", stratify), ("group_by", group_by))
        if key is not None
    }
    number = None if seed is None else check_integer("the seed of folds", seed)
    return {"n_folds": check_n_folds(n_folds), "seed": number, **columns}


def fold_of_samples(
    dataset_iterator: DatasetIteratorIF, folding: Mapping[str, Any]
) -> npt.NDArray[np.integer[Any]]:
    """The fold in whose test part each sample is, shape ``(n_samples,)``; reads the columns named, as a whole.

    Raises:
        ConfigError: more folds than samples, members of a class, or groups.
    """
    iterator, n_folds = as_iterator(dataset_iterator), folding["n_folds"]
    if len(iterator) < n_folds:
        raise ConfigError(f"{len(iterator)} samples cannot be divided into {n_folds} folds")
    seed = None if folding["seed"] is None else derive_seed("folds", folding["seed"])
    return _draw(
        iterator,
        Shares((1,) * n_folds, n_folds),
        seed,
        folding.get("stratify"),
        folding.get("group_by"),
    )


def _draw(
    iterator: DatasetIteratorIF,
    shares: Shares,
    seed: int | None,
    stratify: ColumnKey | None,
    group_by: ColumnKey | None,
) -> npt.NDArray[np.integer[Any]]:
    keys = [key for key in (stratify, group_by) if key is not None]
    columns = access_to(iterator).columns(keys) if keys else []
    classes, groups = None, None
    if stratify is not None:
        classes = class_numbers(columns[0], f"samples cannot be stratified by column {stratify!r}")
        if too_small := np.flatnonzero(classes.counts < shares.n_wanted).tolist():
            small = (
                f"{len(too_small):,} classes are too small, such as {classes.shorten(too_small[0])}"
            )
            problem = f"samples cannot be stratified by column {stratify!r} into {shares.n_wanted} parts: {small}"
            raise ConfigError(
                f"{problem}. Merge rare classes (iterator.map_classes), or leave them out"
            )
    if group_by is None:
        return divide(len(iterator), shares, seed, classes)
    groups = class_numbers(columns[-1], f"samples cannot be grouped by column {group_by!r}")
    if len(groups) < shares.n_wanted:
        raise ConfigError(
            f"the {len(groups)} groups of column {group_by!r} cannot be divided into {shares.n_wanted} parts"
        )
    return divide_by_group(groups, shares, seed, classes)


def check_n_folds(n_folds: SupportsIndex) -> int:
    """A number of folds.

    Raises:
        ConfigError: it is not an integer, or less than 2.
    """
    return check_integer("the number of folds", n_folds, at_least=2)


@layer("split", columns=["stratify", "group_by", "time", "by"])
class SplitPartIterator(DatasetIteratorView):
    """One part of a divided iterator, its samples in the iterator's order. What ``iterator.split(...)`` returns.

    It is described by the division, so it costs a few words in a recipe however many samples it has; rebuilt, it reads the
    columns that the division needs. Pickled, it carries its positions (4 bytes a sample) and reads nothing again.

    Divide first, shuffle afterwards: parts of a shuffled iterator have other samples in each epoch, so that at another epoch a
    sample of the test part would be one of the training part.

    Where the iterator has a meta, a named part's ``dataset_tag`` is its name, or ``"tag/name"`` if there was a tag already.

    Args:
        dataset_iterator: what is divided.
        part: the number of the part, or its name where parts have names.
        positions: those of the part, where they are known already.
        division: the arguments of ``iterator.split``.

    Raises:
        ConfigError: the part does not exist, or as said there.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        *,
        part: PartName,
        positions: PositionsOfPart | None = None,
        **division: Any,
    ) -> None:
        self._division, self._part = check_division(**division), part
        if positions is None:
            positions_of = divide_positions(dataset_iterator, self._division)
            if part not in positions_of:
                near, names = did_you_mean(part, positions_of), ", ".join(map(repr, positions_of))
                raise ConfigError(f"there is no part {part!r}{near}; the parts are {names}")
            positions = positions_of[part]
        super().__init__(dataset_iterator, positions)
        self._gives_list = False  # indices are an array, also where positions are kept as a range
        self._made_with = {"part": part, **self._division}

    def _derive_meta(self, meta: DatasetMetaIF) -> DatasetMetaIF:
        return add_tag(meta, self._part) if has_names(self._division) else meta


@layer("fold", columns=["stratify", "group_by"])
class FoldPartIterator(DatasetIteratorView):
    """The training or the test part of one fold, its samples in the iterator's order. What ``iterator.folds(...)`` returns.

    Described, rebuilt and pickled as a :class:`SplitPartIterator`; the meta is unchanged.

    Args:
        dataset_iterator: what is divided.
        fold: number of the fold.
        side: ``"train"`` for the samples of all other folds, ``"test"`` for its own.
        positions: those of the part, where they are known already.
        folding: the arguments of ``iterator.folds``.

    Raises:
        ConfigError: the fold or side does not exist, or as said there.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        *,
        fold: int,
        side: str,
        positions: Any = None,
        **folding: Any,
    ) -> None:
        checked = check_folding(**folding)
        if positions is None:
            if not 0 <= fold < checked["n_folds"] or side not in ("train", "test"):
                raise ConfigError(
                    f"there is no part {side!r} of fold {fold!r}; there are 'train' and 'test' of each fold"
                )
            positions = np.flatnonzero(
                (fold_of_samples(dataset_iterator, checked) == fold) == (side == "test")
            )
        super().__init__(dataset_iterator, positions)
        self._gives_list = False  # indices are an array, also where positions are kept as a range
        self._made_with = {"fold": fold, "side": side, **checked}


def add_tag(meta: DatasetMetaIF, name: PartName) -> DatasetMetaIF:
    """The meta of a part: its name becomes the tag, after the one that there was."""
    tag = str(name) if meta.dataset_tag is None else f"{meta.dataset_tag}/{name}"
    return replace(MetaFactory.copy_dataset_meta(meta), dataset_tag=tag)


def split(
    iterator: DatasetIteratorIF, ratios: Any = None, *, stratify: Any = False, **options: Any
) -> Any:
    """See :meth:`FluentIterator.split`."""
    division = check_division(ratios, stratify=_column_to_stratify(iterator, stratify), **options)
    found = divide_positions(iterator, division)
    if "ratios" in division:
        ratios = division["ratios"]
        sizes = {part: len(positions) for part, positions in found.items()}
        asked = ratios if isinstance(ratios, dict) else dict(enumerate(ratios))
        reason = "equal times stay together, or there are too few samples"
        advice = reason if "time" in division else "give counts, such as [8, 1, 1], or more samples"
        warn_of_empty_parts(sizes, asked, len(as_iterator(iterator)), advice)
    parts = {
        part: iterator._stack_layer(SplitPartIterator, part=part, positions=found[part], **division)
        for part in found
    }
    return parts if has_names(division) else list(parts.values())


def folds(
    iterator: DatasetIteratorIF, n_folds: Any, *, stratify: Any = False, **options: Any
) -> list[Fold]:
    """See :meth:`FluentIterator.folds`."""
    arguments = check_folding(n_folds, stratify=_column_to_stratify(iterator, stratify), **options)
    fold_of = fold_of_samples(iterator, arguments)
    found = []
    for number, positions in enumerate(positions_of_parts(fold_of, arguments["n_folds"])):
        others = np.flatnonzero(fold_of != number)
        train = iterator._stack_layer(
            FoldPartIterator, fold=number, side="train", positions=others, **arguments
        )
        test = iterator._stack_layer(
            FoldPartIterator, fold=number, side="test", positions=positions, **arguments
        )
        found.append(Fold(train, test, number))
    return found


def _column_to_stratify(
    iterator: DatasetIteratorIF, stratify: ColumnKey | bool | None
) -> ColumnKey | None:
    # 0 == False and 1 == True, but they name columns
    if stratify is None or isinstance(stratify, (bool, np.bool_)):
        return iterator._class_column(None) if stratify else None
    return stratify


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
            indices = as_index_array(positions)
            if not bool((indices[1:] > indices[:-1]).all()):
                return {"part": [tag, to_plain(narrow(indices, len(dataset)))]}
            mask = np.zeros(len(dataset), dtype=bool)
            mask[indices] = True
            return {"part": [tag, to_plain(np.packbits(mask, bitorder="little"))]}

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
            given = f"{len(dataset):,} samples" + (
                "" if found is None else f" with fingerprint {found}"
            )
            of = f"a dataset of {self.n_samples:,} samples with fingerprint {self.fingerprint}"
            raise ConfigError(
                f"these splits are of {of}, the one given has {given}. Stack it as it was then, or split it again"
            )

        def make_part(content: Any) -> DatasetIteratorIF:
            tag, indices = content[0], np.asarray(from_plain(content[1]))
            if indices.dtype == np.uint8:
                indices = np.flatnonzero(
                    np.unpackbits(indices, count=len(dataset), bitorder="little")
                )
            view = dataset._stack_layer(
                DatasetIteratorView,
                indices=indices,
                view_tags=None if tag is None else {"part": tag},
            )
            if tag is None or not isinstance(view, InformedDatasetIterator):
                return view
            return InformedDatasetIterator(view._stack_on()[0], add_tag(view.dataset_meta, tag))

        def make_fold(content: Any) -> Fold:
            return Fold(make_part(content[1]["part"]), make_part(content[2]["part"]), content[0])

        try:
            return from_plain(parse_json(self.parts), {"part": make_part, "fold": make_fold})
        except (ConfigError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise DatasetFileCorruptError(
                f"splits are damaged: their parts cannot be arranged ({str(error)[:200]})"
            ) from error

    def to_json(self) -> bytes:
        """The splits as they are stored: indented ASCII JSON with its own digest."""
        return seal_json({"format": _FORMAT, **vars(self)})

    @classmethod
    def from_json(cls, data: bytes, identifier: str = "splits") -> SavedSplits:
        """Read stored splits; :meth:`apply_to` checks the parts.

        Raises:
            DatasetFileCorruptError: they are damaged, or of a format that this version does not know.
        """
        what = f"{identifier!r} with splits"
        fields = JsonObject.unseal(data, what)
        fields.known_format(_FORMAT)
        splits = cls(fields.text("fingerprint"), fields.size("n_samples"), fields.text("parts"))
        fields.done()
        return splits


def _arrange(
    splits: Any,
    path: tuple[str, ...],
    tag: str | None,
    describe: Callable[[DatasetIteratorIF, str, str | None], Any],
) -> Any:
    """``splits`` as plain data, with what ``describe`` returns for each part."""
    if isinstance(splits, DatasetIteratorIF):
        return describe(splits, "/".join(path) or "0", tag)
    if isinstance(splits, Fold):
        place = (*path[:-1], f"fold {splits.number}")
        sides = (("train", splits.train), ("test", splits.test))
        return {
            "fold": [
                splits.number,
                *(_arrange(part, (*place, side), None, describe) for side, part in sides),
            ]
        }
    if isinstance(splits, Mapping):
        items = splits.items()
        return {
            "dict": [
                [to_plain(key), _arrange(each, (*path, str(key)), str(key), describe)]
                for key, each in items
            ]
        }
    if isinstance(splits, (list, tuple)):
        arranged = [
            _arrange(each, (*path, str(number)), None, describe)
            for number, each in enumerate(splits)
        ]
        return arranged if isinstance(splits, list) else {"tuple": arranged}
    where = f" at {'/'.join(path)!r}" if path else ""
    raise ConfigError(
        f"splits are views of an iterator, in lists and dicts, but there is a {type(splits).__name__}{where}"
    )


def _positions_in(part: Any, dataset: Any, name: str) -> tuple[Positions, Any]:
    """The positions in ``dataset`` of a view of it, maybe through other views; None for what the view was directly made from."""
    positions: Positions = range(len(part))
    below = part
    while below is not dataset:
        if isinstance(below, InformedDatasetIterator):
            below = below._stack_on()[0]
        # a client's subclass of a view may change samples
        elif isinstance(below, DatasetIteratorView) and isinstance(
            access_to(below), (RearrangedAccess, NamedAccess)
        ):
            positions, below = compose(positions, below._given), below._dataset_iterator
            if dataset is None:
                break
        else:
            kinds = f"a {type(part).__name__} on a {type(below).__name__}"
            raise ConfigError(
                f"part {name!r} is {kinds}, not a view of the iterator that was split; name that with iterator=…"
            )
    return positions, below
