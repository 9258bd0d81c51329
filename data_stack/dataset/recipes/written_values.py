"""Arguments of layers as plain data from which ``data_stack.from_recipe`` makes them again."""

from __future__ import annotations

from typing import Any

from data_stack.codecs.plain_data import to_plain
from data_stack.dataset.recipes.array_values import array_value_of, write_out_positions
from data_stack.dataset.recipes.recipe_values import describe_object, plain_scalar


def write(value: Any, why_not: list[str], *, of_samples: bool = False) -> Any:
    """Write a value as plain data from which :func:`data_stack.from_recipe` makes it again.

    Args:
        value: an argument of a layer.
        why_not: receives a sentence for each part of the value that cannot be made again.
        of_samples: whether the value holds samples. Numbers of numpy keep their dtype in samples;
            as arguments they become Python's.
    """

    def write_number(part: Any) -> Any:
        return plain_scalar(part, of_samples=of_samples)

    def write_other(part: Any) -> Any:
        array = array_value_of(write_out_positions(part))
        if array is not None and array.kind == "array":
            return to_plain(array.values)
        if array is not None and array.kind == "tensor":
            return {"tensor": {"dtype": array.tensor_dtype, "values": to_plain(array.values)}}
        return describe_object(part, write_part, why_not, to_rebuild=True)

    def write_part(part: Any) -> Any:
        return write(part, why_not)

    return to_plain(value, write_other, write_number)
