"""What a ledger tells about itself: looking changes nothing, and holds nobody up."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from zib.core import validate
from zib.live.answers import Change
from zib.live.arms import changes
from zib.live.book import Book
from zib.live.database import Database
from zib.live.keeper import Keeper
from zib.live.pages import looking
from zib.live.settings import Settings

if TYPE_CHECKING:
    from zib.live.check import Check
    from zib.live.export import Exported
    from zib.live.overview import Overview
    from zib.live.replay import Replay
    from zib.live.status import Status


class Told:
    """Base of `Ledger`: statistics, checks and the log."""

    _book: Book
    _database: Database
    _keeper: Keeper | None

    @property
    def name(self) -> str:
        """Name of the bandit."""
        return self._book.name

    @property
    def settings(self) -> Settings:
        """How it waits, counts and shares."""
        return self._book.configuration.settings

    def _now(self) -> int:
        raise NotImplementedError

    def audit(self, most: int = 100) -> list[Change]:
        """Return what was changed by hand, the latest first, and who did it."""
        most = validate.integer("most", most, low=1, high=1_000_000)
        with looking(self._database) as connection:
            return changes(connection, self._book.number, most)

    def statistics(self, level: float = 0.95) -> Status:
        """Return what is known now: arms, the delay of rewards, and what went astray.

        `level` is that of the intervals, which hold at whatever time one looks.
        """
        from zib.live.status import status

        level = validate.real("level", level, low=0.0, high=1.0, closed="neither")
        with looking(self._database) as connection:
            found = status(connection, self.name, level=level, now=self._now())
        problem = None if self._keeper is None else self._keeper.problem
        return dataclasses.replace(found, problem=problem)

    def overview(self, level: float = 0.95) -> Overview:
        """Return everything that the page of the bandit shows: gain, arms, history, advice.

        `level` is that of the intervals, each of which holds at whatever time one looks.
        """
        from zib.live.advice import advised
        from zib.live.overview import overview

        level = validate.real("level", level, low=0.0, high=1.0, closed="neither")
        with looking(self._database) as connection:
            found = overview(connection, self.name, level=level, now=self._now())
        problem = None if self._keeper is None else self._keeper.problem
        return advised(found, problem, self.settings)

    def check(self) -> Check:
        """Compare what is stored with the log: the statistics must be its fold.

        What happens meanwhile is neither seen nor held up.
        """
        from zib.live.check import check

        with looking(self._database) as connection:
            return check(connection, self.name, now=self._now())

    def replay(self) -> Replay:
        """Draw every logged decision again from its model version, key and eligible arms.

        The result says how many came out with the logged arm and probability, and which did not.
        """
        from zib.live.replay import replay

        with looking(self._database) as connection:
            return replay(connection, self.name)

    def export(
        self,
        out: Any = None,
        *,
        pending: str = "leave-out",
        since: Any = None,
        until: Any = None,
        kind: str | None = None,
        seed: int = 0,
    ) -> Exported:
        """Return the log, one row per decision, or write it to a file.

        Parameters
        ----------
        out
            File to write, ending with .parquet or .csv; without it the rows stay in memory. The
            result's `log` is for `zib.ope.evaluate` and `zib.advise.advise`.
        pending
            What becomes of decisions whose reward may still come, those younger than window and
            grace: "leave-out"; "thin" keeps those with a reward and of the others a random part, so
            that the rows are like those of closed decisions; "weight" keeps all, with the columns
            ``weight`` and ``fraction``.
        since, until
            Times between which decisions were made: seconds since 1970, a date, or text such as
            ``"2026-05-01"`` (UTC unless it says otherwise). A decision at `until` is left out.
        kind
            Only decisions of one kind: "policy", "holdout" or "shadow"; all by default.
        seed
            Of what "thin" draws.
        """
        from zib.live.export import export

        with looking(self._database) as connection:
            return export(
                connection, out, self.name, pending=pending, since=since, until=until, kind=kind,
                seed=seed, now=self._now(),
            )  # fmt: skip
