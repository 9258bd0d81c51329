"""Penguins: lengths and weights of three species, a successor of Fisher's irises."""

from __future__ import annotations

from data_stack import IteratorMeta
from data_stack_classics.tables import TableFactory

_FIELDS = """species:str island:str culmen_length_mm:float64 culmen_depth_mm:float64 flipper_length_mm:float64
body_mass_g:float64 sex:str"""


class PenguinsFactory(TableFactory, dataset="penguins"):
    """Penguins of three species on three islands of the Palmer Archipelago.

    Samples are dicts of seven columns: floats in millimetres and grams, nan where unknown, and str, empty where unknown;
    ``species`` is the position in ``class_names``. There is one split, ``all``.
    """

    n_samples = {"all": 344}
    fields = dict(field.split(":") for field in _FIELDS.split())
    missing = ("NA", ".", "")
    iterator_meta = IteratorMeta("culmen_length_mm", "species", "species")
    class_names = ("Adelie", "Chinstrap", "Gentoo")
