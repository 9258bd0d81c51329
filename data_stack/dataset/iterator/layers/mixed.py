"""Samples of several iterators in stated proportions, which may change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.dataset.hashing import Uint64Array, hash_array
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.combined import CombinedDatasetIterator
from data_stack.dataset.iterator.layers.interleaved import ViewOfSeveral
from data_stack.dataset.iterator.layers.mix_sources import (
    Sources,
    parse_consumed,
    parse_max_epochs,
)
from data_stack.dataset.iterator.layers.mix_stages import Proportions, parse_stages
from data_stack.dataset.iterator.layers.mix_turns import draw_turns
from data_stack.dataset.iterator.layers.selection import Concatenation, Selection
from data_stack.dataset.permutation import permute_array
from data_stack.dataset.positions import (
    IndexArrayOfInts,
    as_index_array,
    check_integer,
    compose,
)
from data_stack.dataset.randomness import Draw, check_draw, check_n_drawn, derive_seed
from data_stack.exception import ConfigError

#: Positions whose sources are counted at once, which bounds the memory that this takes.
_POSITIONS_AT_ONCE = 1 << 20


@layer("mixed")
class MixedDatasetIterator(ViewOfSeveral):
    """Samples of several iterators, the sources, in stated proportions, at every length.

    The samples come in blocks of ``block_size`` samples, which is 1 divided by the smallest
    proportion, rounded up: 10 for 7 : 2 : 1. At the end of every block, the number of samples of
    each source so far is its proportion of all samples so far, up to one sample (exactly, where
    that is a whole number). So errors do not add up. The order inside of a block is drawn.

    The samples of each source come in a drawn order, each of them once, then in another drawn
    order, and so on. Seed, epoch and position alone decide which sample is where. 4 bytes a sample
    are kept (8 for more than 2**31 samples). ``indices`` are positions in the sources one after the
    other.

    The proportions may change: ``schedule`` begins a stage at a sample, as in a curriculum. A new
    block begins there, and what was said of the numbers of samples holds within each stage. The
    passes through the sources go on: no stage reads a sample again before the pass ends. A source
    that had ``max_epochs`` leaves the mix; the others keep their proportions to each other.

    A mix may continue another one, with other proportions or other sources: ``consumed`` says how
    many samples of each source the mixes before it had. Each source goes on with its next sample,
    provided that the mixes have the same seed and that the source has the same name in them. The
    order of a source depends on nothing else.
    :meth:`Loader.continue_with <data_stack.loader.Loader.continue_with>` counts them.

    Args:
        iterators: the sources, at least one; they are not closed. Nothing is read.
        proportions: a number for each source, finite and not negative, at least one of them
            positive; a list, or a mapping by ``names``. They need not sum to 1. No sample is taken
            of a source with the proportion 0. Floats mean the decimal number that Python shows: 0.1
            is a tenth. None: those of ``temperature``, or of a schedule that begins at 0.
        seed: any integer.
        n_samples: how many; None for as many as there are before a source would start again, or
            until all have had ``max_epochs``.
        epoch: number of the order, from 0; see ``at_epoch``.
        names: a name for each source, for mappings and messages.
        schedule: later proportions: pairs of the sample, counted from 0, before which they begin to
            hold, and the proportions, ``[(1_000_000, {"web": 1, "code": 1})]``.
        temperature: makes the proportions from the numbers of samples: ``n ** (1 / temperature)``,
            rounded to 6 digits. With 1 they are those of the sizes, with a large one they are
            equal. Source: Arivazhagan et al., Massively multilingual neural machine translation in
            the wild (2019).
        max_epochs: the largest number of passes through a source, for all sources, or a mapping for
            some; None for no limit. Passes of the mixes before count.
        consumed: how many samples of each source the mixes before had, a mapping by ``names``; 0 of
            sources that it does not name. ``n_samples`` and ``schedule`` count from the first
            sample of this mix all the same. In other epochs than ``epoch``, see ``at_epoch``, the
            mix begins from the start: without ``consumed``.

    Raises:
        ConfigError: there are no sources, or not one proportion for each; a proportion is not
            allowed, or is less than a 2**20-th of their sum; a source with a positive proportion is
            empty; ``n_samples`` is negative; names are missing or not distinct; the stages are not
            in order, or the mix ends before one begins; the sources end before ``n_samples``, or
            ended before this mix; the memory does not hold ``n_samples``.
    """

    #: What decides the orders of the sources and of the blocks.
    _draw: Draw

    #: See ``block_size``.
    _block_size: int

    #: The sources.
    _sources: Sources

    #: How many samples of each source the mixes before had.
    _consumed: list[int]

    def __init__(
        self,
        iterators: Sequence[DatasetIteratorIF],
        proportions: Proportions | None,
        seed: int,
        *,
        n_samples: int | None = None,
        epoch: int = 0,
        names: Sequence[str] | None = None,
        schedule: Sequence[tuple[int, Proportions]] = (),
        temperature: float | None = None,
        max_epochs: int | Mapping[str, int] | None = None,
        consumed: Mapping[str, int] | None = None,
    ) -> None:
        draw = check_draw("mixed", seed, epoch)
        n_wanted = check_n_drawn("mixed", n_samples)
        combined = CombinedDatasetIterator(iterators)
        lengths = [len(as_iterator(iterator)) for iterator in combined.underlying_iterators]
        sources = Sources.of(lengths, names)
        if sources.are_named:
            combined._name_sources(sources.names)
        stages = parse_stages(sources, proportions, schedule, temperature)
        most_epochs = parse_max_epochs(sources, max_epochs)
        n_consumed = parse_consumed(sources, consumed)
        turns = draw_turns(sources, stages, most_epochs, n_consumed, n_wanted, draw.key)
        self._sources = sources
        self._consumed = n_consumed
        self._block_size = stages[0].block_size
        super().__init__(combined, _find_positions(turns, sources, draw.key, n_wanted))
        self._draw = draw
        self._made_with = {
            "proportions": list(stages[0].numbers),
            "seed": draw.seed,
            "n_samples": n_wanted,
            "epoch": draw.epoch,
        }
        # These stand in a recipe only if they were given, so that earlier recipes hold.
        if names is not None:
            self._made_with["names"] = list(sources.names)
        if len(stages) > 1:
            self._made_with["schedule"] = [
                [stage.start, list(stage.numbers)] for stage in stages[1:]
            ]
        if max_epochs is not None:
            self._made_with["max_epochs"] = _as_argument(sources, most_epochs)
        if any(n_consumed):
            self._made_with["consumed"] = _name_positive(sources, n_consumed)

    def _redraw(self, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        # Another epoch reads the sources in other orders, of which nothing was consumed.
        if arguments["epoch"] != self._made_with["epoch"]:
            arguments = {name: arguments[name] for name in arguments if name != "consumed"}
        return super()._redraw(underlying, arguments)

    @property
    def block_size(self) -> int:
        """After how many samples the proportions are exact, up to one sample of each source.

        With a schedule, this is the block of the first stage.
        """
        return self._block_size

    @property
    def names(self) -> list[str] | None:
        """The names of the sources; None if they have none."""
        return list(self._sources.names) if self._sources.are_named else None

    def count_consumed(self, position: int) -> dict[str, int]:
        """Return how many samples of each source were read before a position, by name.

        Those of the mixes before, ``consumed``, count as well. Without names, the names are the
        numbers of the sources.

        Args:
            position: how many samples of this mix were read, at most its length.
        """
        n_read = check_integer("the position in a mix", position, at_least=0, at_most=len(self))
        concatenation = Concatenation(self._sources.lengths)
        counts = np.array(self._consumed, dtype=np.int64)
        for start in range(0, n_read, _POSITIONS_AT_ONCE):
            chunk = range(start, min(start + _POSITIONS_AT_ONCE, n_read))
            positions = as_index_array(compose(chunk, self._positions))
            parts = concatenation.select(positions).parts
            counts += np.bincount(parts, minlength=len(counts))
        return dict(zip(self._sources.names, counts.tolist(), strict=True))


def _as_argument(sources: Sources, most_epochs: Sequence[int | None]) -> Any:
    """Return ``max_epochs`` as a recipe holds it: one number, or a mapping by name."""
    if len(set(most_epochs)) == 1:
        return most_epochs[0]
    return {
        name: number
        for name, number in zip(sources.names, most_epochs, strict=True)
        if number is not None
    }


def _name_positive(sources: Sources, numbers: Sequence[int]) -> dict[str, int]:
    """Return the numbers that are not 0, by the names of the sources."""
    return {name: number for name, number in zip(sources.names, numbers, strict=True) if number > 0}


def _find_positions(
    turns: Iterator[Selection], sources: Sources, key: int, n_wanted: int | None
) -> IndexArrayOfInts:
    """Return the positions of mixed samples in the sources one after the other.

    Args:
        turns: the source of each sample, and how many turns the source had before.
        sources: the sources.
        key: 64 bits that decide the orders of the sources.
        n_wanted: the number of samples; None if only the turns know it.

    Raises:
        ConfigError: the positions of so many samples do not fit into memory.
    """
    concatenation = Concatenation(sources.lengths)
    dtype = np.dtype(np.int32 if concatenation.n_samples <= 2**31 else np.int64)
    source_keys = _derive_keys(sources, key)
    if n_wanted is None:
        chunks: list[IndexArrayOfInts] = [np.empty(0, dtype=dtype)]
        for chunk in turns:
            selection = _draw_samples(chunk, sources.lengths, source_keys)
            chunks.append(concatenation.positions_of(selection).astype(dtype))
        return np.concatenate(chunks)

    # Allocated at once, so that too many samples are an error now. A growing list would take
    # minutes, and end with the process being killed.
    mixed_positions = _allocate_positions(n_wanted, dtype)
    n_found = 0
    for chunk in turns:
        selection = _draw_samples(chunk, sources.lengths, source_keys)
        positions = concatenation.positions_of(selection)
        mixed_positions[n_found : n_found + len(positions)] = positions
        n_found += len(positions)
    return mixed_positions


def _allocate_positions(n_samples: int, dtype: np.dtype[Any]) -> IndexArrayOfInts:
    """Return an array for the positions of all samples, not yet filled.

    Raises:
        ConfigError: it does not fit into memory.
    """
    try:
        return np.empty(n_samples, dtype=dtype)
    except (MemoryError, ValueError) as error:  # ValueError: more bytes than a size can say
        raise ConfigError(
            f"a mix keeps {dtype.itemsize} bytes a sample, and the memory does not hold "
            f"{n_samples:,} of them; pass a smaller n_samples="
        ) from error


def _derive_keys(sources: Sources, key: int) -> Uint64Array:
    """Return for each source 64 bits that decide its order.

    They depend on the name of the source, so that it may stand elsewhere in another mix; without
    names on its number.
    """
    if not sources.are_named:
        return hash_array(key, 1 + np.arange(len(sources.lengths)))
    keys = [derive_seed("source", key, name) for name in sources.names]
    return np.array(keys, dtype=np.uint64)


def _draw_samples(turns: Selection, lengths: Sequence[int], source_keys: Uint64Array) -> Selection:
    """Return which sample each turn is: in each pass through a source, another drawn order.

    Args:
        turns: the source of each turn, and how many turns the source had before.
        lengths: how many samples each source has.
        source_keys: 64 bits for each source, which decide its orders.

    Returns:
        The source of each turn, and the position of the sample in the source.
    """
    positions = np.empty(len(turns.parts), dtype=np.intp)
    for part in np.unique(turns.parts).tolist():
        steps = np.flatnonzero(turns.parts == part)
        passes, numbers = np.divmod(turns.positions[steps], lengths[part])
        pass_keys = hash_array(int(source_keys[part]), passes)
        positions[steps] = permute_array(lengths[part], pass_keys, numbers).astype(np.intp)
    return Selection(turns.parts, positions)
