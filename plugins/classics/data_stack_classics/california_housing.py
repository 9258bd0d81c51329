"""California housing: prices of houses by the census of 1990."""

from __future__ import annotations

import numpy as np

from data_stack import DatasetCard, PreparedResources, ResourceDefinition, Resources
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats import read_csv_matrix
from data_stack.io.archives import open_archive
from data_stack_classics.arrays import ArraysFactory

_FILE = "CaliforniaHousing/cal_housing.data"
_N_COLUMNS = 9

_CITATION = r"""@article{california-housing,
  author = {R. Kelley Pace and Ronald Barry},
  title = {Sparse spatial autoregressions},
  journal = {Statistics \& Probability Letters},
  volume = {33},
  number = {3},
  pages = {291--297},
  year = {1997},
  doi = {10.1016/S0167-7152(96)00140-X}
}"""


class CaliforniaHousingFactory(ArraysFactory):
    """Districts of California in 1990, to tell what a house costs, as scikit-learn has them.

    Samples are ``(features, price, tag)``: a float64 array of shape ``(8,)`` in the order of
    ``feature_names``; the median price in 100,000 dollars, a float; and the price again. There is
    one split, ``all``.
    """

    card = DatasetCard(
        name="california-housing",
        version="1.0.0",
        license="LicenseRef-unknown",
        homepage="https://www.dcc.fc.up.pt/~ltorgo/Regression/cal_housing.html",
        citation=_CITATION,
    )
    # The digests are those of scikit-learn 1.9.1.
    sources = (
        ResourceDefinition(
            "raw/archive.tar.gz",
            "https://ndownloader.figshare.com/files/5976036",
            sha256="aaa5c9a6afe2225cc2aed2723682ae403280c4a3695a2ddda4ffb5d8215ea681",
            size=441_963,
            mirrors=("https://www.dcc.fc.up.pt/~ltorgo/Regression/cal_housing.tgz",),
        ),
    )
    splits = ("all",)
    n_samples = {"all": 20_640}
    columns = ("features", "price", "tag")
    feature_names = (
        "MedInc",
        "HouseAge",
        "AveRooms",
        "AveBedrms",
        "Population",
        "AveOccup",
        "Latitude",
        "Longitude",
    )

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Store features and prices. Sums over a district become means of its households."""
        with (
            raw["raw/archive.tar.gz"] as resource,
            open_archive(resource) as archive,
            archive.open(_FILE) as file,
        ):
            rows = read_csv_matrix(file)
        if rows.shape[1] != _N_COLUMNS:
            raise DatasetFileCorruptError(
                f"{_FILE!r} has {rows.shape[1]} columns, expected {_N_COLUMNS}. Fetch it again"
            )
        longitude, latitude, age, rooms, bedrooms, people, households, income, price = rows.T
        features = [
            income,
            age,
            rooms / households,
            bedrooms / households,
            people,
            people / households,
            latitude,
            longitude,
        ]
        self.write(prepared, "all", "features", [np.stack(features, axis=1)], _FILE)
        self.write(prepared, "all", "price", [price / 100_000], _FILE)
