"""``-O KEY=VALUE`` passes options to a dataset."""

from __future__ import annotations

import pytest
from command_runs import Install, Run

REPEATED = """
    from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator

    class Factory(DatasetFactory):
        card = DatasetCard(name="repeated", version="1")
        splits = ("all",)

        def open(self, split, prepared, *, times=1, word=""):
            return SequenceDatasetIterator([[word] * times, [word] * times])
"""


def test_options_of_a_dataset_arrive_as_json_or_text(command: Run, install: Install) -> None:
    install("repeated", REPEATED)

    outcome = command(
        "report", "repeated", "-O", "times=3", "-O", "word=a=b", "--json", "--statistics"
    )

    report = outcome.json["splits"]["all"]
    assert report["target_dist"] == {"a=b": 3}
    assert report["columns"][0]["statistics"]["n_distinct"] == 1


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["report", "digits", "-O", "split=train"], "use --split NAME"),
        (["show", "digits", "-O", "storage=x"], "use --storage"),
        (["head", "digits", "-O", "progress=true"], "bars are drawn"),
        (["convert", "digits:train", "OUT", "-O", "lock=x"], "DATA_STACK_LOCK"),
        (["croissant", "digits", "-O", "name=x"], "the name is the first argument"),
    ],
)
def test_an_option_that_is_a_parameter_is_refused_by_name(
    command: Run, arguments: list[str], advice: str
) -> None:
    outcome = command(*arguments)

    assert outcome.code == 2
    assert "is no option of a dataset" in outcome.err
    assert advice in outcome.err
    assert "Traceback" not in outcome.err
