"""The package's logger; the program that uses data_stack decides where it writes."""

from __future__ import annotations

import logging

logger = logging.getLogger("data_stack")
logger.addHandler(logging.NullHandler())
