"""Karlan and Zinman (2008): randomised interest rates of a consumer lender."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core.validate import choice, vector
from zib.logs.catalogue import DataSet, context_columns, known_context, read
from zib.logs.log import LoggedData
from zib.logs.tables import LogError

__all__ = ["load_karlan_zinman"]

BINS = (0.0, 5.0, 6.5, 8.0, 9.5, 11.75)
CONTEXT = ("female", "edhi", "appscore", "itcscore", "lastamount", "dormancy", "rural")
RISKS = ("HIGH", "MEDIUM", "LOW")

ENTRY = DataSet(
    name="karlan_zinman",
    title="Karlan–Zinman 2008",
    what=(
        "A South African consumer lender mailed loan offers with randomised interest rates to "
        "former clients. Price, acceptance and profit of each offer are known: the open twin of "
        "a loan pricing study."
    ),
    rows=53_810,
    rows_fixed=True,
    arms="monthly interest rate in per cent (`offer4`), put into bins",
    randomisation=(
        "random within risk class (`risk`: LOW, MEDIUM, HIGH) and mailing wave (`wave`); pooled "
        "over classes the rates are confounded with risk"
    ),
    outcome="gross interest (`grossinterest`), 0 when the loan is not taken up",
    zeros="about 95 % in class HIGH, 93 % over all",
    citation=(
        "Karlan, D. and Zinman, J. (2008). Credit elasticities in less-developed economies: "
        "implications for microfinance. American Economic Review 98(3), 1040–1068."
    ),
    licence="CC BY 4.0",
    source="openICPSR 113240 V1",
    get=(
        "Open project 113240, version V1, at openICPSR (log in, accept the terms) and take "
        "kz_demandelasts_aer08.dta out of the archive."
    ),
    file_name="kz_demandelasts_aer08.dta",
    sha256="d26aef94acf5e0e95b3d3a07c8b7d917aad09b8ff224479563e4ffa616fd5d9c",
    columns=("offer4", "final4", "risk", "wave", "normrate_less", "tookup", "grossinterest"),
)


def load_karlan_zinman(
    path: Any,
    *,
    risk: str | None = "HIGH",
    bins: Sequence[float] | None = BINS,
    reward: str = "grossinterest",
    context: Sequence[str] | None = None,
    as_offered: bool = False,
    drop_missing: bool = False,
    verify: bool = True,
) -> LoggedData:
    """Return the loan offers of Karlan and Zinman (2008) as a log.

    Parameters
    ----------
    path
        The file ``kz_demandelasts_aer08.dta``, or a pandas frame read from it.
    risk
        Risk class of the clients: ``"HIGH"``, ``"MEDIUM"`` or ``"LOW"``; None for all.
    bins
        Edges of the rate bins, the arms; a bin (5, 6.5] holds its right edge. The default suits
        class HIGH. None takes fifths of the offered rates.
    reward
        Column with the reward: ``"grossinterest"``, or for example ``"loansize"`` or ``"tookup"``.
    context
        Columns known before the offer. By default sex, education, the two credit scores, size and
        age of the last loan, and rural; with all classes also the class.
    as_offered
        Keep only offers whose contract rate is the offered rate. A second, later randomisation
        lowered the rate of some loans after they had been taken up.
    drop_missing
        Drop rows that miss a value of `context` instead of refusing.
    verify
        Whether the file must have the known checksum.

    Notes
    -----
    Only offers at or below the standard rate of the class are used (``normrate_less == 1``), as in
    the article. The propensity of a row is the share of its bin among the rows used of the same
    class and wave, within which rates were random. `time` is the wave, `unit` the row of the file,
    counted from 0. In ``itcscore`` and ``age`` a 0 means that the value is unknown.
    """
    frame = read(ENTRY, path, verify=verify)
    if risk is not None:
        choice("risk", risk, RISKS)
    columns = (
        (*CONTEXT, *(("risk",) if risk is None else ()))
        if context is None
        else context_columns(context)
    )
    used = (frame["normrate_less"] == 1).to_numpy()
    if risk is not None:
        used = used & (frame["risk"] == risk).to_numpy()
    if as_offered:
        used = used & (frame["offer4"] == frame["final4"]).to_numpy()
    frame = frame.assign(unit=np.arange(len(frame)))[used]
    if not len(frame):
        raise LogError(f"there are no offers of risk class {risk or 'LOW, MEDIUM or HIGH'}")
    frame = frame[known_context(ENTRY, frame, columns, drop_missing=drop_missing)]
    offers = frame["offer4"].to_numpy(dtype=np.float64)
    edges = _fifths(offers) if bins is None else _edges(bins, offers)
    labels = [f"({low:g}, {high:g}]" for low, high in pairwise(edges)]
    codes = np.searchsorted(edges, offers, side="left") - 1
    empty = np.flatnonzero(np.bincount(codes, minlength=len(labels)) == 0)
    if empty.size:
        raise LogError(
            f"`bins` must all hold offers; none lies in {labels[int(empty[0])]} (the offers used "
            f"range from {offers.min():g} to {offers.max():g}; bins=None takes their fifths)"
        )
    if reward not in frame.columns:
        raise LogError(f"`reward` asks for {reward!r}, which the {ENTRY.title} data lack")
    frame = frame.assign(bin=np.array(labels, dtype=object)[codes])
    cell = frame.groupby(["risk", "wave"])["offer4"].transform("size")
    share = frame.groupby(["risk", "wave", "bin"])["offer4"].transform("size") / cell
    return LoggedData.from_frame(
        frame.assign(share=share), arm="bin", reward=reward, propensity="share", context=columns,
        time="wave", unit="unit", arms=labels,
    )  # fmt: skip


def _edges(bins: Sequence[float], offers: NDArray[np.float64]) -> NDArray[np.float64]:
    edges = vector("bins", bins)
    if edges.size < 3 or not np.all(np.diff(edges) > 0):
        raise LogError(f"`bins` must hold at least three increasing edges; got {tuple(bins)}")
    low, high = offers.min(), offers.max()
    if low <= edges[0] or high > edges[-1]:
        raise LogError(
            f"`bins` must cover the offers, which range from {low:g} to {high:g}; "
            f"got ({edges[0]:g}, {edges[-1]:g}]"
        )
    return edges


def _fifths(offers: NDArray[np.float64]) -> NDArray[np.float64]:
    # Edges are offered rates, so that a label says what was offered.
    inner = np.quantile(offers, [0.2, 0.4, 0.6, 0.8, 1.0], method="inverted_cdf")
    return np.unique(np.append(0.0, inner))
