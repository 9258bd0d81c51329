"""Covertype: which trees grow where."""

from __future__ import annotations

import numpy as np

from data_stack import DatasetCard, PreparedResources, ResourceDefinition, Resources
from data_stack.formats import read_csv_matrix
from data_stack.io.archives import open_decompressed
from data_stack_classics.arrays import ArraysFactory
from data_stack_classics.classic import as_integers

_MEASUREMENTS = (
    "Elevation",
    "Aspect",
    "Slope",
    "Horizontal_Distance_To_Hydrology",
    "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways",
    "Hillshade_9am",
    "Hillshade_Noon",
    "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points",
)
#: Whether a patch lies in an area: 0 or 1.
_AREAS = tuple(f"Wilderness_Area_{number}" for number in range(4))
#: Whether a patch has a type of soil: 0 or 1.
_SOILS = tuple(f"Soil_Type_{number}" for number in range(40))

_CITATION = """@misc{covertype,
  author = {Jock Blackard},
  title = {Covertype},
  howpublished = {UCI Machine Learning Repository},
  year = {1998},
  doi = {10.24432/C50K5N}
}"""


class CovertypeFactory(ArraysFactory):
    """Patches of forest in Colorado, 30 × 30 meters, to tell which trees grow there.

    Samples are ``(features, label, tag)``: a float32 array of shape ``(54,)`` in the order of
    ``feature_names``, all of them whole numbers; the label, a position in ``class_names``; and the
    label again. The file counts classes from 1. There is one split, ``all``.
    """

    card = DatasetCard(
        name="covertype",
        version="1.0.0",
        license="CC-BY-4.0",
        homepage="https://archive.ics.uci.edu/dataset/31/covertype",
        citation=_CITATION,
    )
    # The digests are those of scikit-learn 1.9.1.
    sources = (
        ResourceDefinition(
            "raw/covtype.csv.gz",
            "https://ndownloader.figshare.com/files/5976039",
            sha256="614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
            mirrors=(
                "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
            ),
        ),
    )
    splits = ("all",)
    n_samples = {"all": 581_012}
    columns = ("features", "label", "tag")
    feature_names = _MEASUREMENTS + _AREAS + _SOILS
    class_names = (
        "Spruce/Fir",
        "Lodgepole Pine",
        "Ponderosa Pine",
        "Cottonwood/Willow",
        "Aspen",
        "Douglas-fir",
        "Krummholz",
    )

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Turn lines of 54 numbers and a class into two arrays."""
        name = "raw/covtype.csv.gz"
        with raw[name] as resource, open_decompressed(resource) as lines:
            rows = read_csv_matrix(lines, np.float32)
        # The file counts classes from 1.
        labels = as_integers(name, rows[:, -1]) - 1
        self.write(prepared, "all", "features", [rows[:, :-1]], name)
        self.write(prepared, "all", "label", [labels], name)
