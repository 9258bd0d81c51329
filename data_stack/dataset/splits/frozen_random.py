"""The random numbers of splits and folds.

They are those of ``numpy.random.RandomState`` (MT19937), whose stream numpy has frozen (NEP 19).
"""

from __future__ import annotations

import numpy as np


def random_state(seed: int) -> np.random.RandomState:
    """Return the generator for a :func:`~data_stack.dataset.randomness.derive_seed`."""
    low_half = seed & 0xFFFFFFFF
    high_half = seed >> 32
    return np.random.RandomState([low_half, high_half])
