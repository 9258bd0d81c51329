"""Served browsers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from browse_kit import Serve, Served, labelled, serving


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves splits until the test ends."""
    with contextlib.ExitStack() as stack:
        yield lambda **splits: stack.enter_context(serving(splits))


@pytest.fixture(scope="module")
def pictures() -> Iterator[Served]:
    """Two splits of tuples ``(image, label, tag)`` with classes, hostile ones among them."""
    with serving({"train": labelled(120), "test": labelled(30)}) as served:
        yield served
