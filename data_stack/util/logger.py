"""The package's logger; the program that uses data_stack decides where it writes.

It has no handler, so Python writes warnings to standard error unless the program configures logging.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("data_stack")
