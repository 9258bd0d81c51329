"""The old name of :func:`data_stack.io.web.ask_json`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from data_stack.io.web import json_api
from data_stack.io.web.json_api import JsonAnswer
from data_stack.util.program_lines import warn_deprecated


def ask_json(
    url: str,
    asked: str,
    shape: Any,
    *,
    params: Mapping[str, object] = MappingProxyType({}),
    own_headers: Mapping[str, str] = MappingProxyType({}),
) -> JsonAnswer:
    """Send a GET request for JSON; deprecated alias of :func:`data_stack.io.web.ask_json`.

    Args:
        url: as for the new function.
        asked: server and subject as one text, such as ``"OpenML for openml:61"``.
        shape: as for the new function.
        params: as for the new function.
        own_headers: as for the new function.

    Raises:
        CatalogueError: as for the new function.
    """
    warn_deprecated(
        "data_stack.io.web_api.ask_json()",
        instead="data_stack.io.web.ask_json(url, shape, server=…, subject=…)",
        since="0.3",
        removed_in="1.0",
    )
    server, _, subject = asked.partition(" for ")
    return json_api.ask_json(
        url, shape, server=server, subject=subject, params=params, own_headers=own_headers
    )
