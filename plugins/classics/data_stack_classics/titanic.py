"""Titanic: who survived."""

from __future__ import annotations

from data_stack import DatasetCard, IteratorMeta, ResourceDefinition
from data_stack_classics.tables import TableFactory

_CITATION = """@misc{titanic,
  author = {Frank E. {Harrell Jr.} and Thomas Cason},
  title = {Titanic},
  howpublished = {OpenML},
  year = {2017},
  url = {https://www.openml.org/d/40945}
}"""


class TitanicFactory(TableFactory):
    """The passengers of the Titanic, to tell who survived.

    Samples are dicts of 14 columns, each an int, a float or a str. A float is nan and a str is
    empty where the value is unknown. ``survived`` is a position in ``class_names``. ``boat`` and
    ``body`` tell the outcome. There is one split, ``all``.
    """

    card = DatasetCard(
        name="titanic",
        version="1.0.0",
        license="LicenseRef-unknown",
        homepage="https://www.openml.org/d/40945",
        citation=_CITATION,
    )
    # The digests are those of tensorflow-datasets 4.9.9.
    sources = (
        ResourceDefinition(
            "raw/all.csv",
            "https://www.openml.org/data/get_csv/16826755/phpMYEkMl",
            sha256="c617db2c7470716250f6f001be51304c76bcc8815527ab8bae734bdca0735737",
            size=117_743,
        ),
    )
    splits = ("all",)
    n_samples = {"all": 1_309}
    iterator_meta = IteratorMeta("name", "survived", "survived")
    has_escaped_quotes = True
    class_names = ("died", "survived")
    fields = {
        "pclass": "int64",
        "survived": "int64",
        "name": "str",
        "sex": "str",
        "age": "float64",
        "sibsp": "int64",
        "parch": "int64",
        "ticket": "str",
        "fare": "float64",
        "cabin": "str",
        "embarked": "str",
        "boat": "str",
        "body": "float64",
        "home.dest": "str",
    }
