"""Chromium, driven by its own driver over WebDriver (W3C): pages as people see them, at any width, light or dark.

Debian: apt install chromium chromium-driver.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

from spark_kafka_eos.testing.ports import free_ports

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
SECONDS = 60.0

# Words of visible text that a line's end cuts: [word, what is around it]. A line may end after any other character.
BROKEN_WORDS = r"""
const root = document.querySelector(arguments[0]), found = [], range = document.createRange();
const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  if (!node.parentElement.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
  for (const word of node.data.matchAll(/[\p{L}\p{N}]{2,}/gu)) {
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const tops = [...range.getClientRects()].filter((each) => each.width > 0).map((each) => each.top);
    if (tops.length && Math.max(...tops) - Math.min(...tops) > 4)
      found.push([word[0], node.data.slice(Math.max(0, word.index - 30), word.index + 40)]);
  }
}
return found;
"""
# By how many pixels the page is wider than its window, and what sticks out.
SCROLLS = """
const wide = document.documentElement.scrollWidth - window.innerWidth;
if (wide <= 0) return [0, []];
const sticks = (each) => each.getBoundingClientRect().right > innerWidth + 1;
const out = [...document.body.querySelectorAll("*")].filter(sticks);
return [wide, out.slice(0, 5).map((each) => each.outerHTML.slice(0, 200))];
"""


class Browser:
    """A session. Raises AssertionError with the driver's message if it refuses a command."""

    def __init__(self, base: str) -> None:
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        options = {"browserName": "chrome", "goog:chromeOptions": {"binary": CHROMIUM, "args": arguments}}
        self._base = f"{base}/session"
        made = self._call("POST", "", {"capabilities": {"alwaysMatch": options}})
        self._base += f"/{made['sessionId']}"

    def close(self) -> None:
        self._call("DELETE", "")

    def look(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """From now on: the window's size, and which colours the system asks for."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._cdp("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._cdp("Emulation.setEmulatedMedia", {"features": [scheme]})

    def go(self, url: str) -> None:
        self._call("POST", "/url", {"url": url})

    @property
    def url(self) -> str:
        return str(self._call("GET", "/url"))

    def script(self, text: str, *arguments: object) -> Any:
        """What the script returns."""
        return self._call("POST", "/execute/sync", {"script": text, "args": list(arguments)})

    def until(self, text: str, *arguments: object) -> Any:
        """The first result of the script that is true."""
        deadline = time.monotonic() + SECONDS
        while not (found := self.script(text, *arguments)):
            assert time.monotonic() < deadline, f"not within {SECONDS:g} s: {text}"
            time.sleep(0.05)
        return found

    def type(self, text: str) -> None:
        """Press these keys in what has the focus."""
        self._cdp("Input.insertText", {"text": text})

    def picture(self, file: Path, *, whole: bool = False) -> None:
        """Save what is seen, or the whole page."""
        shown = self._cdp("Page.captureScreenshot", {"captureBeyondViewport": whole})
        file.write_bytes(base64.b64decode(shown["data"]))

    def _cdp(self, command: str, given: Mapping[str, object]) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": given})

    def _call(self, method: str, path: str, given: Mapping[str, object] | None = None) -> Any:
        data = None if method != "POST" else json.dumps(given or {}).encode()
        request = urllib.request.Request(
            self._base + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS * 2) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser, until the end of the block."""
    assert CHROMIUM and DRIVER, "apt install chromium chromium-driver"
    (port,) = free_ports(1)
    process = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        base = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                urllib.request.urlopen(f"{base}/status", timeout=5).close()
                break
            except URLError:
                assert process.poll() is None and time.monotonic() < deadline, "chromedriver does not answer"
                time.sleep(0.1)
        session = Browser(base)
        try:
            yield session
        finally:
            session.close()
    finally:
        process.terminate()
        process.wait(SECONDS)
