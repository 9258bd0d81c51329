"""The logger of data_stack.

It has no handler: the program decides where it writes. Unless the program configures logging,
Python writes warnings to standard error.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("data_stack")
