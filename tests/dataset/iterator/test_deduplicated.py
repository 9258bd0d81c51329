"""Deduplication: which samples are equal, which one stays, and how they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layer_laws import Samples

from data_stack.dataset.iterator.layers.filtered import DeduplicatedDatasetIterator, iterator_digests
from data_stack.exception import ConfigError
from data_stack.values.digests import sample_digest


def kept(samples: Any, by: Any = None) -> list[int]:
    positions: list[int] = DeduplicatedDatasetIterator(samples, by).indices.tolist()
    return positions


def test_the_first_of_equal_samples_stays() -> None:
    samples = [(1, "a"), (2, "a"), (1, "a"), (1, "b"), (2, "a"), (1, "a")]

    iterator = DeduplicatedDatasetIterator(Samples(samples))

    assert list(iterator) == [(1, "a"), (2, "a"), (1, "b")]
    assert iterator.indices.tolist() == [0, 1, 3]


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"builtins\.object"):
        kept(Samples([(object(),)]))
    with pytest.raises(ConfigError, match="no column 'x'"):
        kept(Samples([{"y": 1}]), "x")
    with pytest.raises(ConfigError, match="at least one column"):
        kept(Samples([(1,)]), [])


def test_digests_of_an_iterator_are_those_of_its_samples() -> None:
    samples = [(np.arange(i % 4), str(i), i / 2) for i in range(50)]

    whole, some = iterator_digests(Samples(samples)), iterator_digests(Samples(samples), [2, 0])

    assert [digest.tobytes() for digest in whole] == [sample_digest(sample) for sample in samples]
    assert [digest.tobytes() for digest in some] == [sample_digest((z, x)) for x, _, z in samples]
