"""Online auto loans of the Center for Pricing and Revenue Management, Columbia Business School."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.core.validate import choice
from zib.logs.catalogue import DataSet, Finding, read
from zib.logs.log import LoggedData
from zib.logs.tables import LogError

__all__ = ["frame_cprm", "load_cprm"]

Array = NDArray[np.float64]

CUTS = (1.5400, 3.6390, 5.4164, 8.5466)
CLASSES = ("low", "medium", "high", "very high", "luxury")
SHARES = (0.25, 0.5, 0.165, 0.0725, 0.0125)  # of the rows in the classes, from the quantiles cut at
CONTEXT = ("Primary_FICO", "Amount_Approved", "onemonth", "Competition_rate", "Term")
PRIME = {  # divisors that give a fraction per month
    "percent per year": 1200.0,
    "fraction per year": 12.0,
    "percent per month": 100.0,
    "fraction per month": 1.0,
}


def _price_classes(frame: Any) -> Finding:
    """Compare the shares of the price classes with those of the article."""
    try:
        priced = frame_cprm(frame)
    except LogError as error:
        return Finding("prices", False, str(error))
    shares = priced["price_class"].value_counts(normalize=True)
    here = ", ".join(f"{100 * shares.get(label, 0.0):.4g}" for label in CLASSES)
    there = ", ".join(f"{100 * share:.4g}" for share in SHARES)
    return Finding(
        "prices", None, f"the five classes hold {here} % of the rows; in the article {there} %"
    )


ENTRY = DataSet(
    name="cprm",
    title="CPRM auto loans",
    what=(
        "All applications to an online lender for car loans in the United States that were "
        "approved from July 2002 to November 2004: the offered terms, the applicant, and whether "
        "the offer was accepted."
    ),
    rows=208_085,
    rows_fixed=False,
    arms="five price classes: low, medium, high, very high, luxury",
    randomisation="none: the lender chose by its rules, so there are no propensities",
    outcome="price in 1000 dollars if the offer was accepted (`apply` = 1), else 0",
    zeros="most rows; about 78 % of the offers were declined",
    citation=(
        "Center for Pricing and Revenue Management, Columbia Business School. Online auto lending "
        "data set. First studied in Phillips, R., Şimşek, A. S. and van Ryzin, G. (2015). The "
        "effectiveness of field price discretion: empirical evidence from auto lending. "
        "Management Science 61(8), 1741–1759."
    ),
    licence="handed out on request, on the terms of the center",
    source="Columbia Business School, CPRM",
    get=(
        "Ask the Center for Pricing and Revenue Management for the online auto lending data "
        "(business.columbia.edu/cprm) and save the table as CSV. Copies differ in format, so the "
        "columns are checked and not a checksum."
    ),
    file_name="the table of loan offers (CSV, Stata or Parquet)",
    sha256=None,
    columns=("mp", "apply", *CONTEXT),
    look=_price_classes,
)


def monthly_prime(onemonth: ArrayLike, unit: str | None = None) -> Array:
    """Return the prime rate as a fraction per month.

    Parameters
    ----------
    onemonth
        The column ``onemonth`` of the data, the one-month money market rate of the day.
    unit
        ``"percent per year"``, ``"fraction per year"``, ``"percent per month"`` or
        ``"fraction per month"``. None finds it out: in the months of the data the rate lay between
        1 and 2.3 per cent per year, and the four units put that into ranges that do not meet.

    Examples
    --------
    >>> monthly_prime([1.2, 1.8]).tolist()
    [0.001, 0.0015]
    """
    values = np.asarray(onemonth, dtype=np.float64)
    if unit is None:
        middle = float(np.median(values))
        fitting = [name for name, by in PRIME.items() if 0.8 <= middle / by * 1200 <= 3.0]
        if not fitting:
            raise LogError(
                "column `onemonth` must hold rates of 1 to 2.3 per cent per year in some unit; "
                f"its median is {middle:g} (say the unit with `prime_unit`)"
            )
        unit = fitting[0]
    choice("prime_unit", unit, tuple(PRIME))
    return np.asarray(values / PRIME[unit], dtype=np.float64)


def loan_price(payment: ArrayLike, term: ArrayLike, prime: ArrayLike, amount: ArrayLike) -> Array:
    r"""Return the price of loans in 1000 dollars.

    Notes
    -----
    The present value of the monthly payments less the amount lent,
    :math:`payment \sum_{t=1}^{term} (1 + prime)^{-t} - amount`, with `prime` per month.

    Examples
    --------
    >>> loan_price([500.0], [2], [0.0], [900.0]).tolist()
    [0.1]
    """
    monthly, months = np.asarray(payment, dtype=np.float64), np.asarray(term, dtype=np.float64)
    rate, lent = np.asarray(prime, dtype=np.float64), np.asarray(amount, dtype=np.float64)
    safe = np.where(rate == 0.0, 1.0, rate)
    factor = np.where(rate == 0.0, months, -np.expm1(-months * np.log1p(safe)) / safe)
    return np.asarray((monthly * factor - lent) / 1000.0, dtype=np.float64)


def price_class(price: ArrayLike) -> NDArray[np.int64]:
    """Return the number of the price class (0 low, …, 4 luxury); a class holds its upper edge.

    Examples
    --------
    >>> price_class([1.54, 1.55, 9.0]).tolist()
    [0, 1, 4]
    """
    return np.searchsorted(CUTS, np.asarray(price, dtype=np.float64), side="left").astype(np.int64)


def frame_cprm(path: Any, *, prime_unit: str | None = None, verify: bool = True) -> Any:
    """Return the CPRM table as a pandas frame with three more columns.

    Parameters
    ----------
    path
        The table as CSV, Stata or Parquet file, or a pandas frame.
    prime_unit
        The unit of ``onemonth``, see `monthly_prime`.
    verify
        There is no checksum; the columns are always checked.

    Notes
    -----
    Added are ``prime`` (per month), ``price`` in 1000 dollars and ``price_class``. The column
    ``onemonth`` is taken as the prime rate. Rows of the file are neither dropped nor changed.
    """
    frame = read(ENTRY, path, verify=verify)
    for column in ENTRY.columns:
        try:
            values = frame[column].to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            raise LogError(f"column `{column}` must hold numbers") from None
        bad = ~np.isfinite(values)
        if bad.any():
            raise LogError(
                f"column `{column}` must hold a number in every row; row {int(np.argmax(bad)) + 1} "
                f"is missing ({int(bad.sum())} are; pass a frame without those rows)"
            )
    prime = monthly_prime(frame["onemonth"], prime_unit)
    price = loan_price(frame["mp"], frame["Term"], prime, frame["Amount_Approved"])
    labels = np.array(CLASSES, dtype=object)[price_class(price)]
    return frame.assign(prime=prime, price=price, price_class=labels)


def load_cprm(path: Any, *, prime_unit: str | None = None, verify: bool = True) -> LoggedData:
    """Return the CPRM auto loans as a log of price classes.

    Parameters
    ----------
    path, prime_unit, verify
        As for `frame_cprm`.

    Notes
    -----
    The arms are five classes of the price, cut at 1.5400, 3.6390, 5.4164 and 8.5466 thousand
    dollars. The reward is the price of an accepted offer and 0 otherwise. The context is credit
    score, amount, prime rate (``onemonth`` as it stands in the file), rate of the competitor and
    term. Offers were not random, so the log has no propensities. `unit` is the row of the file,
    counted from 0.
    """
    frame = frame_cprm(path, prime_unit=prime_unit, verify=verify)
    accepted = frame["apply"].to_numpy(dtype=np.float64)
    odd = ~np.isin(accepted, (0.0, 1.0))
    if odd.any():
        at = int(np.argmax(odd))
        raise LogError(f"column `apply` must hold 0 or 1; row {at + 1} holds {accepted[at]:g}")
    reward = np.where(accepted == 1.0, frame["price"].to_numpy(), 0.0)
    frame = frame.assign(reward=reward, unit=np.arange(len(frame)))
    return LoggedData.from_frame(
        frame, arm="price_class", reward="reward", context=CONTEXT, unit="unit", arms=CLASSES
    )
