"""CIFAR-10: small photographs of ten kinds of animals and vehicles."""

from __future__ import annotations

from data_stack_classics.planes import PlanesFactory


class CIFAR10Factory(PlanesFactory, dataset="cifar10"):
    """Photographs of animals and vehicles in ten classes, 32 × 32 pixels in colour.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(32, 32, 3)``, and twice the position in ``class_names``.
    """
