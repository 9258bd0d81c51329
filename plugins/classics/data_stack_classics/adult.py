"""Adult: who earned more than 50,000 dollars, by the census of 1994."""

from __future__ import annotations

from data_stack import IteratorMeta
from data_stack_classics.tables import TableFactory


class AdultFactory(TableFactory, dataset="adult"):
    """Adults of the census of 1994, to tell from 14 facts whether they earned more than 50,000 dollars a year.

    Samples are dicts of 15 columns, ints and str, which is empty where the answer is unknown; ``income`` is the position in
    ``class_names``, ``fnlwgt`` how many people a row stands for.
    """

    has_header, skip_lines = False, {"test": 1}  # |1x3 Cross validator
    iterator_meta = IteratorMeta("age", "income", "income")
