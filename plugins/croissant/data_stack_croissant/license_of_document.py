"""The license that a document states, as an SPDX expression."""

from __future__ import annotations

import re
from typing import Any, Final

_LICENSE_OF_CREATIVE_COMMONS: Final = re.compile(
    r"creativecommons\.org/licenses/(?P<conditions>[a-z-]+)/(?P<version>[\d.]+)"
)
#: The public domain: CC0 1.0.
_CC0: Final = re.compile(r"creativecommons\.org/publicdomain/zero/(?P<version>[\d.]+)")
_LICENSE_OF_SPDX: Final = re.compile(
    r"https?://(?:www\.)?spdx\.org/licenses/(?P<identifier>.+?)(?:\.html|\.json)?"
)


def spdx_expression_of(licenses: Any) -> str | None:
    """Return the licenses of a document as one SPDX expression.

    Args:
        licenses: mlcroissant's: texts, or objects with a URL or a name; None without a license.

    Returns:
        The licenses with ``AND`` between them; None without a license. URLs of SPDX and of Creative
        Commons become identifiers. Other texts stay as they are.
    """
    expressions = []
    for license_ in licenses or ():
        text = license_
        if not isinstance(license_, str):
            text = license_.url or license_.name
        expressions.append(_spdx_identifier_of(str(text)))
    return " AND ".join(expressions) or None


def _spdx_identifier_of(text: str) -> str:
    """Return the identifier of a license that is a URL; any other text as it is."""
    match = _LICENSE_OF_CREATIVE_COMMONS.search(text)
    if match is not None:
        return f"CC-{match['conditions'].upper()}-{match['version']}"
    match = _CC0.search(text)
    if match is not None:
        return f"CC0-{match['version']}"
    match = _LICENSE_OF_SPDX.fullmatch(text)
    if match is not None:
        return match["identifier"]
    return text
