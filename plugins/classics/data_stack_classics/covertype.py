"""Covertype: which trees grow where."""

from __future__ import annotations

import numpy as np

from data_stack import PreparedResources, Resources
from data_stack.formats import read_csv_matrix
from data_stack.io.archives import open_decompressed
from data_stack_classics.arrays import ArraysFactory


class CovertypeFactory(ArraysFactory, dataset="covertype"):
    """Patches of forest in Colorado, 30 × 30 metres, to tell which trees grow there.

    Samples are ``(features, label, tag)``: a float32 array of shape ``(54,)`` in the order of ``feature_names``, all of them
    whole numbers, and twice the position in ``class_names``, which is one less than in the file. There is one split, ``all``.
    """

    columns = ("features", "label", "tag")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Turn lines of 54 numbers and a class into two arrays."""
        name = "raw/covtype.csv.gz"
        with raw[name] as resource, open_decompressed(resource) as lines:
            rows = read_csv_matrix(lines, np.float32)
        self.write(prepared, "all", "features", [rows[:, :-1]], name)
        self.write(prepared, "all", "label", [rows[:, -1].astype(np.int64) - 1], name)
