"""``data-stack report`` reads all samples, and prints documents, where it is told to."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest


def test_statistics_tell_of_the_columns_of_each_split(command: Any) -> None:
    report = command("report", "iris", "--statistics", "--json").json

    columns = report["splits"]["all"]["columns"]
    features = columns[0]["statistics"]
    assert features["n_missing"] == 0
    assert (features["min"], features["max"]) == (pytest.approx(0.1), pytest.approx(7.9))
    assert columns[1]["statistics"]["n_distinct"] == 3


def test_documents_are_printed_in_markdown_and_html(command: Any) -> None:
    markdown = command("report", "digits", "--format", "markdown", "--duplicates").out
    html = command("report", "digits", "--split", "test", "--format", "html").out

    assert markdown.count("# Report on digits") == 2
    assert "# Duplicates" in markdown
    assert html.startswith('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>')
    ElementTree.fromstring(html.replace("<style scoped>", "<style>"))


def test_json_and_a_format_are_too_much_at_once(command: Any) -> None:
    outcome = command("report", "iris", "--json", "--format", "html")

    assert outcome.code == 2
    assert "--json and --format" in outcome.err
