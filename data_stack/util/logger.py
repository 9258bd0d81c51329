"""The package's logger; the program that uses data_stack decides where it writes.

It has no handler, so that Python writes warnings on standard error where a program configures no logging.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("data_stack")
