"""Titanic: who survived."""

from __future__ import annotations

from data_stack import IteratorMeta
from data_stack_classics.tables import TableFactory

_FIELDS = """pclass:int64 survived:int64 name:str sex:str age:float64 sibsp:int64 parch:int64 ticket:str fare:float64
cabin:str embarked:str boat:str body:float64 home.dest:str"""


class TitanicFactory(TableFactory, dataset="titanic"):
    """The passengers of the Titanic, to tell who survived.

    Samples are dicts of 14 columns: ints, floats, nan where unknown, and str, empty where unknown; ``survived`` is the
    position in ``class_names``. ``boat`` and ``body`` tell the outcome. There is one split, ``all``.
    """

    n_samples = {"all": 1_309}
    fields = dict(field.split(":") for field in _FIELDS.split())
    iterator_meta = IteratorMeta("name", "survived", "survived")
    class_names = ("died", "survived")
