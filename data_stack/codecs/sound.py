"""What codecs of sound share: the value, which is samples and their rate."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, check_range
from data_stack.util.request_limit import check_request

__all__ = ["SoundCodec"]

_MAX_RATE = 2**31 - 1


@dataclass(frozen=True, kw_only=True, repr=False)
class SoundCodec(Codec):
    """Sound as ``(samples, rate)``: an array of shape ``(n,)`` or ``(n, channels)``, and samples a second as an int.

    With a ``rate`` of the codec, values are the arrays alone, which stack to batches; a file of another rate is refused.
    One channel comes back as shape ``(n,)``. The bytes of such a file may be given as well; they are stored as they are.
    """

    rate: int | None = None
    max_bytes: int = 1 << 30

    _dtypes: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        if self.rate is not None:
            check_range("rate", self.rate, 1, _MAX_RATE)
        check_range("max_bytes", self.max_bytes, 1)

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            record = bytes(value)
            self.decode(record)
            return record
        samples, rate = self._samples(value)
        return self._encode(samples, rate)

    def decode(self, record: bytes) -> Any:
        samples, rate = self._decode(record)
        if self.rate is None:
            return samples, rate
        if rate != self.rate:
            raise ValueError(f"sound of {rate} samples a second, where the codec has rate={self.rate}")
        return samples

    @abstractmethod
    def _encode(self, samples: npt.NDArray[Any], rate: int) -> bytes:
        """The record of samples, shape ``(n, channels)``."""

    @abstractmethod
    def _decode(self, record: bytes) -> tuple[npt.NDArray[Any], int]:
        """Samples, shape ``(n,)`` or ``(n, channels)``, and their rate."""

    def _samples(self, value: Any) -> tuple[npt.NDArray[Any], int]:
        rate: Any = self.rate
        if rate is None:
            if not isinstance(value, (tuple, list)) or len(value) != 2:
                raise TypeError(
                    f"a column of {self.name} stores (samples, rate), not {type(value).__name__}; for arrays alone give the "
                    f"codec their rate: codecs={{{self.name!r}: {type(self).__name__}(rate=16000)}}"
                )
            value, rate = value
            if isinstance(rate, (bool, np.bool_)) or not isinstance(rate, (int, np.integer)) or not 0 < rate <= _MAX_RATE:
                raise TypeError(f"the rate of sound is a number of samples a second, not {rate!r:.60}")
        elif isinstance(value, tuple):
            raise TypeError(f"a column of {self.name} whose codec has rate={rate} stores samples alone, without their rate")
        samples = np.asarray(value)
        if samples.dtype.newbyteorder("=").name not in self._dtypes or samples.ndim not in (1, 2) or samples.shape[1:] == (0,):
            raise TypeError(
                f"a column of {self.name} stores samples of {', '.join(self._dtypes)} and shape (n,) or (n, channels), not "
                f"{type(value).__name__} of dtype {samples.dtype}, shape {samples.shape}"
            )
        if samples.nbytes > self.max_bytes:
            raise ValueError(f"sound of {samples.nbytes} bytes has more than max_bytes={self.max_bytes}, and could not be read")
        return samples if samples.ndim == 2 else samples[:, None], int(rate)

    def _check_bytes(self, n_bytes: int) -> None:
        if n_bytes > self.max_bytes:
            raise ValueError(f"sound of more than max_bytes={self.max_bytes}; give its codec more if it is meant")
        check_request(n_bytes, f"sound of {n_bytes:,} bytes")
