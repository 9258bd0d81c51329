"""The samples of an iterator, such that every class comes equally often."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from data_stack.dataset.hashing import Uint64Array, hash_array, hash_of
from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.permutation import permute_array
from data_stack.dataset.positions import Formula, IndexArrayOfInts, Positions, check_integer
from data_stack.dataset.randomness import check_draw, check_n_drawn
from data_stack.dataset.splits.class_numbers import class_numbers, group_positions
from data_stack.exception import ConfigError


@layer("balanced", columns=["by"])
class BalancedDatasetIterator(DatasetIteratorView):
    """Samples of ``dataset_iterator`` such that every class comes equally often.

    With k classes, each round of k samples has one sample of each class, in a drawn order. So the
    counts of any two classes never differ by more than one. The members of a class come in a drawn
    order, each of them once, then in another order, and so on. Those of a rare class come again and
    again; those of a frequent class may not all come. Seed, epoch and position alone decide which
    sample is where, and it is computed in constant time.

    The column ``by`` is read once, when this is made; a copy in another process does not read it
    again. 4 bytes a sample are kept (8 for more than 2**31 samples).

    Args:
        dataset_iterator: the samples; it is not closed.
        by: the column of classes: ints, strings, bools, floats, or arrays of one shape such as
            one-hot vectors. Classes are compared by equality.
        seed: any integer.
        n_samples: how many; None for as many as ``dataset_iterator`` has.
        epoch: number of the order, from 0; see ``at_epoch``.

    Raises:
        ConfigError: there is no column ``by``, or one of its values is missing (NaN, None) or
            cannot be compared; ``n_samples`` is negative, or positive where there are no samples.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        by: ColumnKey,
        seed: int,
        *,
        n_samples: int | None = None,
        epoch: int = 0,
    ) -> None:
        key: ColumnKey
        if isinstance(by, str):
            key = str(by)
        else:
            key = check_integer("the column to balance by", by)
        draw = check_draw("balanced", seed, epoch)
        n_wanted = check_n_drawn("balanced", n_samples)
        source = access_to(as_iterator(dataset_iterator))
        n_drawn = source.n_samples if n_wanted is None else n_wanted
        if n_drawn and source.n_samples == 0:
            raise ConfigError(f"{n_drawn} samples cannot be drawn from an empty iterator")
        positions: Positions = range(0)
        if n_drawn:
            positions = _balance(source, key, n_drawn, draw.key)
        super().__init__(dataset_iterator, positions)
        self._draw = draw
        self._made_with = {
            "by": key,
            "seed": draw.seed,
            "n_samples": n_wanted,
            "epoch": draw.epoch,
        }


def _balance(source: SampleAccess, by: ColumnKey, n_samples: int, seed: int) -> Positions:
    """Return the positions of samples, equally often of each class.

    Args:
        source: the samples.
        by: the column of classes.
        n_samples: how many.
        seed: decides the order.
    """
    [labels] = source.columns([by])
    classes = class_numbers(labels, f"samples cannot be balanced by column {by!r}")
    n_classes = len(classes.counts)
    # The positions of the members of all classes, class by class, and where each class starts
    # there.
    members = group_positions(classes.numbers)
    members.setflags(write=False)
    starts = np.cumsum(classes.counts) - classes.counts
    counts = classes.counts.astype(np.uint64)
    # Hash 0 is the key of the rounds. The next ones are the keys of the classes.
    round_key = hash_of(seed, 0)
    class_keys = hash_array(seed, 1 + np.arange(n_classes))
    return Formula(n_samples, _take_turns, round_key, class_keys, counts, starts, members)


def _take_turns(
    round_key: int,
    keys: Uint64Array,
    counts: Uint64Array,
    starts: NDArray[np.intp],
    members: IndexArrayOfInts,
    indices: IndexArrayOfInts,
) -> IndexArrayOfInts:
    """Return the positions of samples in rounds in which each class has one turn.

    Args:
        round_key: decides the order of the classes in each round.
        keys: for each class the key that decides the order of its members, shape ``(n_classes,)``.
        counts: how many members each class has, at least 1, shape ``(n_classes,)``.
        starts: where the members of each class start in ``members``, shape ``(n_classes,)``.
        members: the positions of the members of all classes, class by class, shape ``(n,)``.
        indices: the numbers of the turns, counted through all rounds, shape ``(m,)``.

    Returns:
        Shape ``(m,)``.
    """
    rounds, turns = np.divmod(indices.astype(np.uint64), np.uint64(len(counts)))
    classes = permute_array(len(counts), hash_array(round_key, rounds), turns).astype(np.intp)
    # In round r, a class has its r-th turn: each of its members once, then each once again.
    class_counts = counts[classes]
    passes, members_in_pass = np.divmod(rounds, class_counts)
    pass_keys = hash_array(keys[classes], passes)
    drawn_members = permute_array(class_counts, pass_keys, members_in_pass).astype(np.intp)
    return members.take(starts[classes] + drawn_members)
