"""The exact int8 scan: one query against every vector of a segment.

The kernel is NumKong's (the successor of SimSIMD), chosen by measurement in
`docs/decisions/0004-int8-kernel.md`: at 100,000 vectors it takes less than half the time of
the nearest other library, and it picks AVX2, AVX-512 or NEON code by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def dots(query: NDArray[np.int8], codes: NDArray[np.int8]) -> NDArray[np.float32]:
    """The dot products, float32 of shape (m,), of `query` (d,) with each row of `codes` (m, d).

    >>> import numpy as np
    >>> dots(np.ones(4, np.int8), np.arange(8, dtype=np.int8).reshape(2, 4)).tolist()
    [6.0, 22.0]
    """
    import numkong
    import numpy as np

    found = numkong.cdist(query[None, :], codes, "dot", out_dtype="float32")
    rows: NDArray[np.float32] = np.asarray(found, dtype=np.float32)
    return rows.reshape(-1)
