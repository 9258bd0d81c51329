"""California housing: prices of houses by the census of 1990."""

from __future__ import annotations

import numpy as np

from data_stack import PreparedResources, Resources
from data_stack.formats import read_csv_matrix
from data_stack.io.archives import open_archive
from data_stack_classics.arrays import ArraysFactory


class CaliforniaHousingFactory(ArraysFactory, dataset="california-housing"):
    """Districts of California in 1990, to tell what a house costs, as scikit-learn has them.

    Samples are ``(features, price, tag)``: a float64 array of shape ``(8,)`` in the order of ``feature_names``, and twice the
    median price in 100,000 dollars, a float. There is one split, ``all``.
    """

    columns = ("features", "price", "tag")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Divide what the file sums over a district by its households."""
        name = "CaliforniaHousing/cal_housing.data"
        with (
            raw["raw/archive.tar.gz"] as resource,
            open_archive(resource) as archive,
            archive.open(name) as file,
        ):
            longitude, latitude, age, rooms, bedrooms, people, households, income, price = (
                read_csv_matrix(file).T
            )
        features = (
            income,
            age,
            rooms / households,
            bedrooms / households,
            people,
            people / households,
            latitude,
            longitude,
        )
        self.write(prepared, "all", "features", [np.stack(features, axis=1)], name)
        self.write(prepared, "all", "price", [price / 100_000], name)
