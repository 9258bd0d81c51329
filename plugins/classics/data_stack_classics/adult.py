"""Adult: who earned more than 50,000 dollars, by the census of 1994."""

from __future__ import annotations

from data_stack import IteratorMeta
from data_stack_classics.tables import TableFactory

_FIELDS = """age:int64 workclass:str fnlwgt:int64 education:str education-num:int64 marital-status:str occupation:str
relationship:str race:str sex:str capital-gain:int64 capital-loss:int64 hours-per-week:int64 native-country:str income:str"""


class AdultFactory(TableFactory, dataset="adult"):
    """Adults of the census of 1994, to tell from 14 facts whether they earned more than 50,000 dollars a year.

    Samples are dicts of 15 columns, ints and str, which is empty where the answer is unknown; ``income`` is the position in
    ``class_names``, ``fnlwgt`` how many people a row stands for.
    """

    n_samples = {"train": 32_561, "test": 16_281}
    fields = dict(field.split(":") for field in _FIELDS.split())
    has_header, skip_lines = False, {"test": 1}  # |1x3 Cross validator
    iterator_meta = IteratorMeta("age", "income", "income")
    class_names = ("<=50K", ">50K")
