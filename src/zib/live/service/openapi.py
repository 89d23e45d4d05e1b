"""The OpenAPI document, made from the table of routes and the structs of their bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import msgspec

from zib.live.service.bodies import Error
from zib.live.service.routes import Route

ERRORS = {
    "400": "Not JSON, or not of this shape; the sentence names the field.",
    "401": "No token, or one that is not known.",
    "403": "The role of the token does not allow it.",
    "404": "There is no such bandit or decision.",
    "409": 'An id came again with other content (`kind` is "conflict"), or no arm may be served.',
    "413": "The body is too long.",
    "415": "The body is not application/json.",
    "422": "A value is out of its range; the sentence names it.",
    "429": "Too many requests; `Retry-After` says when to try again.",
    "503": "The database does not answer; `Retry-After` says when to try again.",
}
WITH_BODY = ("400", "413", "415", "422")
WORDS = (
    "Decisions and events are durable when their answer comes. Keys and ids make requests safe to "
    "repeat: the same again gets the same answer and changes nothing."
)


def document(routes: Iterable[Route], own: Iterable[Route], *, tokens: bool) -> dict[str, Any]:
    """Return the document.

    Parameters
    ----------
    routes
        Below /v1/{bandit}.
    own
        Below /.
    tokens
        Whether callers need one.
    """
    every = [*((f"/v1/{{bandit}}/{route.path}", route) for route in routes)]
    every += [(f"/{route.path}", route) for route in own]
    kinds: list[Any] = [Error]
    for _, route in every:
        kinds += [kind for kind in (route.body, route.answer) if _is_struct(kind)]
    _, components = msgspec.json.schema_components(
        dict.fromkeys(kinds), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Any] = {}
    for path, route in every:
        paths.setdefault(path, {})[route.method.lower()] = _operation(path, route, tokens)
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "zib", "version": version("zib"), "description": WORDS},
        "paths": paths,
        "components": {"schemas": components},
    }
    if tokens:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return found


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _reference(kind: Any) -> dict[str, Any]:
    if _is_struct(kind):
        return {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"type": "object"}


def _json(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": _reference(kind)}}


def _operation(path: str, route: Route, tokens: bool) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", path)
    text = {"type": "string"}
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": text} for name in names
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "description": words, "schema": text}
        for name, words in route.query
    ]
    content = _json(route.answer)
    if isinstance(route.answer, tuple):  # media types of a file
        content = {kind: {"schema": {"type": "string"}} for kind in route.answer}
    codes = [code for code in ERRORS if route.body is not None or code not in WITH_BODY]
    if route.query:
        codes = sorted({*codes, "400", "422"})
    if not route.roles:
        codes = ["503"]
    found: dict[str, Any] = {
        "operationId": _name(route),
        "summary": route.words,
        "parameters": parameters,
        "responses": {
            str(route.status): {"description": "Done.", "content": content},
            **{code: {"description": ERRORS[code], "content": _json(Error)} for code in codes},
        },
    }
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": _json(route.body)}
    if tokens:
        found["security"] = [{"token": []}] if route.roles else []
    if route.roles:
        found["description"] = f"Needs the role {' or '.join(route.roles)} (admin has all)."
    return found


def _name(route: Route) -> str:
    words = re.findall(r"\w+", route.path.replace("v1/", ""))
    return "_".join([route.method.lower(), *words])
