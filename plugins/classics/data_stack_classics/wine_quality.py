"""Wine quality: what experts think of wines, by their chemistry."""

from __future__ import annotations

import numpy as np

from data_stack import PreparedResources, Resources
from data_stack.formats import read_csv_matrix
from data_stack_classics.arrays import ArraysFactory


class WineQualityFactory(ArraysFactory, dataset="wine-quality"):
    """Red and white Vinho Verde, to tell from eleven measurements how experts grade it.

    Samples are ``(features, quality, tag)``: a float64 array of shape ``(11,)`` in the order of ``feature_names``, and twice the
    grade from 0 to 10, an int. The splits are ``red`` and ``white``; no division for testing was published.
    """

    columns = ("features", "quality", "tag")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Convert lines of eleven numbers and a grade to two arrays."""
        for split in prepared.steps(self.splits):
            name = f"raw/{split}.csv"
            with raw[name] as resource:
                rows = read_csv_matrix(resource, delimiter=";", header=True)
            self.write(prepared, split, "features", [rows[:, :-1]], name)
            self.write(prepared, split, "quality", [rows[:, -1].astype(np.int64)], name)
