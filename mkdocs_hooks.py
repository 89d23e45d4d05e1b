"""Tables of parameters in the documentation, made from what the classes declare."""

from __future__ import annotations

import importlib
import re
from typing import Any

from zib.core.spec import parameter_table

_REQUEST = re.compile(r"^\{\{ parameters (\S+) \}\}$", re.MULTILINE)


def tables(module_name: str) -> str:
    """Return one table for each public class of a module that declares parameters."""
    module = importlib.import_module(module_name)
    classes = {name: getattr(module, name) for name in module.__all__}
    return "\n\n".join(
        f"### {module_name}.{name}\n\n{parameter_table(kind)}"
        for name, kind in classes.items()
        if isinstance(kind, type) and getattr(kind, "declared", None)
    )


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the tables where a page asks for them with ``{{ parameters zib.mab }}``."""
    return _REQUEST.sub(lambda found: tables(found[1]), markdown)
