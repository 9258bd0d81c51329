"""``data-stack report``."""

from __future__ import annotations

from typing import Any

import pytest


def test_statistics_tell_of_the_columns_of_each_split(command: Any) -> None:
    columns = command("report", "iris", "--statistics", "--json").json["splits"]["all"]["columns"]

    assert (columns[0]["statistics"]["min"], columns[0]["statistics"]["max"]) == (pytest.approx(0.1), pytest.approx(7.9))
    assert columns[1]["statistics"]["n_distinct"] == 3
