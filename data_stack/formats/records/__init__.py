"""Record datasets: columns of records with random access, in Granular's files.

::

    import numpy as np

    from data_stack.formats import records

    spec = {"image": records.ColumnType("array", "uint8", (28, 28)), "label": "i64"}
    with records.RecordWriter("train", spec) as writer:
        for image, label in zip(images, labels):
            writer.append({"image": image, "label": label})

    # As any iterator of data_stack, a reader can be stacked on, split and loaded.
    with records.open("train") as reader:
        reader[17]["image"]                     # one sample, a dict
        reader.read_batch([3, 1, 4])["label"]   # columns, stacked

A folder, a storage connector, or the resources of a dataset can hold one.
"""

from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(
    __name__, __file__, earlier_names={"Column": "ColumnType"}
)
