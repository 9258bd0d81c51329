"""Adult: who earned more than 50,000 dollars, by the census of 1994."""

from __future__ import annotations

from data_stack import DatasetCard, IteratorMeta, ResourceDefinition
from data_stack_classics.tables import TableFactory

_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"

_CITATION = """@misc{adult,
  author = {Barry Becker and Ronny Kohavi},
  title = {Adult},
  howpublished = {UCI Machine Learning Repository},
  year = {1996},
  doi = {10.24432/C5XW20}
}"""


class AdultFactory(TableFactory):
    """Adults of the census of 1994, to tell who earned more than 50,000 dollars a year.

    Samples are dicts of 15 columns, each an int or a str. A str is empty where the answer is
    unknown. ``income`` is a position in ``class_names``. ``fnlwgt`` is the number of people for
    whom a row stands.
    """

    card = DatasetCard(
        name="adult",
        version="1.0.0",
        license="CC-BY-4.0",
        homepage="https://archive.ics.uci.edu/dataset/2/adult",
        citation=_CITATION,
    )
    # The digests are those of GoMLX, examples/adult.
    sources = (
        ResourceDefinition(
            "raw/train.csv",
            f"{_URL}/adult.data",
            sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        ),
        ResourceDefinition(
            "raw/test.csv",
            f"{_URL}/adult.test",
            sha256="a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        ),
    )
    splits = ("train", "test")
    n_samples = {"train": 32_561, "test": 16_281}
    iterator_meta = IteratorMeta("age", "income", "income")
    has_header = False
    skip_lines = {"test": 1}  # the line "|1x3 Cross validator"
    class_suffix = "."  # in the test file: ">50K."
    class_names = ("<=50K", ">50K")
    fields = {
        "age": "int64",
        "workclass": "str",
        "fnlwgt": "int64",
        "education": "str",
        "education-num": "int64",
        "marital-status": "str",
        "occupation": "str",
        "relationship": "str",
        "race": "str",
        "sex": "str",
        "capital-gain": "int64",
        "capital-loss": "int64",
        "hours-per-week": "int64",
        "native-country": "str",
        "income": "str",
    }
