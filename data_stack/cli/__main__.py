"""``python -m data_stack.cli``, where the command itself is not on the path."""

from __future__ import annotations

import sys

from data_stack.cli.main import main

sys.exit(main())
