"""What makes a log doubtful that can be read: look-alike labels, late columns, ids as context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.logs.columns import Labels
from zib.logs.tables import LogError

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

FEWEST = 10  # rows with a reward before anything is concluded from them
SHOWN = 3
ROWS = 20_000  # that are judged
TOTALS = {"total", "totals", "grand total", "subtotal", "gesamt", "summe"}

# Words for what happens after a choice; a column named so is doubtful when the reward implies it.
OUTCOMES = {
    "click", "clicked", "open", "opened", "visit", "visited", "conversion", "converted", "convert",
    "purchase", "purchased", "bought", "order", "ordered", "response", "responded", "gave",
    "donated", "paid", "redeemed", "accepted", "success", "outcome", "signup", "churned",
}  # fmt: skip
NAMING = {"id", "uid", "uuid", "key", "guid", "hash"}  # last words of a column that names units


def words_of(name: str) -> tuple[str, ...]:
    """Return the words in the name of a column, in lower case and in the singular.

    Examples
    --------
    >>> words_of("netRevenue"), words_of("total_clicks"), words_of("Paid at")
    (('net', 'revenue'), ('total', 'click'), ('paid', 'at'))
    """
    import re

    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-zà-ÿ]+|\d+", name)
    words = [part.lower() for part in parts if not part.isdigit()]
    return tuple(word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words)


def about_labels(labels: Labels) -> list[str]:
    """Return sentences about labels that look alike, and about one that names a row of totals."""
    out = [
        f"column `{labels.column}` holds {label!r}, as if a row of totals stood among the "
        "decisions; drop it if so"
        for label in labels.seen
        if str(label).strip().casefold() in TOTALS
    ]
    groups = labels.look_alikes()
    if not groups:
        return out
    listed = "; ".join(" and ".join(map(repr, group)) for group in groups[:SHOWN])
    more = "; …" if len(groups) > SHOWN else ""
    blanks = any(len({" ".join(label.split()) for label in group}) < len(group) for group in groups)
    remedy = (
        "say --strip-labels (strip_labels=True in Python) to ignore white space"
        if blanks
        else "write them alike"
    )
    return [
        *out,
        f"column `{labels.column}` holds labels that look alike and count as different: "
        f"{listed}{more}; if they mean the same, {remedy}",
    ]


def refuse_late(column: str, values: Any, reward: Array) -> None:
    """Raise if a column of the context is filled only where the reward is not zero."""
    if not values.null_count:
        return
    filled = ~values.is_null().to_numpy(zero_copy_only=False)
    paid = reward != 0.0
    if paid.sum() >= FEWEST and not filled[~paid].any() and filled[paid].any():
        raise LogError(
            f"column `{column}` is filled only where the reward is not 0, so it became known after "
            "the choice; leave it out of the context"
        )


def about_context(context: Mapping[str, Array | Codes], arm: Codes, reward: Array) -> list[str]:
    """Return sentences about columns of the context that cannot have been known before choosing.

    They are judged by the first rows; text columns come as codes.
    """
    out = []
    arm, reward = arm[:ROWS], reward[:ROWS]
    for name, column in context.items():
        values = column[:ROWS]
        doubt = _late(name, values, reward) or _by_arm(values, arm) or _names_rows(name, values)
        if doubt:
            out.append(
                f"column `{name}` {doubt}; leave it out of the context unless you know better"
            )
    return out


def _late(name: str, values: Array | Codes, reward: Array) -> str:
    """Return the doubt that a column follows from the reward."""
    paid = reward != 0.0
    if paid.sum() < FEWEST or paid.all():
        return ""
    nothing = values[~paid]
    if bool(np.all(nothing == nothing[0])) and bool(np.all(values[paid] != nothing[0])):
        return "tells exactly whether the reward is 0, so it became known after the choice"
    marked = values != 0
    if OUTCOMES & set(words_of(name)) and marked[paid].all() and marked.mean() < 0.5:
        return "is not 0 wherever the reward is not 0, as if it became known after the choice"
    return ""


def _by_arm(values: Array | Codes, arm: Codes) -> str:
    """Return the doubt that a column follows from the arm."""
    arms = np.unique(arm)
    if arms.size < 2 or arm.size < FEWEST * arms.size:
        return ""
    order = np.argsort(arm, kind="stable")
    starts = np.searchsorted(arm[order], arms)
    low, high = (f.reduceat(values[order], starts) for f in (np.minimum, np.maximum))
    if bool(np.all(low == high)) and np.unique(low).size > 1:
        return (
            "follows from the arm: it became known with the choice, or the arm was chosen by it "
            "alone, and then arms cannot be compared"
        )
    return ""


def _names_rows(name: str, values: Array | Codes) -> str:
    """Return the doubt that a column of whole numbers names rows or units."""
    if values.size < 100 or not words_of(name) or words_of(name)[-1] not in NAMING:
        return ""
    if bool(np.all(values == np.rint(values))) and np.unique(values).size > 100:
        return "looks like an id, whose size means nothing"
    return ""
