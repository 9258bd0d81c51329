"""The random states of a model of Keras, from which its layers draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import keras

#: The name that Keras gives to the state of a layer's generator.
_SEED_STATE: Final = "seed_generator_state"


def _seed_states(model: Any) -> list[Any]:
    """Return the variables of a model that its layers draw from, which are no weights of it."""
    return [variable for variable in model.variables if variable.name == _SEED_STATE]


def read_random_states(model: Any) -> dict[str, Any]:
    """Return what a model draws from, as JSON data."""
    states: dict[str, Any] = {
        "seeds": [keras.ops.convert_to_numpy(state).tolist() for state in _seed_states(model)]
    }
    # With this backend, layers draw from torch's own generators.
    if keras.backend.backend() == "torch":
        import torch

        generators = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
        states["torch"] = [bytes(generator.tolist()).hex() for generator in generators]
    return states


def restore_random_states(model: Any, states: Mapping[str, Any]) -> None:
    """Let a model draw as when its random states were read.

    The generators of GPUs are only restored on as many GPUs.
    """
    for variable, value in zip(_seed_states(model), states["seeds"], strict=True):
        variable.assign(value)
    if keras.backend.backend() == "torch" and "torch" in states:
        import torch

        generators = [
            torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8) for text in states["torch"]
        ]
        torch.set_rng_state(generators[0])
        if len(generators) == torch.cuda.device_count() + 1:
            torch.cuda.set_rng_state_all(generators[1:])
