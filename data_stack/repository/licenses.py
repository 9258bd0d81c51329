"""Decides by their licenses which datasets may be loaded."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from data_stack.exception import ConfigError, LicenseDeniedError
from data_stack.util.program_lines import warn_deprecated

#: The variable of the environment with a policy for all processes: patterns separated by commas.
VARIABLE = "DATA_STACK_LICENSE_POLICY"
#: The name of the variable before version 0.2, which is still obeyed.
_DEPRECATED_VARIABLE = "DATA_STACK_LICENCE_POLICY"
#: The word of the variable that stands for ``allow_unknown=True``.
_ALLOW_UNKNOWN = "allow-unknown"

#: A reference to a license without an SPDX identifier, such as ``LicenseRef-own``.
_LICENSE_REFERENCE = re.compile(r"\b(?:DocumentRef-[\w.-]+:)?LicenseRef-[\w.-]+", re.ASCII)


def spdx_problem(expression: str) -> str | None:
    """Return why a text is not an SPDX license expression; None if it is one.

    The grammar and the identifiers are those of https://spdx.org/licenses.
    """
    if not expression.strip():
        return "it is empty"
    # SPDX allows references, but the library knows identifiers only: any identifier will do.
    without_references = _LICENSE_REFERENCE.sub("MIT", expression)
    try:
        _spdx().parse(without_references)
    except Exception as error:  # noqa: BLE001  # an IndexError of "()", and others
        return str(error) or type(error).__name__
    errors = _spdx().validate(without_references).errors
    return "; ".join(errors) or None


def is_denied(expression: str | None, patterns: Sequence[str]) -> bool | None:
    """Return whether patterns deny a license; None if the license is not known.

    ``A AND B`` is denied if one of them is. ``A OR B`` is permitted if one of them is.

    Args:
        expression: an SPDX expression. None and texts that are no SPDX expression are not known.
        patterns: patterns of SPDX identifiers, such as ``"*-NC-*"``, in upper or lower case.
    """
    if expression is None or spdx_problem(expression) is not None:
        return None
    references = _LICENSE_REFERENCE.findall(expression)
    return _is_node_denied(_spdx().parse(expression), patterns, references)


def _is_node_denied(node: Any, patterns: Sequence[str], references: Sequence[str]) -> bool | None:
    """Return whether patterns deny a node of a parsed expression; None if that is not known."""
    if node.args:
        answers = [_is_node_denied(part, patterns, references) for part in node.args]
        # One denied part decides "A AND B", one permitted part decides "A OR B".
        is_or = type(node).__name__ == "OR"
        deciding_answer = not is_or
        if deciding_answer in answers:
            return deciding_answer
        if None in answers:
            return None
        return not deciding_answer

    # An exception ("GPL-2.0-only WITH Classpath-exception-2.0") only permits more than its license.
    license_node = getattr(node, "license_symbol", node)
    identifier = license_node.key
    if identifier in references:
        return None
    return any(fnmatch.fnmatchcase(identifier.upper(), pattern.upper()) for pattern in patterns)


def _spdx() -> Any:
    # Not imported above: with the list of SPDX, the import takes 70 ms.
    from license_expression import get_spdx_licensing

    return get_spdx_licensing()


class LicensePolicy:
    """Licenses of datasets that are refused.

    :func:`policy` puts one in force. As a context manager, it is lifted when the block ends.

    Attributes:
        deny: patterns of SPDX identifiers.
        allow_unknown: whether datasets whose license is not known are loaded.
    """

    def __init__(self, deny: Iterable[str], allow_unknown: bool) -> None:
        patterns: tuple[Any, ...] = ()
        is_one_text = isinstance(deny, (str, bytes))
        if not is_one_text:
            patterns = tuple(deny)
        are_texts = all(isinstance(pattern, str) and pattern.strip() for pattern in patterns)
        if is_one_text or not are_texts:
            raise ConfigError(f'deny is a list of patterns such as ["*-NC-*"], got {deny!r:.80}')
        self.deny = tuple(pattern.strip() for pattern in patterns)
        self.allow_unknown = allow_unknown

    def __repr__(self) -> str:
        return f"policy(deny={list(self.deny)}, allow_unknown={self.allow_unknown})"

    def __enter__(self) -> LicensePolicy:
        return self

    def __exit__(self, *_: object) -> None:
        _in_force[:] = [policy for policy in _in_force if policy is not self]

    def check(self, dataset_name: str, expression: str | None) -> None:
        """Refuse a dataset if its license is denied.

        Args:
            dataset_name: the name of the dataset, for the error.
            expression: the license; None if the card of the dataset names no license.

        Raises:
            LicenseDeniedError: the license is denied, or it is unknown and that is not allowed.
        """
        denied = is_denied(expression, self.deny)
        if denied is False or (denied is None and self.allow_unknown):
            return
        if expression is None:
            problem = "its card has no license"
        elif denied is None:
            problem = f"its license {expression!r:.80} is not known"
        else:
            problem = f"its license is {expression}"
        raise LicenseDeniedError(
            f"dataset {dataset_name!r} is refused by {self!r}: {problem}. Nothing was retrieved. "
            f"Read its license, and change the policy (data_stack.policy, or {VARIABLE}) if you "
            f"may use it"
        )


#: The policies of this process that have not been lifted, in the order of their calls.
_in_force: list[LicensePolicy] = []


def policy(*, deny: Iterable[str], allow_unknown: bool = False) -> LicensePolicy:
    """Refuse to load datasets by their licenses.

    The policy holds for the rest of the process; in a ``with`` statement, until its block ends.

    ::

        data_stack.policy(deny=["*-NC-*", "*-ND-*"])
        data_stack.load("some-set")          # LicenseDeniedError, before anything is retrieved

    A dataset whose license is missing, or is not an SPDX expression, is refused too. Of ``A OR B``
    one license that is not denied is enough. ``DATA_STACK_LICENSE_POLICY="*-NC-*,*-ND-*"`` does the
    same for all processes, with the word ``allow-unknown`` for that option. All policies in force
    apply.

    Args:
        deny: patterns of SPDX identifiers, in upper or lower case; ``*`` stands for any characters.
        allow_unknown: load datasets whose license is not known.

    Raises:
        ConfigError: ``deny`` is not a list of patterns.
    """
    new_policy = LicensePolicy(deny, allow_unknown)
    _in_force.append(new_policy)
    return new_policy


def check_license(dataset_name: str, expression: str | None) -> None:
    """Refuse a dataset if a policy in force denies its license; see :func:`policy`.

    Args:
        dataset_name: the name of the dataset, for the error.
        expression: the license; None if the card of the dataset names no license.

    Raises:
        LicenseDeniedError: a policy denies the license, or the license is unknown.
    """
    for policy_in_force in [*_read_environment(), *_in_force]:
        policy_in_force.check(dataset_name, expression)


def _read_environment() -> list[LicensePolicy]:
    """Return the policies of the environment: none, one, or one of each name of the variable."""
    policies = []
    if os.environ.get(_DEPRECATED_VARIABLE):
        warn_deprecated(_DEPRECATED_VARIABLE, instead=VARIABLE, since="0.2", removed_in="1.0")
        policies.append(_parse_policy(os.environ[_DEPRECATED_VARIABLE]))
    if os.environ.get(VARIABLE):
        policies.append(_parse_policy(os.environ[VARIABLE]))
    return policies


def _parse_policy(text: str) -> LicensePolicy:
    words = [word.strip() for word in text.split(",") if word.strip()]
    patterns = [word for word in words if word != _ALLOW_UNKNOWN]
    return LicensePolicy(patterns, allow_unknown=_ALLOW_UNKNOWN in words)
