"""Reports of datasets: counts, ranges, names, and text of every width."""

from __future__ import annotations

from data_stack.reproduce import DatasetReport
from data_stack.show.markup import size_text


def test_statistics_and_duplicates_are_part_of_the_report_where_asked_for() -> None:
    report = DatasetReport.of("iris", storage="memory://", statistics=True, duplicates=True)

    assert report.splits["all"].columns[0].statistics is not None
    assert report.to_dict()["duplicates"]["within"][0]["n_repeats"] == 1
    assert all("Duplicates" in each for each in (str(report), report.to_html()))


def test_sizes_are_told_in_words() -> None:
    sizes = [None, 0, 999, 1000, 57523, 999_960, 2_500_000_000, 10**15]

    texts = [size_text(size) for size in sizes]

    assert texts == ["-", "0 B", "999 B", "1.0 kB", "57.5 kB", "1.0 MB", "2.5 GB", "1000.0 TB"]
