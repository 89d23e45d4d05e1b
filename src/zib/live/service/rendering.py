"""Pages from templates, and the sections of a bandit's page that change while one looks."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from zib.live.book import ACTIVE, PAUSED, RETIRED
from zib.live.service import charts, words
from zib.live.service.feed import Look
from zib.live.settings import label_text
from zib.report.numbers import count

if TYPE_CHECKING:
    from jinja2 import Environment

SECTIONS = (
    "asof", "advice", "gain", "arms", "traffic", "revenue", "waiting", "checks", "changes",
)  # fmt: skip
PARTS = (
    ("prob", "Chance", words.chance),
    ("magnitude", "Amount", words.amount),
    ("reward", "Value", words.amount),
)
SHOWN = 12  # arms of a long table that are not folded away


def address(name: str) -> str:
    """Return where the page of a bandit is."""
    return f"/bandits/{quote(name, safe='')}"


def page(
    template: str, status: int = 200, more: Mapping[str, str] | None = None, **values: Any
) -> Response:
    """Return a page.

    Parameters
    ----------
    template
        Name of a template without its endings.
    status
        Of the answer.
    more
        Headers beside those of every page.
    values
        What the template names; a name without a value is an error.
    """
    made = _templates().get_template(f"{template}.html.j2").render(**values)
    return HTMLResponse(made, status, {**headers(), **(more or {})})


@cache
def _templates() -> Environment:
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("zib.live.service"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        label=words.label, whole=words.whole, amount=words.amount, share=words.share,
        rough=words.rough, span=words.span, clock=words.clock, moment=words.moment,
        zone=words.zone, stamp=words.stamp, count=count, change=words.change, key=label_text,
        address=address,
    )  # fmt: skip
    templates.globals.update(
        between=words.between, bar=charts.interval_bar, signs=words.SIGNS,
        style=_text("page.css"), script=_text("page.js"), longest=words.LONGEST_LABEL,
    )  # fmt: skip
    return templates


def _text(name: str) -> Markup:
    """Return a style sheet or a script, to be put into a page as it is."""
    return Markup((files("zib.live.service") / "templates" / name).read_text("utf-8"))


@cache
def headers() -> dict[str, str]:
    """Return what every page says about itself: nothing is loaded from elsewhere."""

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src 'sha256-{digest(_text('page.css'))}'",
            f"script-src 'sha256-{digest(_text('page.js'))}'",
            "img-src data:",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    )
    return {
        "Cache-Control": "no-store",
        "Content-Security-Policy": policy,
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }


async def sections(look: Look, name: str, admin: bool) -> dict[str, str]:
    """Return the sections of the page, made once for all who look, beside the event loop."""
    kind = "admin" if admin else "read"
    if kind not in look.rendered:
        work = asyncio.to_thread(rendered, look, name, admin)
        look.rendered[kind] = asyncio.ensure_future(work)
    return await asyncio.shield(look.rendered[kind])


def rendered(look: Look, name: str, admin: bool) -> dict[str, str]:
    """Return the sections of the page by their names."""
    seen = look.overview
    ordered = words.in_order(seen.arms)
    current = [arm for arm in ordered if arm.status != RETIRED]
    most = SHOWN if len(current) > SHOWN + 3 else len(current)
    colours = charts.colours(seen.arms, seen.history)
    template = _templates().get_template("sections.html.j2")
    context = template.new_context(
        {
            "seen": seen,
            "status": seen.status,
            "failing_since": look.failing_since,
            "here": address(name),
            "admin": admin,
            "gain": words.headline(seen.gain),
            "shown": current[:most],
            "folded": current[most:],
            "retired": [arm for arm in ordered if arm.status == RETIRED],
            "scales": {
                part: charts.scale_of([getattr(arm, part) for arm in current])
                for part, _, _ in PARTS
            },
            "colours": colours,
            "drawn": {
                "traffic": charts.traffic(seen.history, colours),
                "revenue": charts.revenue(seen.history, seen.status.at, seen.ages.most),
                "waiting": charts.waiting(seen.ages),
            },
            "checks": words.checks(seen),
            "parts": PARTS,
            "ACTIVE": ACTIVE,
            "PAUSED": PAUSED,
        }
    )
    return {id: "".join(template.blocks[id](context)).strip() for id in SECTIONS}


def marks(sections: Mapping[str, str]) -> dict[str, str]:
    """Return a short digest of each section, by which a browser says what it has."""
    return {id: hashlib.sha256(text.encode()).hexdigest()[:8] for id, text in sections.items()}
