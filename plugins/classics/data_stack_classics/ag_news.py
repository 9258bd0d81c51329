"""AG News: short news in four fields."""

from __future__ import annotations

from data_stack import PreparedResources, Resources
from data_stack.formats import read_csv
from data_stack_classics.folders import RecordsFactory


class AGNewsFactory(RecordsFactory, dataset="ag-news"):
    """News of four fields; for research and other non-commercial use.

    Samples are ``{"text": str, "label": int}``: title and first sentences with a space between, as published, with backslashes in
    place of line breaks; and the position in ``class_names``.
    """

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Store each line as a record."""
        for split in prepared.steps(self.splits):
            name = f"raw/{split}.csv"
            with raw[name] as resource:
                table = read_csv(
                    resource, {"label": "int64", "title": str, "text": str}, header=False
                )
            self.check_count(name, split, len(table["label"]))
            self.check_labels(name, table["label"] - 1)
            with self.open_writer(prepared, split) as writer:
                writer.extend(
                    {"label": table["label"] - 1, "text": table["title"] + " " + table["text"]}
                )
