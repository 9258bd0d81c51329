"""Asks APIs of catalogues for JSON: with pauses that a server asks for, and limits of size and time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from data_stack.exception import CatalogueBusyError, CatalogueUnavailableError
from data_stack.io.retriever import is_offline

_TIMEOUT_SECONDS: Final = 30.0
_ATTEMPTS: Final = 4
_MOST_WAIT_SECONDS: Final = 60.0
_MOST_BYTES: Final = 64 << 20
_PASSING: Final = (429, 500, 502, 503, 504)


def ask_json(url: str, asked: str, *, params: Mapping[str, str] | None = None) -> tuple[int, Any]:
    """Ask for JSON, again after a pause where that may help; redirects are not followed.

    Args:
        url: what to ask.
        asked: whom for what, as messages say it: ``"OpenML for openml:61"``.
        params: of the query, such as a key; they are never shown.

    Returns:
        The status and the parsed answer; None for the second if it is no JSON, or has more than 64 MiB.

    Raises:
        CatalogueBusyError: the server wants a longer pause than a minute, or was asked too often.
        CatalogueUnavailableError: it does not answer, or this process is offline.
    """
    import requests  # not where data_stack is imported

    who, _, what = asked.partition(" for ")
    if is_offline():
        raise CatalogueUnavailableError(f"{who} was not asked for {what}, as DATA_STACK_OFFLINE is set")
    attempt = 0
    while True:
        status, pause_asked, data = 0, "", None
        try:
            with requests.get(url, params=params, timeout=_TIMEOUT_SECONDS, allow_redirects=False, stream=True) as answer:
                status, pause_asked = answer.status_code, answer.headers.get("Retry-After", "")
                if status not in _PASSING:
                    data = answer.raw.read(_MOST_BYTES + 1, decode_content=True)
        except (requests.RequestException, OSError):  # whose text has the parameters
            status = 0
        if data is not None:
            return status, _parse(data)
        attempt += 1
        pause = float(pause_asked) if pause_asked.isdecimal() else 0.1 * 2**attempt
        if attempt == _ATTEMPTS or pause > _MOST_WAIT_SECONDS:
            if status == 429:
                raise CatalogueBusyError(f"{who} was asked too often for {what}: retry later")
            raise CatalogueUnavailableError(f"{who} did not answer for {what}: check the network, then retry")
        time.sleep(pause)


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        return None
