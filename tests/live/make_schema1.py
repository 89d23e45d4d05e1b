"""Writes tests/live/data/schema1.sql: a database of schema version 1 as text.

It was run once, when that schema was made. Databases out there are never made anew, so neither is
this one.
"""

import sqlite3
import tempfile
from pathlib import Path

from zib.core.entry import interpreted
from zib.live import Ledger

START = 1_700_000_000.0


def main() -> None:
    """Let all kinds of things happen, and keep the database."""
    now = START
    path = Path(tempfile.mkdtemp()) / "schema1.db"
    with (
        interpreted(),
        Ledger(
            path, "checkout", arms=["plain", "bundle"], window="7d", grace="1d", holdout=0.2,
            draws=50, background=False, clock=lambda: now,
        ) as ledger,
    ):  # fmt: skip
        for k in range(12):
            now += 3600.0
            decision = ledger.decide(f"k{k}", unit=f"u{k % 5}", arms=None if k % 3 else ["bundle"])
            if k % 2:
                ledger.event(f"e{k}", decision.id, 9.5 + k)
            if k == 5:
                ledger.refresh()
        ledger.revise("refund", ledger.decision_id("k3"), 0.0)
        ledger.cancel(ledger.decision_id("k4"))
        ledger.event("early", ledger.decision_id("not yet"), 4.0)
        ledger.add_arm("coupon")
    raw = sqlite3.connect(path)
    kept = [line for line in raw.iterdump() if "zib_room" not in line]
    raw.close()
    target = Path(__file__).parent / "data" / "schema1.sql"
    target.write_text("\n".join(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
