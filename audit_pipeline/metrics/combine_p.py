"""One p-value from several that are not independent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from audit_pipeline.errors import DataError


def combine_p_values(p_values: npt.ArrayLike) -> float:
    """Twice the median of the p-values [k], at most 1.

    A p-value whatever their dependence (Rüger 1978: k/j times the j-th smallest of k p-values is one; Meinshausen,
    Meier and Bühlmann 2009 use it for random splits). The price is a factor of two. Raises DataError where there is no
    p-value, or one is not between 0 and 1.
    """
    values = np.asarray(p_values, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not ((values >= 0) & (values <= 1)).all():
        raise DataError("p-values to combine must be at least one, each between 0 and 1")
    return float(min(1.0, 2.0 * np.median(values)))
