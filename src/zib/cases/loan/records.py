"""Records of loan offers: price, covariates, accepted or not, and what an accepted one brought.

The records behind the paper's loan study are handed out on request only. `LoanRecords.from_cprm`
reads them from a table with the columns of that file, `LoanRecords.from_karlan_zinman` reads an
openly available field experiment, and `zib.env.synthetic_loan_records` makes offers up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from zib.core.validate import InvalidParameterError, inside, integer, real, vector
from zib.env.registry import Array, checked_matrix, read_only
from zib.logs.public.cprm import loan_price

if TYPE_CHECKING:
    import pandas as pd

CPRM_COLUMNS = ("mp", "Term", "Amount_Approved", "Primary_FICO", "Competition_rate", "apply")
KZ_COLUMNS = (
    "risk", "wave", "offer4", "normrate_less", "tookup", "grossinterest",
    "appscore", "itcscore", "itczero", "lastamount", "dormancy",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class LoanRecords:
    """Offers of loans, one row each; arrays cannot be written to.

    Parameters
    ----------
    price
        What the lender earns if the offer is taken, in the unit of `unit`.
    accepted
        Whether it was taken; some were and some were not.
    covariates
        (n, m): what was known about each offer beforehand, in their own units. No column is
        constant.
    names
        Names of the m columns.
    profit
        What each accepted offer brought, where that is known (numbers of the others are ignored);
        None where the price is all there is.
    source
        Where the records come from, in a few words; figures say it.
    unit
        Unit of the price.
    dropped
        How many rows of the source were left out as outliers or incomplete.

    Notes
    -----
    Models use `standardised`, covariates with mean 0 and standard deviation 1 over the records,
    because one penalty is put on all coefficients; `centre` and `scale` lead back.
    """

    price: Array
    accepted: NDArray[np.bool_]
    covariates: Array
    names: tuple[str, ...]
    profit: Array | None = None
    source: str = "records"
    unit: str = "$1000"
    dropped: int = 0

    def __post_init__(self) -> None:
        price = np.array(vector("price", self.price))
        n = price.size
        accepted = np.array(self.accepted)
        if accepted.shape != (n,) or not np.isin(accepted, (0, 1)).all():
            raise InvalidParameterError(
                f"`accepted` must be {n} truth values, one per price; got shape {accepted.shape}"
            )
        accepted = accepted.astype(np.bool_)
        if accepted.all() or not accepted.any():
            raise InvalidParameterError(
                f"`accepted` must hold both outcomes; got {int(accepted.sum())} of {n} accepted"
            )
        covariates = checked_matrix("covariates", self.covariates)
        names = tuple(map(str, self.names))
        if covariates.shape != (n, len(names)):
            raise InvalidParameterError(
                f"`covariates` must have shape ({n}, {len(names)}), one row per price and one "
                f"column per name; got {covariates.shape}"
            )
        for name, spread in zip(names, np.ptp(covariates, axis=0)):
            if spread == 0.0:
                raise InvalidParameterError(f"`covariates` must vary; got one value of {name!r}")
        if np.ptp(price) == 0.0:
            raise InvalidParameterError(f"`price` must vary; got {float(price[0])!r} only")
        profit = self._checked_profit(accepted)
        for field, value in (
            ("price", read_only(price)),
            ("accepted", read_only(accepted)),  # type: ignore[arg-type]
            ("covariates", read_only(covariates)),
            ("names", names),
            ("profit", profit),
            ("dropped", integer("dropped", self.dropped, 0)),
        ):
            object.__setattr__(self, field, value)

    def _checked_profit(self, accepted: NDArray[np.bool_]) -> Array | None:
        if self.profit is None:
            return None
        profit = np.array(self.profit, dtype=np.float64)
        if profit.shape != accepted.shape:
            raise InvalidParameterError(
                f"`profit` must have one number per price ({accepted.size}); "
                f"got shape {profit.shape}"
            )
        profit[~accepted] = np.nan
        inside("profit", profit[accepted])
        return read_only(profit)

    @property
    def n_records(self) -> int:
        """The number of offers."""
        return int(self.price.size)

    @property
    def n_covariates(self) -> int:
        """The number of covariates."""
        return len(self.names)

    @cached_property
    def centre(self) -> Array:
        """Mean of each covariate."""
        return read_only(self.covariates.mean(axis=0))

    @cached_property
    def scale(self) -> Array:
        """Standard deviation of each covariate."""
        return read_only(self.covariates.std(axis=0))

    @cached_property
    def standardised(self) -> Array:
        """Covariates with mean 0 and standard deviation 1."""
        return read_only((self.covariates - self.centre) / self.scale)

    def subset(self, rows: Sequence[int] | NDArray[Any]) -> LoanRecords:
        """Return some of the records, by row number or by truth value."""
        keep = np.asarray(rows)
        return LoanRecords(
            self.price[keep],
            self.accepted[keep],
            self.covariates[keep],
            self.names,
            None if self.profit is None else self.profit[keep],
            self.source,
            self.unit,
            self.dropped,
        )

    def __repr__(self) -> str:
        return (
            f"<LoanRecords of {self.n_records} offers, {100 * self.accepted.mean():.1f} % "
            f"accepted, {self.n_covariates} covariates: {self.source}>"
        )

    @classmethod
    def from_cprm(
        cls,
        frame: pd.DataFrame,
        *,
        prime: str = "onemonth",
        per_month: float = 1 / 1200,
        largest_price: float = 30.0,
    ) -> LoanRecords:
        """Return the records of the online auto lender in the columns of their own file.

        Parameters
        ----------
        frame
            A table with the columns ``mp`` (monthly payment), ``Term`` (months),
            ``Amount_Approved``, ``Primary_FICO``, ``Competition_rate``, ``apply`` (1 where the
            offer was accepted) and the one named by `prime`.
        prime
            Column of the prime rate.
        per_month
            What turns that column into a rate per month; 1/1200 for percent a year.
        largest_price
            Offers dearer than this ($1000) are outliers.

        Notes
        -----
        The price is the present value of the payments less the amount,
        mp·Σ_{t ≤ Term}(1 + prime)^−t − Amount_Approved, in $1000. Rows are left out where a number
        is missing, where amount, payment or term is not positive, where the FICO score is outside
        300 to 850, or where the price is not between 0 and `largest_price`. The published prices,
        after the paper's own removal of outliers, run from 0.0004 to 28.5725; the paper does not
        say its rule.
        """
        columns = _columns(frame, (*CPRM_COLUMNS, prime))
        largest = real("largest_price", largest_price, 0.0, closed="neither")
        payment, term, amount = (columns[c] for c in ("mp", "Term", "Amount_Approved"))
        rate = columns[prime] * real("per_month", per_month, 0.0, closed="neither")
        with np.errstate(all="ignore"):  # what is missing or absurd is left out below
            price = loan_price(payment, term, rate, amount)
            fico = columns["Primary_FICO"]
            keep = np.isfinite(np.stack([price, *columns.values()])).all(axis=0)
            keep &= (amount > 0) & (payment > 0) & (term > 0) & (rate > -1.0)
            keep &= (fico >= 300) & (fico <= 850) & (price > 0) & (price <= largest)
        if keep.sum() < len(keep) / 2:
            raise InvalidParameterError(
                f"`frame` must hold offers priced between 0 and {largest:g}; only "
                f"{int(keep.sum())} of {len(keep)} rows are: is `per_month` right for {prime!r}?"
            )
        used = ("Primary_FICO", "Amount_Approved", prime, "Competition_rate", "Term")
        return cls(
            price[keep],
            _zero_one("apply", columns["apply"][keep]),
            np.stack([columns[c][keep] for c in used], axis=1),
            ("FICO", "amount", "prime rate", "competitor's rate", "term"),
            source="CPRM auto loans",
            dropped=int((~keep).sum()),
        )

    @classmethod
    def from_karlan_zinman(cls, frame: pd.DataFrame) -> LoanRecords:
        """Return randomised offers of a South African lender (Karlan and Zinman 2008).

        Parameters
        ----------
        frame
            The published table. Clients of high risk with an offer at or below the standard rate
            are used (``risk`` "HIGH", ``normrate_less`` 1).

        Notes
        -----
        Price: the offered rate ``offer4`` in percent a month. Profit: ``grossinterest`` of those
        who took a loan, in 100 rand. Covariates: the lender's credit score ``appscore``; the
        external score ``itcscore``, its zeros (no score) replaced by the mean of the others, and
        ``itczero``, which marks them; the logarithm of the last loan's amount; months since the
        last loan; and two dummies of the mailing wave, given which the offers are random. All are
        complete for these clients.
        """
        missing = [c for c in KZ_COLUMNS if c not in frame.columns]
        if missing:
            raise InvalidParameterError(_lacks(missing[0]))
        rows = frame[(frame["risk"].astype(str) == "HIGH") & (frame["normrate_less"] == 1)]
        columns = _columns(rows, [c for c in KZ_COLUMNS if c != "risk"])
        known = [values for name, values in columns.items() if name != "grossinterest"]
        keep = np.isfinite(np.stack(known)).all(axis=0) & (columns["lastamount"] > 0)
        columns = {name: values[keep] for name, values in columns.items()}
        scored = columns["itczero"] == 0
        score = columns["itcscore"]
        usual = float(score[scored].mean()) if scored.any() else 0.0
        taken = _zero_one("tookup", columns["tookup"])
        covariates = {
            "appscore": columns["appscore"],
            "itcscore": np.where(scored, score, usual),
            "itczero": columns["itczero"],
            "log lastamount": np.log(columns["lastamount"]),
            "dormancy": columns["dormancy"],
            "wave 2": (columns["wave"] == 2).astype(np.float64),
            "wave 3": (columns["wave"] == 3).astype(np.float64),
        }
        return cls(
            columns["offer4"],
            taken,
            np.stack(list(covariates.values()), axis=1),
            tuple(covariates),
            profit=columns["grossinterest"] / 100.0,
            source="Karlan–Zinman experiment, high risk",
            unit="% a month",
            dropped=int((~keep).sum()),
        )


def _lacks(column: str) -> str:
    return f"`frame` must have a column {column!r}; it has none"


def _columns(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, Array]:
    """Return columns as numbers, NaN where one is missing, or raise for what is not a number."""
    out = {}
    for name in names:
        if name not in frame.columns:
            raise InvalidParameterError(_lacks(name))
        try:
            out[name] = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            raise InvalidParameterError(
                f"column {name!r} of `frame` must hold numbers; got {frame[name].dtype}"
            ) from None
    return out


def _zero_one(name: str, values: Array) -> NDArray[np.bool_]:
    wrong = ~np.isin(values, (0.0, 1.0))
    if wrong.any():
        raise InvalidParameterError(
            f"column {name!r} of `frame` must hold 0 and 1; got {float(values[wrong][0])!r}"
        )
    return np.asarray(values == 1.0)
