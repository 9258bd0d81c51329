"""QMNIST: the digits of MNIST, with all that NIST knows of them, and those that MNIST left out."""

from __future__ import annotations

from data_stack_classics.idx import IdxFactory


class QMNISTFactory(IdxFactory, dataset="qmnist"):
    """Handwritten digits: MNIST reconstructed, with 50,000 more for testing; and all of NIST's, 28 × 28 pixels.

    Samples are ``(image, label, origin)``: a uint8 array of shape ``(28, 28)``, the digit, and an int64 array of shape ``(8,)``:
    digit, series, writer, number of the digit of this writer, class at NIST, number among all, whether it is there twice, and 0.
    The first 10,000 of ``test`` are MNIST's; ``nist`` holds those of ``train`` and ``test`` again, and others.
    """

    columns = ("image", "label", "origin")
