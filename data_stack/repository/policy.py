"""Which licences this process refuses."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType

from data_stack.exception import ConfigError, LicenceDeniedError
from data_stack.show.explanation import is_denied

#: Patterns of licences separated by commas, and the word ``allow-unknown``.
VARIABLE = "DATA_STACK_LICENCE_POLICY"
_ALLOW_UNKNOWN = "allow-unknown"


class LicencePolicy:
    """Licences that are refused; :func:`policy` puts one in force. As a context manager it is lifted when the block ends.

    Attributes:
        deny: patterns of SPDX identifiers.
        allow_unknown: whether datasets whose licence is not known are loaded.
    """

    def __init__(self, deny: Iterable[str], allow_unknown: bool) -> None:
        patterns: tuple[object, ...] = () if isinstance(deny, (str, bytes)) else tuple(deny)
        if isinstance(deny, (str, bytes)) or not all(isinstance(each, str) and each.strip() for each in patterns):
            raise ConfigError(f'deny is a list of patterns such as ["*-NC-*"], got {deny!r:.80}')
        self.deny, self.allow_unknown = tuple(str(each).strip() for each in patterns), allow_unknown

    def __repr__(self) -> str:
        return f"policy(deny={list(self.deny)}, allow_unknown={self.allow_unknown})"

    def __enter__(self) -> LicencePolicy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.lift()

    def lift(self) -> None:
        """End the policy; ending it twice does nothing."""
        _in_force[:] = [each for each in _in_force if each is not self]

    def check(self, dataset: str, licence: str | None) -> None:
        """Refuse a dataset if its licence is denied.

        Raises:
            LicenceDeniedError: the licence is denied; the message names the policy.
        """
        denied = is_denied(licence, self.deny)
        if denied is False or (denied is None and self.allow_unknown):
            return
        problem = f"its licence is {licence}" if denied else f"its licence {licence!r:.80} is not known"
        if licence is None:
            problem = "its card has no licence"
        raise LicenceDeniedError(
            f"dataset {dataset!r} is refused by {self!r}: {problem}. Nothing was retrieved. Read its licence, and change the "
            f"policy (data_stack.policy, or the variable {VARIABLE}) if you may use it"
        )


_in_force: list[LicencePolicy] = []


def policy(*, deny: Iterable[str], allow_unknown: bool = False) -> LicencePolicy:
    """Refuse to load datasets by their licences, from now on; in a ``with`` statement, until its block ends.

    ::

        data_stack.policy(deny=["*-NC-*", "*-ND-*"])      # of this process
        data_stack.load("some-set")                       # LicenceDeniedError, before anything is retrieved

    A dataset whose licence is missing, or is not an SPDX expression, is refused too. Of ``A OR B`` one licence
    that is not denied is enough. ``DATA_STACK_LICENCE_POLICY="*-NC-*,*-ND-*"`` does the same for all processes, with the word
    ``allow-unknown`` for that option. All policies in force apply.

    Args:
        deny: patterns of SPDX identifiers, in upper or lower case; ``*`` stands for any characters.
        allow_unknown: load datasets whose licence is not known.

    Raises:
        ConfigError: ``deny`` is not a list of patterns.
    """
    made = LicencePolicy(deny, allow_unknown)
    _in_force.append(made)
    return made


def current_policies() -> list[LicencePolicy]:
    """The policies in force: of the environment, and of this process."""
    words = [word.strip() for word in os.environ.get(VARIABLE, "").split(",") if word.strip()]
    deny = [word for word in words if word != _ALLOW_UNKNOWN]
    return [*([LicencePolicy(deny, _ALLOW_UNKNOWN in words)] if words else []), *_in_force]
