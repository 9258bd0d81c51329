"""Finds the damaged samples of a mix again in another mix of the same sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.base_positions import BasePositions
from data_stack.dataset.iterator.layers.mix_in_stack import MixInStack
from data_stack.loader.damaged_sample import DamagedSample


def find_in_mix(
    samples: Iterable[DamagedSample], old: MixInStack, new: MixInStack
) -> list[DamagedSample]:
    """Return damaged samples of a mix with their positions in another one.

    Args:
        samples: samples that are there in all epochs.
        old: the mix before.
        new: the other mix; samples of sources that it does not have are left out.
    """
    old_places = _find_places(old)
    new_places = _find_places(new)
    moved: list[DamagedSample] = []
    for sample in samples:
        for name, place in old_places.items():
            if sample.position in place and name in new_places:
                position = new_places[name].start + sample.position - place.start
                moved.append(replace(sample, position=position))
    return moved


def _find_places(mix: MixInStack) -> dict[str, range]:
    """Return where the samples of each source are in the bases of the mix."""
    places: dict[str, range] = {}
    start = 0
    for name, source in mix.sources.items():
        bases = BasePositions(access_to(source)).bases
        stop = start + sum(base.n_samples for base in bases)
        places[name] = range(start, stop)
        start = stop
    return places
