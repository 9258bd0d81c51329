"""Penguins: lengths and weights of three species, a successor of Fisher's irises."""

from __future__ import annotations

from data_stack import DatasetCard, IteratorMeta, ResourceDefinition
from data_stack_classics.tables import TableFactory

_URL = "https://storage.googleapis.com/download.tensorflow.org/data/palmer_penguins"

_CITATION = """@misc{penguins,
  author = {Allison Marie Horst and Alison Presmanes Hill and Kristen B. Gorman},
  title = {palmerpenguins: Palmer Archipelago ({A}ntarctica) penguin data},
  year = {2020},
  doi = {10.5281/zenodo.3960218}
}"""


class PenguinsFactory(TableFactory):
    """Penguins of three species on three islands of the Palmer Archipelago.

    Samples are dicts of seven columns. Lengths are floats in millimeters, and the weight is a float
    in grams. A float is nan and a str is empty where the value is unknown. ``species`` is a
    position in ``class_names``. There is one split, ``all``.
    """

    card = DatasetCard(
        name="penguins",
        version="1.0.0",
        license="CC0-1.0",
        homepage="https://allisonhorst.github.io/palmerpenguins/",
        citation=_CITATION,
    )
    # The digests are those of tensorflow-datasets 4.9.9.
    sources = (
        ResourceDefinition(
            "raw/all.csv",
            f"{_URL}/penguins_size.csv",
            sha256="aa728597b2228a2637e39c6f08e40a80971f4cdac7faf7bc21ff4481ee3e3ae9",
            size=13_519,
        ),
    )
    splits = ("all",)
    n_samples = {"all": 344}
    iterator_meta = IteratorMeta("culmen_length_mm", "species", "species")
    missing = ("NA", ".", "")
    class_names = ("Adelie", "Chinstrap", "Gentoo")
    fields = {
        "species": "str",
        "island": "str",
        "culmen_length_mm": "float64",
        "culmen_depth_mm": "float64",
        "flipper_length_mm": "float64",
        "body_mass_g": "float64",
        "sex": "str",
    }
