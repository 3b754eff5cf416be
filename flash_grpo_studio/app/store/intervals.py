"""Intervals that say how far a mean or a share can be trusted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Z95 = 1.959963984540054
_T95 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""Student's t at 97.5 % for 1 to 10 degrees of freedom; beyond them its expansion is exact to four digits."""


def student_t(freedom: int) -> float:
    """Student's t at 97.5 %, by the expansion around the normal quantile (Abramowitz and Stegun 26.7.5)."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    z = Z95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def mean_interval(values: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float] | None:
    """95 % interval of the mean of values [N]; None for fewer than two."""
    if len(values) < 2:
        return None
    mean = float(values.mean())
    reach = student_t(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean - reach, mean + reach


def wilson(hits: int, count: int) -> tuple[float, float] | None:
    """Wilson's 95 % interval of a share; None where nothing was counted."""
    if not count:
        return None
    share, z2 = hits / count, Z95**2
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    reach = Z95 / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    return max(0.0, centre - reach), min(1.0, centre + reach)
