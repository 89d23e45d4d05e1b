"""A real browser for tests, and a visitor who notes what must not happen."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SIZES = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (360, "light")}


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Yield a browser, or skip with a sentence that says what to install."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="install Playwright: pip install 'zib[test-all]'"
    )
    path = os.environ.get("ZIB_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("install Chromium (apt-get install chromium) or name one in ZIB_CHROMIUM")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visitor:
    """A page of the browser; on leaving nothing may have gone wrong in it.

    That is: an error in the console, a script that was refused, a dialog, or a request to another
    host than that of `url`.
    """

    def __init__(self, browser: Any, url: str, kind: str = "light", **context: Any) -> None:
        width, scheme = SIZES[kind]
        self.url = url
        self.wrong: list[str] = []
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **context
        )
        self.page = self.context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        self.page.on("dialog", lambda dialog: self._dialog(dialog))
        self.page.on("request", self._asked)

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.context.close()
        if kind is None:
            assert self.wrong == []

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"console: {message.text}")

    def _dialog(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, request: Any) -> None:
        if urlsplit(request.url)[:2] != urlsplit(self.url)[:2] and request.url[:5] != "data:":
            self.wrong.append(f"request: {request.url}")

    def go(self, path: str = "/") -> Any:
        """Open an address of the service, and return the answer."""
        return self.page.goto(self.url + path)

    def see(self, text: str, within: float = 10.0) -> Any:
        """Return the first place with a text, once it can be seen."""
        found = self.page.get_by_text(text).first
        found.wait_for(timeout=1_000 * within)
        return found

    def tab_to(self, name: str, most: int = 80) -> None:
        """Press the tabulator until something with a name has the focus, which must show."""
        for _ in range(most):
            self.page.keyboard.press("Tab")
            focused = self.page.evaluate(
                "() => { const e = document.activeElement, s = getComputedStyle(e);"
                "return [e.ariaLabel || e.innerText || e.id, s.outlineStyle] }"
            )
            if focused[0].strip() == name:
                assert focused[1] != "none"
                return
        raise AssertionError(f"the tabulator does not lead to {name!r}")

    def sideways(self) -> int:
        """Return by how many pixels the page can be scrolled sideways."""
        return int(
            self.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        )

    def open_all(self) -> None:
        """Unfold everything."""
        self.page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")

    def breaches(self) -> list[str]:
        """Return what axe finds against WCAG 2.0 to 2.2 A and AA, contrast included."""
        axe = pytest.importorskip(
            "axe_playwright_python.sync_playwright",
            reason="install axe: pip install 'zib[test-all]'",
        )
        rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
        found = axe.Axe().run(self.page, options={"runOnly": rules}).response
        return [
            f"{each['id']}: {node['html'][:200]} {node['failureSummary']}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def picture(self, name: str, folder: Path) -> Path:
        """Keep a picture of the whole page, in ZIB_SCREENSHOTS if that is set."""
        folder = Path(os.environ.get("ZIB_SCREENSHOTS") or folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.png"
        self.page.screenshot(path=str(path), full_page=True)
        return path
