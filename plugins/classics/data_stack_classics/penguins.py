"""Penguins: lengths and weights of three species, a successor of Fisher's irises."""

from __future__ import annotations

from data_stack import IteratorMeta
from data_stack_classics.tables import TableFactory


class PenguinsFactory(TableFactory, dataset="penguins"):
    """Penguins of three species on three islands of the Palmer Archipelago.

    Samples are dicts of seven columns: floats in millimetres and grams, nan where unknown, and str, empty where unknown;
    ``species`` is the position in ``class_names``. There is one split, ``all``.
    """

    missing = ("NA", ".", "")
    iterator_meta = IteratorMeta("culmen_length_mm", "species", "species")
