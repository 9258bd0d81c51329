"""The sources of a mix, with what a user states of each of them by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean

#: The largest number of samples that mixes may have had of a source before. Positions are of 64
#: bits, so that this leaves room for the samples of the mix.
MAX_CONSUMED = 1 << 62


@dataclass(frozen=True)
class Sources:
    """The sources of a mix.

    Attributes:
        lengths: how many samples each source has.
        names: the name of each source; its number where the user gave no names.
        are_named: whether the user gave names.
    """

    lengths: Sequence[int]
    names: Sequence[str]
    are_named: bool

    @classmethod
    def of(cls, lengths: Sequence[int], names: Any) -> Sources:
        """Check the names.

        Raises:
            ConfigError: there is not one name for each source, or two are the same.
        """
        if names is None:
            return cls(lengths, [str(number) for number in range(len(lengths))], are_named=False)
        is_list = not isinstance(names, (str, bytes)) and hasattr(names, "__iter__")
        given = list(names) if is_list else []
        are_texts = all(isinstance(name, str) for name in given)
        if len(given) != len(lengths) or not are_texts or len(set(given)) < len(given):
            raise ConfigError(
                f"names must be {len(lengths)} different texts, one for each source, got "
                f"{names!r:.200}"
            )
        return cls(lengths, given, are_named=True)

    def in_order(self, argument: str, values: Any, default: Any) -> list[Any]:
        """Return values that are stated by name, in the order of the sources.

        Args:
            argument: the name of the argument, for messages.
            values: a mapping from names of sources to values.
            default: the value of sources that are not in the mapping.

        Raises:
            ConfigError: the sources have no names, or one is not among them.
        """
        if not self.are_named:
            raise ConfigError(
                f"{argument} by name needs names=[…], one name for each source, which this mix "
                f"does not have"
            )
        for name in values:
            if name not in self.names:
                known = ", ".join(repr(known_name) for known_name in self.names)
                raise ConfigError(
                    f"{argument} names the source {name!r}{did_you_mean(name, self.names)}; the "
                    f"sources are {known}"
                )
        return [values.get(name, default) for name in self.names]


def parse_max_epochs(sources: Sources, max_epochs: Any) -> list[int | None]:
    """Return the largest number of passes through each source; None for no limit.

    Raises:
        ConfigError: a number is not an integer, or less than 1.
    """
    if isinstance(max_epochs, Mapping):
        numbers = sources.in_order("max_epochs", max_epochs, None)
    else:
        numbers = [max_epochs] * len(sources.lengths)
    checked: list[int | None] = []
    for number in numbers:
        if number is None:
            checked.append(None)
        else:
            checked.append(check_integer("max_epochs", number, at_least=1))
    return checked


def parse_consumed(sources: Sources, consumed: Any) -> list[int]:
    """Return how many samples of each source were read before.

    Raises:
        ConfigError: they are no mapping by names, or a number is not allowed; or samples of an
            empty source were read.
    """
    if consumed is None:
        return [0] * len(sources.lengths)
    if not isinstance(consumed, Mapping):
        raise ConfigError(
            f"consumed is a mapping of names of sources to numbers of samples, such as "
            f'{{"web": 12_345}}, got {consumed!r:.80}'
        )
    numbers: list[int] = []
    for name, length, number in zip(
        sources.names, sources.lengths, sources.in_order("consumed", consumed, 0), strict=True
    ):
        checked = check_integer("consumed", number, at_least=0, at_most=MAX_CONSUMED)
        if checked and not length:
            raise ConfigError(f"consumed has {checked:,} samples of {name!r}, which is empty")
        numbers.append(checked)
    return numbers
