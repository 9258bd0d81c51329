"""Titanic: who survived."""

from __future__ import annotations

from data_stack import IteratorMeta
from data_stack_classics.tables import TableFactory


class TitanicFactory(TableFactory, dataset="titanic"):
    """The passengers of the Titanic, to tell who survived.

    Samples are dicts of 14 columns: ints, floats, nan where unknown, and str, empty where unknown; ``survived`` is the
    position in ``class_names``. ``boat`` and ``body`` tell the outcome. There is one split, ``all``.
    """

    iterator_meta = IteratorMeta("name", "survived", "survived")
