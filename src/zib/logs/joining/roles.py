"""Which columns of the two files play which role, named by the user or guessed from names."""

from __future__ import annotations

from collections.abc import Sequence

from zib.core import validate
from zib.logs.tables import LogError, Table

KEYS = (
    "exposure_id", "impression_id", "assignment_id", "decision_id", "message_id", "send_id",
    "request_id", "click_id", "user_id", "customer_id", "visitor_id", "client_id", "account_id",
    "member_id", "session_id", "uid", "id", "user", "customer", "visitor", "unit", "email",
)  # fmt: skip
TIMES = (
    "time", "timestamp", "ts", "datetime", "exposed_at", "exposure_time", "shown_at", "sent_at",
    "sent", "assigned_at", "conversion_time", "converted_at", "ordered_at", "order_time",
    "purchased_at", "bought_at", "paid_at", "occurred_at", "event_time", "created_at", "date",
    "day",
)  # fmt: skip
AMOUNTS = (
    "amount", "value", "revenue", "reward", "order_value", "price", "total", "spend", "paid",
    "sales", "profit", "turnover",
)  # fmt: skip
IDS = (
    "conversion_id", "order_id", "event_id", "transaction_id", "purchase_id", "payment_id",
    "invoice_id", "order", "transaction",
)  # fmt: skip
ARMS = (
    "arm", "variant", "treatment", "variation", "campaign", "creative", "offer", "action", "cell",
    "test_group", "group", "segment", "version", "banner", "template", "price",
)  # fmt: skip


def find(
    table: Table,
    role: str,
    given: str | None,
    known: Sequence[str],
    notes: list[str],
    but: Sequence[str] = (),
) -> str | None:
    """Return the column that was named, or the first with a name that is known for the role."""
    if given is not None:
        return table.require(role, given)
    by_name = {_plain(name): name for name in reversed(table.columns) if name not in but}
    for name in known:
        if name in by_name:
            notes.append(f"Guessed: `{role}` is the column {by_name[name]!r} of {table.name}.")
            return by_name[name]
    return None


def keys(
    left: Table, right: Table, on: str | Sequence[str] | None, notes: list[str]
) -> tuple[str, str]:
    """Return the columns of exposures and conversions that are joined."""
    if on is not None:
        names = (on, on) if isinstance(on, str) else validate.words("on", on)
        if len(names) != 2:
            raise LogError(
                "`on` must be one name, or one for the exposures and one for the conversions; "
                f"got {validate.shown(on)}"
            )
        return left.require("on", names[0]), right.require("on", names[1])
    common = [name for name in left.columns if name in right.columns]
    by_name = {_plain(name): name for name in reversed(common)}
    for name in KEYS:
        if name in by_name:
            notes.append(f"Guessed: the files are joined on {by_name[name]!r}.")
            return by_name[name], by_name[name]
    rest = [name for name in common if _plain(name) not in (*TIMES, *AMOUNTS, *ARMS)]
    if len(rest) == 1:
        notes.append(f"Guessed: the files are joined on {rest[0]!r}.")
        return rest[0], rest[0]
    raise LogError(
        "`on` must name the column that both files share; exposures have "
        f"{', '.join(left.columns[:12])}, conversions have {', '.join(right.columns[:12])}"
    )


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")
