"""Karlan and List (2007): matching gifts in a fund-raising letter."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from zib.logs.catalogue import DataSet, check_columns, context_columns, known_context, read
from zib.logs.log import LoggedData
from zib.logs.tables import LogError

__all__ = ["load_karlan_list"]

ARMS = ("control", "1:1", "2:1", "3:1")
SHARES = (1 / 3, 2 / 9, 2 / 9, 2 / 9)
MISSING_CODE = -999
UNKNOWN_GIFTS = 2  # rows of the CSV conversion without an amount

ENTRY = DataSet(
    name="karlan_list",
    title="Karlan–List 2007",
    what=(
        "A charity wrote to earlier donors; some letters promised that a gift would be matched, "
        "dollar by dollar, two to one or three to one."
    ),
    rows=50_083,
    rows_fixed=True,
    arms="control, match 1:1, 2:1 and 3:1",
    randomisation=(
        "fully random: control 1/3, each ratio 2/9; crossed with the size of the match and the "
        "suggested gift"
    ),
    outcome="dollars given (`out_amountgive`, or `amount` in the Stata file)",
    zeros="about 98 %",
    citation=(
        "Karlan, D. and List, J. A. (2007). Does price matter in charitable giving? Evidence from "
        "a large-scale natural field experiment. American Economic Review 97(5), 1774–1793."
    ),
    licence="the terms shown on its Dataverse page; a CSV conversion is CC0",
    source="Harvard Dataverse doi:10.7910/DVN/27853",
    get=(
        "Open doi:10.7910/DVN/27853 at Harvard Dataverse and download the merged Stata file, or "
        "take a conversion of it to CSV. There are several conversions, so columns and rows are "
        "checked and not a checksum."
    ),
    file_name="the merged data file (Stata or CSV)",
    sha256=None,
    columns=("treatment", "treat_ratio2", "treat_ratio3", "out_amountgive"),
    other_columns=(("treatment", "ratio2", "ratio3", "amount"),),
)


def load_karlan_list(
    path: Any,
    *,
    context: Sequence[str] = (),
    drop_missing: bool = False,
    verify: bool = True,
) -> LoggedData:
    """Return the letters of Karlan and List (2007) as a log.

    Parameters
    ----------
    path
        The data as CSV (columns ``treatment``, ``treat_ratio2``, ``treat_ratio3``,
        ``out_amountgive``) or as Stata file (``treatment``, ``ratio2``, ``ratio3``, ``amount``),
        or a pandas frame read from it.
    context
        Columns known before the letter, for example ``"hpa"`` (highest earlier gift) or
        ``"freq"`` (number of earlier gifts).
    drop_missing
        Drop rows that miss a value of `context` instead of refusing. The CSV file writes -999 for
        missing.
    verify
        Whether the file must have 50 083 rows.

    Notes
    -----
    The reward is the gift in dollars. Two rows of the CSV file have no amount; they are left out,
    with a warning if there are more than these two. Both are people at 3:1 who gave, so that the
    mean of this arm is 0.933 dollars, half a cent below that of the article. The propensities are
    those of the design: 1/3 for the control letter, 2/9 for each ratio. `unit` is the row of the
    file, counted from 0.
    """
    frame = read(ENTRY, path, verify=verify)
    treated, two, three, gift = check_columns(ENTRY, frame, "the frame")
    flags = frame[[treated, two, three]].to_numpy(dtype=np.float64)
    odd = ~np.isin(flags, (0.0, 1.0)).all(axis=1) | (flags[:, 1] + flags[:, 2] > flags[:, 0])
    if odd.any():
        raise LogError(
            f"columns `{treated}`, `{two}` and `{three}` must hold 0 or 1 and at most one ratio "
            f"per treated row; row {int(np.argmax(odd)) + 1} holds "
            f"{', '.join(f'{x:g}' for x in flags[int(np.argmax(odd))])}"
        )
    code = (flags[:, 0] + flags[:, 1] + 2 * flags[:, 2]).astype(np.int64)
    frame = frame.assign(
        letter=np.array(ARMS, dtype=object)[code],
        share=np.array(SHARES)[code],
        unit=np.arange(len(frame)),
    )
    known = frame[gift].notna().to_numpy()
    if (~known).sum() > UNKNOWN_GIFTS:
        warnings.warn(
            f"{int((~known).sum())} of {len(frame)} rows have no `{gift}` and are left out",
            UserWarning,
            stacklevel=2,
        )
    frame = frame[known]
    columns = context_columns(context)
    keep = known_context(ENTRY, frame, columns, code=MISSING_CODE, drop_missing=drop_missing)
    return LoggedData.from_frame(
        frame[keep], arm="letter", reward=gift, propensity="share", context=columns, unit="unit",
        arms=ARMS,
    )  # fmt: skip
