"""STL-10: photographs for learning from few labels."""

from __future__ import annotations

import numpy as np

from data_stack import DatasetCard, PreparedResources, ResourceDefinition, Resources
from data_stack.io.archives import Archive, open_archive
from data_stack_classics.arrays import ArraysFactory, read_rows

_CITATION = """@inproceedings{stl10,
  author = {Adam Coates and Honglak Lee and Andrew Y. Ng},
  title = {An Analysis of Single-Layer Networks in Unsupervised Feature Learning},
  booktitle = {International Conference on Artificial Intelligence and Statistics},
  year = {2011}
}"""


class STL10Factory(ArraysFactory):
    """Photographs in ten classes, and many more without labels, 96 × 96 pixels in color.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(96, 96, 3)``; the label, a
    position in ``class_names``; and the label again. Labels are -1 in the split ``unlabeled``.
    """

    card = DatasetCard(
        name="stl10",
        version="1.0.0",
        license="LicenseRef-unknown",
        homepage="https://cs.stanford.edu/~acoates/stl10/",
        citation=_CITATION,
    )
    # The digests are those of tensorflow-datasets 4.9.9.
    sources = (
        ResourceDefinition(
            "raw/archive.tar.gz",
            "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
            sha256="f31fd99273a1acb8609c8db427cebb1de3f71de77758cdc0e22956e1289b9866",
            size=2_640_397_119,
        ),
    )
    splits = ("train", "test", "unlabeled")
    n_samples = {"train": 5_000, "test": 8_000, "unlabeled": 100_000}
    unlabeled_splits = ("unlabeled",)
    class_names = (
        "airplane",
        "bird",
        "car",
        "cat",
        "deer",
        "dog",
        "horse",
        "monkey",
        "ship",
        "truck",
    )

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Write the images and the labels of each split."""
        with raw["raw/archive.tar.gz"] as resource, open_archive(resource) as archive:
            for split in prepared.steps(self.splits):
                self._write_images(archive, split, prepared)
                self._write_labels(archive, split, prepared)

    def _write_images(self, archive: Archive, split: str, prepared: PreparedResources) -> None:
        """Write the images of a split block by block, with their axes in our order.

        The files have images as (color, column, row); ours are (row, column, color).
        """
        name = f"stl10_binary/{split}_X.bin"
        with archive.open(name) as stream:
            blocks = read_rows(stream, name, (self.n_samples[split], 3, 96, 96), np.uint8)
            images = (block.transpose(0, 3, 2, 1) for block in blocks)
            self.write(prepared, split, "image", images, name)

    def _write_labels(self, archive: Archive, split: str, prepared: PreparedResources) -> None:
        """Write the labels of a split; -1 for all images of a split without labels."""
        name = f"stl10_binary/{split}_y.bin"
        if split in self.unlabeled_splits:
            labels = np.full(self.n_samples[split], -1, np.int64)
        else:
            # The files count classes from 1.
            labels = np.frombuffer(archive.read(name), np.uint8).astype(np.int64) - 1
        self.write(prepared, split, "label", [labels], name)
