"""What a loader does when a sample cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from data_stack.dataset.positions import check_integer
from data_stack.dataset.randomness import derive_seed
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    RequestLimitError,
    ResourceChangedError,
    RetrievalError,
    UnfilledCacheError,
)

OnError = Literal["raise", "skip", "replace"]
"""What a loader does with damaged samples."""

MAX_SUBSTITUTES = 1000
"""The maximum number of samples that are tried in place of one.

Where half of all samples are damaged, 1,000 damaged ones in a row are as good as impossible.
"""

DEFAULT_MAX_ERRORS = 100
"""How many samples may be damaged, unless the argument ``max_errors`` of a loader says otherwise.
"""

#: Errors that say that the bytes of a sample are not what they should be. A value that exceeds the
#: limit of a request even when it is read alone counts as well: its header is damaged, as a rule.
_DAMAGE = (DatasetFileCorruptError, RequestLimitError)

#: Errors of these classes that concern all samples, not one of them: a file was replaced while the
#: training reads it, a source on the network delivered a wrong file, or a cache was not written.
_NO_DAMAGE = (ResourceChangedError, RetrievalError, UnfilledCacheError)


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """What a loader does with samples that cannot be read.

    Attributes:
        on_error: "raise", "skip" or "replace".
        max_errors: how many different samples may be damaged.
        errors: classes of errors that count as damage as well.
    """

    on_error: OnError = "raise"
    max_errors: int = DEFAULT_MAX_ERRORS
    errors: tuple[type[Exception], ...] = ()

    @property
    def tolerates_damage(self) -> bool:
        """Whether a loader continues where a sample is damaged."""
        return self.on_error != "raise"

    def is_damage(self, error: Exception) -> bool:
        """Return whether an error of reading one sample says that the sample is damaged."""
        if isinstance(error, self.errors):
            return True
        return isinstance(error, _DAMAGE) and not isinstance(error, _NO_DAMAGE)


def parse_error_policy(
    on_error: Any, max_errors: Any, errors: Any, *, has_log: bool
) -> ErrorPolicy:
    """Return the policy of the arguments of a loader.

    Args:
        on_error: the argument of the loader.
        max_errors: the argument of the loader; None for the default.
        errors: the argument of the loader.
        has_log: whether the loader has an ``error_log``.

    Raises:
        ConfigError: an argument is wrong, or has no effect with ``on_error="raise"``.
    """
    if on_error not in get_args(OnError):
        raise ConfigError(f"on_error must be 'raise', 'skip' or 'replace', got {on_error!r:.80}")
    n_allowed = DEFAULT_MAX_ERRORS
    if max_errors is not None:
        n_allowed = check_integer("max_errors", max_errors, at_least=0)

    classes = (errors,) if isinstance(errors, type) else errors
    problem = (
        "errors must be classes of exceptions that count as damage of a sample, such as "
        f"errors=(ValueError,), got {errors!r:.80}"
    )
    try:
        checked_classes = tuple(classes)
    except TypeError:
        raise ConfigError(problem) from None
    for error_class in checked_classes:
        # KeyboardInterrupt and the like end programs; they are no Exception.
        if not isinstance(error_class, type) or not issubclass(error_class, Exception):
            raise ConfigError(problem)

    policy = ErrorPolicy(on_error, n_allowed, checked_classes)
    if not policy.tolerates_damage:
        without_effect = []
        if max_errors is not None:
            without_effect.append("max_errors=")
        if checked_classes:
            without_effect.append("errors=")
        if has_log:
            without_effect.append("error_log=")
        if without_effect:
            raise ConfigError(
                f"on_error='raise' ends the training at the first damaged sample, so that "
                f"{' and '.join(without_effect)} would have no effect; pass on_error='skip' or "
                "on_error='replace' as well"
            )
    return policy


def substitutes(seed: int, epoch: int, position: int, n_samples: int) -> Iterator[int]:
    """Yield the samples to try in place of one that is damaged: a pure function of the arguments.

    Args:
        seed: the seed of the loader.
        epoch: the epoch.
        position: the position of the damaged sample in the order of the epoch.
        n_samples: the number of samples of the epoch, at least 1.
    """
    for number in range(MAX_SUBSTITUTES):
        yield derive_seed("substitute", seed, epoch, position, number) % n_samples
