"""RAND Health Insurance Experiment, as it comes with statsmodels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zib.logs.catalogue import DataSet, context_columns, known_context
from zib.logs.log import LoggedData
from zib.logs.tables import LogError

__all__ = ["load_randhie"]

CONTEXT = ("physlm", "disea", "hlthg", "hlthf", "hlthp")


def frame_randhie() -> Any:
    """Return the table of the RAND experiment from statsmodels as a pandas frame."""
    try:
        from statsmodels.datasets import randhie
    except ImportError:
        raise LogError(
            'the RAND data come with statsmodels, which is missing: pip install "zib[data]"'
        ) from None
    return randhie.load_pandas().data


ENTRY = DataSet(
    name="randhie",
    title="RAND Health Insurance Experiment",
    what=(
        "Families were given health insurance plans with different coinsurance. Each row is a "
        "person in a year, with the number of visits to a doctor."
    ),
    rows=20_190,
    rows_fixed=True,
    arms="coinsurance in per cent: 0, 25, 50, 95, 100 (from `lncoins`)",
    randomisation=(
        "families, not persons, were assigned to plans, and the probabilities are not in the "
        "data, so there are no propensities"
    ),
    outcome="visits to a doctor in the year (`mdvis`), a count",
    zeros="about 31 %",
    citation=(
        "RAND Health Insurance Experiment; data as in Cameron, A. C. and Trivedi, P. K. (2005). "
        "Microeconometrics: Methods and Applications. Cambridge University Press."
    ),
    licence="public domain",
    source="the package statsmodels",
    get='No file is needed: pip install "zib[data]".',
    file_name=None,
    sha256=None,
    columns=("mdvis", "lncoins", "idp", "lpi", "fmde", *CONTEXT),
    frame=frame_randhie,
)


def load_randhie(*, context: Sequence[str] = CONTEXT) -> LoggedData:
    """Return the RAND Health Insurance Experiment as a log.

    Parameters
    ----------
    context
        Columns of the context: by default physical limitation, chronic diseases and self-rated
        health (good, fair, poor; excellent is the rest).

    Notes
    -----
    The arms are the coinsurance rates 0, 25, 50, 95 and 100 per cent, rebuilt from ``lncoins``.
    The individual deductible plan (``idp``) is coded with 0 or 100. The reward is the number of
    visits, a count: a skewed outcome with many zeros, and not a gain; a policy that maximises it
    looks for the plan that is used most. The columns ``idp``, ``lpi`` and ``fmde`` belong to the
    plan and are no context. People occur once per year, without a name, so rows are not
    independent.
    """
    frame = frame_randhie()
    columns = context_columns(context)
    known_context(ENTRY, frame, columns, drop_missing=False)
    rate = np.expm1(frame["lncoins"].to_numpy(dtype=np.float64))
    percent = np.rint(rate).astype(np.int64)
    if np.abs(rate - percent).max() > 1e-3:
        raise LogError("column `lncoins` must be ln(1 + coinsurance) with whole per cents")
    return LoggedData.from_frame(
        frame.assign(coinsurance=percent), arm="coinsurance", reward="mdvis", context=columns
    )
