"""Drive a real browser in tests of pages."""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import firefox

_LONG = 120_000  # milliseconds, because the machine may be busy
_NAMES = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "firefox": ("firefox-esr", "firefox"),
}


def _starts(path: str) -> bool:
    """Return whether a program runs. Some names only print how to install the browser."""
    try:
        return subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@functools.cache
def _path(name: str) -> str:
    """Return the path of a browser: that of ELITES_CHROMIUM, for example, or one that is found."""
    found = (os.environ.get(f"ELITES_{name.upper()}"), *map(shutil.which, _NAMES[name]))
    return next((path for path in found if path and _starts(path)), "")


def needs(name: str) -> pytest.MarkDecorator:
    """Return the mark of tests that need a browser."""
    title, variable = name.capitalize(), f"ELITES_{name.upper()}"
    reason = f"LEFT OUT: no {title} found; install one, or set {variable}"
    return pytest.mark.skipif(not _path(name), reason=reason)


needs_browser = needs("chromium")
in_all_browsers = pytest.mark.parametrize(
    "browser", [pytest.param(name, marks=needs(name)) for name in _NAMES]
)


@functools.cache
def _playwright():
    playwright = pytest.importorskip("playwright.sync_api", reason="LEFT OUT: needs playwright")
    driver = playwright.sync_playwright().start()
    atexit.register(driver.stop)
    return driver


@functools.cache
def _browser(name: str):
    """Start a browser. Tests of a process share it, and each has pages of its own."""
    if name == "chromium":
        return _playwright().chromium.launch(
            executable_path=_path(name), args=["--no-sandbox"], timeout=_LONG
        )
    # The program firefox.py needs the packages of this interpreter.
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return _playwright().firefox.launch(
        channel="moz-firefox",
        executable_path=firefox.__file__,
        timeout=_LONG,
        firefox_user_prefs=firefox.PREFERENCES,
        env={**os.environ, **firefox.ENVIRONMENT, "PATH": search, firefox.PATH: _path(name)},
    )


@contextlib.contextmanager
def browsing(browser: str = "chromium", **options):
    """Open a page. Also yields the addresses that it requests and the errors that it logs."""
    size = {"width": 1280, "height": 800}
    context = _browser(browser).new_context(**{"viewport": size, **options})
    page = context.new_page()
    page.set_default_timeout(_LONG)
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    try:
        yield page, asked, complaints
    finally:
        context.close()


# Before a screenshot, Playwright adds this style to a page in Firefox. The page's policy blocks it.
_STYLE = base64.b64encode(hashlib.sha256(b"body {}").digest()).decode()


def errors(complaints: list[str]) -> list[str]:
    """Return the logged errors without those that taking a screenshot causes."""
    caused = ("GL Driver Message", _STYLE)
    return [text for text in complaints if not any(each in text for each in caused)]


def drawn(page) -> None:
    """Wait for two frames, so that pending changes are drawn."""
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
