"""STL-10: photographs for learning from few labels."""

from __future__ import annotations

import numpy as np

from data_stack import PreparedResources, Resources
from data_stack.io.archives import open_archive
from data_stack_classics.arrays import ArraysFactory, read_rows


class STL10Factory(ArraysFactory, dataset="stl10"):
    """Photographs in ten classes, and many more without labels, 96 × 96 pixels in colour.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(96, 96, 3)``, and twice the position in ``class_names``, which
    is -1 in the split ``unlabeled``.
    """

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Transpose images block by block; the files hold them by colour and column."""
        with raw["raw/archive.tar.gz"] as resource, open_archive(resource) as archive:
            for split in prepared.steps(self.splits):
                name, n_images = f"stl10_binary/{split}_X.bin", self.n_samples[split]
                with archive.open(name) as stream:
                    blocks = read_rows(stream, name, (n_images, 3, 96, 96), np.uint8)
                    self.write(
                        prepared,
                        split,
                        "image",
                        (block.transpose(0, 3, 2, 1) for block in blocks),
                        name,
                    )
                if split == "unlabeled":
                    self.write(prepared, split, "label", [np.full(n_images, -1)], name)
                    continue
                labels = np.frombuffer(archive.read(f"stl10_binary/{split}_y.bin"), np.uint8)
                self.write(
                    prepared,
                    split,
                    "label",
                    [labels.astype(np.int64) - 1],
                    f"stl10_binary/{split}_y.bin",
                )
