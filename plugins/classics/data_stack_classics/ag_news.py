"""AG News: short news in four fields."""

from __future__ import annotations

from data_stack import DatasetCard, PreparedResources, ResourceDefinition, Resources
from data_stack.formats import read_csv
from data_stack_classics.records import RecordsFactory

_URL = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv"

_FIELDS = {"label": "int64", "title": "str", "text": "str"}

_CITATION = """@inproceedings{ag-news,
  author = {Xiang Zhang and Junbo Zhao and Yann LeCun},
  title = {Character-level Convolutional Networks for Text Classification},
  booktitle = {Advances in Neural Information Processing Systems 28},
  year = {2015}
}"""


class AGNewsFactory(RecordsFactory):
    """News of four fields; for research and other non-commercial use.

    Samples are ``{"text": str, "label": int}``. The text is the title, a space, and the first
    sentences, as published: with backslashes in place of line breaks. The label is a position in
    ``class_names``.
    """

    card = DatasetCard(
        name="ag-news",
        version="1.0.0",
        license="LicenseRef-non-commercial",
        homepage="http://groups.di.unipi.it/~gulli/AG_corpus_of_news_articles.html",
        citation=_CITATION,
    )
    # The digests are those of Hugging Face datasets 1.x.
    sources = (
        ResourceDefinition(
            "raw/train.csv",
            f"{_URL}/train.csv",
            sha256="76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e",
            size=29_470_338,
        ),
        ResourceDefinition(
            "raw/test.csv",
            f"{_URL}/test.csv",
            sha256="521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
            size=1_857_427,
        ),
    )
    splits = ("train", "test")
    n_samples = {"train": 120_000, "test": 7_600}
    class_names = ("World", "Sports", "Business", "Sci/Tech")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Store each line as a record."""
        for split in prepared.steps(self.splits):
            name = f"raw/{split}.csv"
            with raw[name] as resource:
                table = read_csv(resource, _FIELDS, header=False)
            # The files count classes from 1.
            labels = table["label"] - 1
            texts = table["title"] + " " + table["text"]
            self.check_count(name, split, len(labels))
            self.check_labels(name, labels)
            with self.open_writer(prepared, split) as writer:
                writer.extend({"label": labels, "text": texts})
