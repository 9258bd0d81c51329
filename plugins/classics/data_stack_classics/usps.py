"""USPS: digits of postal codes on envelopes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from data_stack import DatasetCard, PreparedResources, ResourceDefinition, Resources
from data_stack.exception import DatasetFileCorruptError
from data_stack.io.archives import open_decompressed
from data_stack_classics.arrays import ArraysFactory
from data_stack_classics.classic import as_integers

#: The indexes of the pixels, which stand before their values.
_INDEXES = [str(number).encode() for number in range(1, 257)]

_URL = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"

_CITATION = """@article{usps,
  author = {Jonathan J. Hull},
  title = {A database for handwritten text recognition research},
  journal = {IEEE Transactions on Pattern Analysis and Machine Intelligence},
  volume = {16},
  number = {5},
  pages = {550--554},
  year = {1994},
  doi = {10.1109/34.291440}
}"""


class USPSFactory(ArraysFactory):
    """Handwritten digits of postal codes, 16 × 16 pixels.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(16, 16)``, the digit, and the
    digit again. The files have numbers from -1 (paper) to 1 (ink). They become 0 to 255, rounded
    down as by torchvision.
    """

    card = DatasetCard(
        name="usps",
        version="1.0.0",
        license="LicenseRef-unknown",
        homepage="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html#usps",
        citation=_CITATION,
    )
    # The digests are those of torchvision, prototype.datasets.
    sources = (
        ResourceDefinition(
            "raw/train.bz2",
            f"{_URL}/usps.bz2",
            sha256="3771e9dd6ba685185f89867b6e249233dd74652389f263963b3b741e994b034f",
        ),
        ResourceDefinition(
            "raw/test.bz2",
            f"{_URL}/usps.t.bz2",
            sha256="a9c0164e797d60142a50604917f0baa604f326e9a689698763793fa5d12ffc4e",
        ),
    )
    splits = ("train", "test")
    n_samples = {"train": 7_291, "test": 2_007}
    class_names = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Convert lines such as ``7 1:-0.5 2:1 …``, a label and 256 values, to images."""
        for split in prepared.steps(self.splits):
            name = f"raw/{split}.bz2"
            labels, values = self._read_rows(raw, name)
            pixels = ((values.clip(-1, 1) + 1) / 2 * 255).astype(np.uint8)
            self.write(prepared, split, "image", [pixels.reshape(-1, 16, 16)], name)
            self.write(prepared, split, "label", [labels], name)

    def _read_rows(
        self, raw: Resources, name: str
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return the labels of a file, of shape ``(n,)``, and its values, of shape ``(n, 256)``.

        Raises:
            DatasetFileCorruptError: a line is not a label and 256 values.
        """
        labels = []
        rows = []
        with raw[name] as resource, open_decompressed(resource) as lines:
            for line_number, line in enumerate(lines, start=1):
                label, *cells = line.split() or [b""]
                indexes = [cell.partition(b":")[0] for cell in cells]
                # The format may leave out zeros, but these files do not. An underscore is no part
                # of a number in files, but numpy would accept it.
                if indexes != _INDEXES or b"_" in line:
                    raise DatasetFileCorruptError(
                        f"{name!r} is not lines of a label and 256 numbers: see line "
                        f"{line_number}. Fetch it again"
                    )
                labels.append(label)
                rows.append([cell.partition(b":")[2] for cell in cells])
        try:
            values = np.array(rows).astype(np.float32).reshape(len(rows), len(_INDEXES))
            label_values = np.array(labels).astype(np.float64)
        except ValueError as error:
            raise DatasetFileCorruptError(
                f"{name!r} is not lines of a label and 256 numbers: {error}. Fetch it again"
            ) from error
        if not np.isfinite(values).all():
            raise DatasetFileCorruptError(f"{name!r} has a pixel that is no number. Fetch it again")
        # The files count classes from 1.
        return as_integers(name, label_values) - 1, values
