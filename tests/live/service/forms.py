"""The form in which a service refuses: one sentence in JSON that gives nothing away."""

from __future__ import annotations

import json
import re

from tests.live.service.wire import Answer

# what would tell a stranger about the inside: traces, files, statements, addresses of objects
INSIDE = re.compile(
    r"Traceback|File \"|line \d+, in|site-packages|\.py\b|/src/|/home/|/tmp/|/dev/shm|"
    r"sqlite3?\.|asyncpg|\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|PRAGMA)\b|0x[0-9a-f]{6}|"
    r"msgspec|starlette|uvicorn"
)


def refused(answer: Answer, *statuses: int) -> str:
    """Return the sentence of a refusal; fail unless it has one of these statuses and the form."""
    assert answer.status in (statuses or range(400, 500)), answer
    assert answer.headers.get("content-type") == "application/json", answer
    assert answer.headers.get("cache-control") == "no-store", answer
    assert answer.headers.get("x-content-type-options") == "nosniff", answer
    content = json.loads(answer.body)
    assert {"error"} <= set(content) <= {"error", "kind"}, answer
    sentence = content["error"]
    assert isinstance(sentence, str), answer
    assert sentence.strip() == sentence, answer
    assert 0 < len(sentence) <= 500, answer
    assert sentence.isprintable(), answer  # no line breaks either
    assert not INSIDE.search(sentence), answer
    return sentence


def refused_page(answer: Answer, *statuses: int) -> None:
    """Fail unless a refusal has one of these statuses and is a page, or has the other form."""
    if not answer.headers.get("content-type", "").startswith("text/html"):
        refused(answer, *statuses)
        return
    assert answer.status in (statuses or range(400, 500)), answer
    assert answer.headers.get("cache-control") == "no-store", answer
    assert answer.headers.get("x-content-type-options") == "nosniff", answer
    assert "default-src 'none'" in answer.headers["content-security-policy"], answer
    assert not INSIDE.search(answer.body.decode()), answer
