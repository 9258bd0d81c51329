"""Encoders of columns, fitted on one split and the same in every process.

::

    from data_stack.dataset.encoders import CategoricalEncoder, ContinuousEncoder

    encoders = {"age": ContinuousEncoder(), "country": CategoricalEncoder(unknown="index")}
    train = train.encode(encoders, fit_on=train)
    test = test.encode(encoders)                    # shares what was learned
"""

from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(
    __name__, __file__, earlier_names={"Column": "ColumnArray"}
)
