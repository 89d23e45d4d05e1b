"""What the items of the loan study share: records, markets, and how hard prices are to tell apart.

The paper's records are handed out on request only. The study runs on made-up ones that agree with
what is published, and on an openly available experiment where its file is there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.cases.loan import LoanPricing, LoanRecords, synthetic_loan_records
from zib.cases.loan.fit import default_cuts
from zib.experiments.record import Context, Setting, Table
from zib.logs import load_frame
from zib.logs.folder import CPRM_FILES, FOLDER_VARIABLE, KZ_FILE, data_files
from zib.report.numbers import number

LAMBDA = 1.0
LEVEL, POWER = 0.05, 0.8
KZ_LEVELS = (0.2, 0.4, 0.6, 0.8)


class Book(NamedTuple):
    """Records, where the classes of their prices are cut, and a short name."""

    name: str
    records: LoanRecords
    cuts: NDArray[np.float64]

    @property
    def title(self) -> str:
        """The records in a few words, for figures."""
        return self.records.source

    def market(self, seed: int) -> LoanPricing:
        """Return the market fitted to these records."""
        return LoanPricing.fit(self.records, lam=LAMBDA, cuts=self.cuts.tolist(), seed=seed)


def synthetic_book(seed: int) -> Book:
    """Return the made-up records, cut at the paper's quantiles."""
    records = synthetic_loan_records(seed=seed)
    return Book("synthetic", records, default_cuts(records))


def experiment_book() -> Book | None:
    """Return the records of the open experiment, cut into fifths, or None if its file is absent."""
    frame = _frame("karlan_zinman", (KZ_FILE,))
    if frame is None:
        return None
    records = LoanRecords.from_karlan_zinman(frame)
    return Book("Karlan–Zinman", records, np.quantile(records.price, KZ_LEVELS))


def lender_book() -> Book | None:
    """Return the paper's own records, cut at its quantiles, or None if their file is absent."""
    frame = _frame("cprm", CPRM_FILES)
    if frame is None:
        return None
    records = LoanRecords.from_cprm(frame)
    return Book("CPRM", records, default_cuts(records))


def _frame(name: str, files: Sequence[str]) -> Any:
    """Return the table of a data set in the user's folder of data, or None."""
    found = data_files(files)
    return load_frame(name, found[0]) if found else None


def books(context: Context) -> list[Book]:
    """Return all records that are there."""
    found = [synthetic_book(context.seed), lender_book(), experiment_book()]
    return [book for book in found if book is not None]


def record_notes(found: Sequence[Book]) -> list[str]:
    """Return what records were used, and how to add those that were not."""
    notes = [
        "The paper's records (208 085 auto-loan offers) are handed out on request only. The "
        "synthetic ones are made up: they agree with the published quantiles and range of the "
        "price, the number of offers and the names of the covariates; all other laws are our "
        "choice. What is found on them is about the method, not about that lender."
    ]
    names = {book.name for book in found}
    if "Karlan–Zinman" not in names:
        notes.append(
            "The records of Karlan and Zinman (2008; openICPSR 113240) were left out: put their "
            f"file at {KZ_FILE} in a folder and set {FOLDER_VARIABLE} to that folder. The paper's "
            f"own records, for those who have them, belong at {CPRM_FILES[0]} there."
        )
    return notes


def record_settings(found: Sequence[Book]) -> list[Setting]:
    """Return the settings that say which records were used."""
    settings = [
        Setting(
            "records",
            f"{book.records.source}: {book.records.n_records} offers, "
            f"{100 * book.records.accepted.mean():.1f} % accepted; covariates "
            f"{', '.join(book.records.names)}",
            "ours",
        )
        for book in found
    ]
    settings.append(
        Setting("scale of the covariates", "mean 0, standard deviation 1 over the records", "ours")
    )
    return settings


def rounds_to_tell_apart(gap: float, first: float, second: float) -> float:
    """Return the rounds, half for each of two classes, that tell their mean rewards apart.

    Two-sided test at level 5 % with power 80 %, from the gap of the means and the two variances.

    Examples
    --------
    >>> round(rounds_to_tell_apart(0.1, 1.0, 1.0))
    3140
    """
    from scipy.special import ndtri

    if gap == 0.0:
        return math.inf
    quantiles = float(ndtri(1 - LEVEL / 2) + ndtri(POWER))
    return 2.0 * quantiles**2 * (first + second) / gap**2


def class_table(book: Book, market: LoanPricing) -> Table:
    """Return what each price class means on average over customers."""
    found = market.summary()
    best = int(found.mean.argmax())
    rows = []
    for k, name in enumerate(market.classes):
        gap = float(found.mean[best] - found.mean[k])
        needed = rounds_to_tell_apart(gap, float(found.variance[best]), float(found.variance[k]))
        low, high = market.prices[k, [0, -1]]
        rows.append(
            (
                name,
                f"{low:.2f} to {high:.2f}",
                f"{found.price[k]:.2f}",
                f"{100 * found.acceptance[k]:.1f} %",
                f"{found.mean[k]:.4f}",
                f"{math.sqrt(found.variance[k]):.2f}",
                f"{100 * found.best[k]:.0f} %",
                "best" if k == best else number(needed),
            )
        )
    return Table(
        f"{book.title}: the price classes ({book.records.unit})",
        (
            "class",
            "prices",
            "mean price",
            "accepted",
            "mean reward",
            "standard deviation",
            "best for",
            "rounds to tell from the best",
        ),
        tuple(rows),
        "Averages over customers. Rounds: half for each of the two classes, two-sided test at "
        f"level {100 * LEVEL:g} % with power {100 * POWER:g} %.",
    )


def power_note(book: Book, market: LoanPricing, horizon: int) -> str:
    """Return how many rounds it takes to tell the best two classes apart, against the horizon."""
    found = market.summary()
    second, best = np.argsort(found.mean)[-2:]
    needed = rounds_to_tell_apart(
        float(found.mean[best] - found.mean[second]),
        float(found.variance[best]),
        float(found.variance[second]),
    )
    names = market.classes
    pay = f"{found.mean[best]:.4f} and {found.mean[second]:.4f}"
    return (
        f"{book.title}: the classes {names[best]!r} and {names[second]!r} pay {pay} on average. To "
        f"tell them apart (level {100 * LEVEL:g} %, power {100 * POWER:g} %) takes "
        f"{number(needed)} rounds spent on these two alone, {needed / horizon:.1f} times the "
        f"paper's T = {horizon}"
        + (
            ". Within that horizon their own rewards cannot tell which is better; a model that "
            "shares what it learns between all classes can, as far as its shape is right."
            if needed > horizon
            else "."
        )
    )
