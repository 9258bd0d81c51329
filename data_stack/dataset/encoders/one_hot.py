"""Labels as vectors, where the classes are known: the last step before training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy.typing as npt

from data_stack.dataset.encoders.categorical import CategoricalEncoder
from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.exception import ConfigError

__all__ = ["OneHotEncoder"]


class OneHotEncoder(CategoricalEncoder):
    """Labels of shape ``(n, …)`` as float32 vectors, shape ``(n, …, n_classes)``: zeros, and a one at the position of the class.

    Args:
        classes: in the order of the positions; of a ClassMapping, its classes. Where none of them is a number, the integers
            0, 1, … stand for them too: labels that are numbered.
        unknown: what becomes of a label that is no class: ``"error"``, ``"zeros"`` or ``"index"``, see CategoricalEncoder.
        names: what to call the classes, one each; None for the classes themselves, or the names of the ClassMapping.

    Raises:
        ConfigError: classes are equal or cannot be such, or there is not one name for each.
    """

    kind = "one_hot"
    _what = "class"
    _numbered = True

    def __init__(
        self,
        classes: Sequence[Any] | npt.NDArray[Any] | ClassMapping,
        unknown: Literal["error", "zeros", "index"] = "error",
        names: Sequence[Any] | None = None,
    ) -> None:
        if isinstance(classes, ClassMapping):
            names = classes.names if names is None else names
            classes = classes.classes
        super().__init__("one_hot", unknown, classes)
        self._given_names = None if names is None else tuple(names)
        if self._given_names is not None and len(self._given_names) != len(self.categories):
            raise ConfigError(f"there are {len(self._given_names)} names for {len(self.categories)} classes")
        if self._given_names == self.categories:
            self._given_names = None

    def config(self) -> dict[str, Any]:
        """``classes``, ``unknown`` and ``names``."""
        names = None if self._given_names is None else list(self._given_names)
        return {"classes": list(self.categories), "unknown": self._unknown, "names": names}

    @property
    def _names(self) -> tuple[Any, ...]:
        names = self.categories if self._given_names is None else self._given_names
        return (*names, None) if self._unknown == "index" else names
