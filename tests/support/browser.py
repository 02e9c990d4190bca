"""Drive a real browser in tests of pages."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import subprocess

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def _starts(path: str) -> bool:
    """Return whether a program runs. Some names only print how to install the browser."""
    try:
        return subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


_FOUND = (os.environ.get("ELITES_CHROMIUM"), *map(shutil.which, _NAMES))
CHROMIUM = next((path for path in _FOUND if path and _starts(path)), "")
needs_browser = pytest.mark.skipif(
    not CHROMIUM, reason="LEFT OUT: no Chromium found; install one, or set ELITES_CHROMIUM"
)


@functools.cache
def _browser():
    """Start the browser. Tests of a process share it, and each has pages of its own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="LEFT OUT: needs playwright")
    driver = playwright.sync_playwright().start()
    atexit.register(driver.stop)
    return driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@contextlib.contextmanager
def browsing(**options):
    """Open a page. Also yields the addresses that it requests and the errors that it logs."""
    size = {"width": 1280, "height": 800}
    context = _browser().new_context(**{"viewport": size, **options})
    page = context.new_page()
    page.set_default_timeout(120_000)  # long, because the machine may be busy
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    try:
        yield page, asked, complaints
    finally:
        context.close()


def errors(complaints: list[str]) -> list[str]:
    """Return the logged errors without messages of the graphics driver about screenshots."""
    return [text for text in complaints if "GL Driver Message" not in text]


def drawn(page) -> None:
    """Wait for two frames, so that pending changes are drawn."""
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
