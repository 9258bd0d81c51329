"""SVHN: house numbers in street views, a digit each."""

from __future__ import annotations

import numpy as np

from data_stack import DatasetCard, PreparedResources, ResourceDefinition, Resources
from data_stack.exception import DatasetFileCorruptError
from data_stack_classics.arrays import ArraysFactory, read_rows
from data_stack_classics.matlab import iterate_arrays

_URL = "http://ufldl.stanford.edu/housenumbers"

_CITATION = """@inproceedings{svhn,
  author = {Yuval Netzer and Tao Wang and Adam Coates and Alessandro Bissacco and Bo Wu \
and Andrew Y. Ng},
  title = {Reading Digits in Natural Images with Unsupervised Feature Learning},
  booktitle = {NIPS Workshop on Deep Learning and Unsupervised Feature Learning},
  year = {2011}
}"""


class SVHNFactory(ArraysFactory):
    """Digits of house numbers in street views, 32 × 32 pixels in color.

    For non-commercial use. Samples are ``(image, label, tag)``: a uint8 array of shape ``(32, 32,
    3)``, and twice the digit. (The files hold 10 for 0.)
    """

    card = DatasetCard(
        name="svhn",
        version="1.0.0",
        license="LicenseRef-non-commercial",
        homepage="http://ufldl.stanford.edu/housenumbers/",
        citation=_CITATION,
    )
    # The digests are those of tensorflow-datasets 4.9.9.
    sources = (
        ResourceDefinition(
            "raw/train.mat",
            f"{_URL}/train_32x32.mat",
            sha256="435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            size=182_040_794,
        ),
        ResourceDefinition(
            "raw/test.mat",
            f"{_URL}/test_32x32.mat",
            sha256="cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            size=64_275_384,
        ),
        ResourceDefinition(
            "raw/extra.mat",
            f"{_URL}/extra_32x32.mat",
            sha256="a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
            size=1_329_278_602,
        ),
    )
    splits = ("train", "test", "extra")
    n_samples = {"train": 73_257, "test": 26_032, "extra": 531_131}
    class_names = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Transpose images block by block; the files hold them by color and column."""
        for split in prepared.steps(self.splits):
            self._write_split(f"raw/{split}.mat", split, raw, prepared)

    def _write_split(
        self, name: str, split: str, raw: Resources, prepared: PreparedResources
    ) -> None:
        """Write the images, the variable ``X``, and the labels, the variable ``y``."""
        n_images = self.n_samples[split]
        expected_shapes = {"X": (32, 32, 3, n_images), "y": (n_images, 1)}
        shapes: dict[str, tuple[int, ...]] = {}
        with raw[name] as resource:
            for array in iterate_arrays(resource, name):
                shapes[array.name] = array.shape
                if array.shape != expected_shapes.get(array.name):
                    break
                # The first index of MATLAB's arrays runs fastest, the last of ours.
                blocks = read_rows(
                    array.stream, name, array.shape[::-1], array.dtype, is_last=False
                )
                if array.name == "X":
                    images = (block.transpose(0, 3, 2, 1) for block in blocks)
                    self.write(prepared, split, "image", images, name)
                else:
                    labels = (block[0].astype(np.int64) % 10 for block in blocks)
                    self.write(prepared, split, "label", labels, name)
        if shapes != expected_shapes:
            raise DatasetFileCorruptError(
                f"{name!r} holds {shapes}, expected {expected_shapes}. Fetch it again"
            )
