"""Hides secrets in what libraries log of our requests at the level DEBUG."""

from __future__ import annotations

import logging
import re
from typing import Final

from data_stack.io.redaction import HIDDEN, redact

#: The session token of S3, as botocore logs the headers of a request: one in a line, or as a dict.
_SESSION_TOKEN: Final = re.compile(
    r"(x-amz-security-token['\"]?: ?b?['\"]?)[^\s'\"]+", re.IGNORECASE
)
_PARAMETERS: Final = re.compile(r"[?&]\S+")


def hide_secrets_in_logs_of(*names: str) -> None:
    """Hide tokens and signatures in all that some loggers log from now on.

    Args:
        names: the names of the loggers. Those below them have filters of their own.
    """
    for name in names:
        # A filter is added once, however often this is called.
        logging.getLogger(name).addFilter(_hide_secrets)


def _hide_secrets(record: logging.LogRecord) -> bool:
    """Hide secrets in the arguments of a record.

    Returns:
        True: the record is logged.
    """
    if not isinstance(record.args, tuple):
        return True
    shown_arguments = list[object]()
    for argument in record.args:
        if not isinstance(argument, (int, float)):
            text = str(argument)
            shown_text = _without_secrets(text)
            if shown_text != text:
                argument = shown_text
        shown_arguments.append(argument)
    record.args = tuple(shown_arguments)
    return True


def _without_secrets(text: str) -> str:
    """Return a text in which no URL and no header shows a secret."""
    text = _PARAMETERS.sub(lambda match: redact(match[0]), text)
    return _SESSION_TOKEN.sub(rf"\1{HIDDEN}", text)
