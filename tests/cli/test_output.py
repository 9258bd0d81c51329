"""Tables and results, as text."""

from __future__ import annotations

import pytest

from data_stack.cli.output import print_result, whole_table
from data_stack.cli.settings import Settings
from data_stack.show.markup import as_text


def test_wide_characters_stay_in_their_column() -> None:
    table = whole_table(("name", "n"), [("数据集", "1"), ("digits", "2")], right=(1,))

    lines = as_text([table]).splitlines()

    assert lines == ["name    n", "------  -", "数据集  1", "digits  2"]


def test_a_table_has_all_of_its_rows() -> None:
    table = whole_table(("n",), [(str(number),) for number in range(1000)])

    assert len(as_text([table]).splitlines()) == 1002


def test_empty_blocks_of_a_result_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(Settings(), {}, None, "first", "", "last")

    assert capsys.readouterr().out.split() == ["first", "last"]
