"""An application that answers everything alike: what HTTP costs without anything behind it."""

from __future__ import annotations

from typing import Any

BODY = (
    b'{"id":"0123456789abcdef01234567","arm":"A","probability":0.3333333333333333,"version":12,'
    b'"at":1763300000.123456,"closes_at":1763904800.123456,"kind":"policy","wanted":"A"}'
)
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))],
}


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer one request."""
    if scope["type"] == "http":
        await receive()
        await send(START)
        await send({"type": "http.response.body", "body": BODY})
