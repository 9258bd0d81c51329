"""``python -m data_stack.cli``, if the command is not on the path."""

from __future__ import annotations

import sys

from data_stack.cli.main import main

sys.exit(main())
