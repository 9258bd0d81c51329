"""Wine quality: what experts think of wines, by their chemistry."""

from __future__ import annotations

from data_stack import DatasetCard, PreparedResources, ResourceDefinition, Resources
from data_stack.formats import read_csv_matrix
from data_stack_classics.arrays import ArraysFactory
from data_stack_classics.classic import as_integers

_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/wine-quality"

_CITATION = """@article{wine-quality,
  author = {Paulo Cortez and Ant{\\'o}nio Cerdeira and Fernando Almeida and Telmo Matos \
and Jos{\\'e} Reis},
  title = {Modeling wine preferences by data mining from physicochemical properties},
  journal = {Decision Support Systems},
  volume = {47},
  number = {4},
  pages = {547--553},
  year = {2009},
  doi = {10.1016/j.dss.2009.05.016}
}"""


class WineQualityFactory(ArraysFactory):
    """Red and white Vinho Verde, to tell from eleven measurements how experts grade it.

    Samples are ``(features, quality, tag)``: a float64 array of shape ``(11,)`` in the order of
    ``feature_names``; the grade as an int from 0 to 10; and the grade again. The splits are ``red``
    and ``white``; no division for testing was published.
    """

    card = DatasetCard(
        name="wine-quality",
        version="1.0.0",
        license="CC-BY-4.0",
        homepage="https://archive.ics.uci.edu/dataset/186/wine+quality",
        citation=_CITATION,
    )
    # The digests are those of dataset-ml 0.5.0.
    sources = (
        ResourceDefinition(
            "raw/red.csv",
            f"{_URL}/winequality-red.csv",
            sha256="4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e",
            size=84_199,
        ),
        ResourceDefinition(
            "raw/white.csv",
            f"{_URL}/winequality-white.csv",
            sha256="76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836",
            size=264_426,
        ),
    )
    splits = ("red", "white")
    n_samples = {"red": 1_599, "white": 4_898}
    columns = ("features", "quality", "tag")
    feature_names = (
        "fixed acidity",
        "volatile acidity",
        "citric acid",
        "residual sugar",
        "chlorides",
        "free sulfur dioxide",
        "total sulfur dioxide",
        "density",
        "pH",
        "sulphates",
        "alcohol",
    )

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Convert lines of eleven numbers and a grade to two arrays."""
        for split in prepared.steps(self.splits):
            name = f"raw/{split}.csv"
            with raw[name] as resource:
                rows = read_csv_matrix(resource, delimiter=";", header=True)
            grades = as_integers(name, rows[:, -1])
            self.write(prepared, split, "features", [rows[:, :-1]], name)
            self.write(prepared, split, "quality", [grades], name)
