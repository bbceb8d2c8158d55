"""The site, the page of `kafka-eos trace` and the screen of `top` as people see them: in Chromium, on a phone and on a
desk, light and dark.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import re
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.kafka.protocol.trace import Phase, Request, Trace
from spark_kafka_eos.tools.cli.timeline import html, svg
from tests.browser import BROKEN_WORDS, SCROLLS, Browser, browser
from tests.pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

WIDTHS = (390, 1280)
EVIL = "orders\x1b[2K\x07\u202e</title></text><script>window.executed = true</script><img src=x onerror=alert(1)>"
CONTRAST = 4.5  # WCAG AA
# The lowest contrast of visible text with what is behind it, and the text.
FAINTEST = """
const luminance = (color) => color.slice(0, 3).map((each) => each / 255)
  .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
  .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const parse = (text) => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const behind = (element) => {
  for (; element; element = element.parentElement) {
    const color = parse(getComputedStyle(element).backgroundColor);
    if (color[3] > 250) return color;
  }
  return [255, 255, 255];
};
const mixed = (each, at, color, back) => (each * color[3] + back[at] * (255 - color[3])) / 255;
const over = (color, back) => color.slice(0, 3).map((each, at) => mixed(each, at, color, back));
const says = (element) => [...element.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
let worst = [99, ""];
for (const element of document.querySelectorAll(".md-content :is(p, li, td, th, h1, h2, h3, a, code)")) {
  if (!element.checkVisibility() || !says(element) || element.matches(".headerlink")) continue;
  const back = behind(element), front = over(parse(getComputedStyle(element).color), back);
  const [light, dark] = [luminance(front), luminance(back)].sort((a, b) => b - a);
  const found = (light + 0.05) / (dark + 0.05);
  if (found < worst[0]) worst = [found, element.textContent.slice(0, 60)];
}
return worst;
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "built"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=900)
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served: its search needs HTTP."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as session:
        yield session


def pages(site: Path) -> list[str]:
    return sorted(page.relative_to(site).as_posix() for page in site.rglob("*.html"))


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_its_window_and_no_word_is_cut(
    width: int, site: Path, address: str, chromium: Browser
) -> None:
    chromium.look(width)
    wrong = {}
    for page in pages(site):
        chromium.go(address + page)
        cut, (wide, out) = chromium.script(BROKEN_WORDS, "body"), chromium.script(SCROLLS)
        if cut or wide:
            wrong[page] = cut[:5], wide, out
    assert wrong == {}


@pytest.mark.parametrize(("width", "dark"), list(itertools.product(WIDTHS, (False, True))))
def test_every_page_can_be_read_in_the_colours_that_the_system_asks_for(
    width: int, dark: bool, site: Path, address: str
) -> None:
    scheme = "slate" if dark else "default"
    faint = {}
    with browser() as newcomer:  # the site remembers what a reader had before
        newcomer.look(width, dark=dark)
        for page in pages(site):
            if page == "404.html":  # a server's own, without the site's scripts
                continue
            newcomer.go(address + page)
            newcomer.until("return document.body.getAttribute('data-md-color-scheme') === arguments[0]", scheme)
            contrast, text = newcomer.script(FAINTEST)
            if contrast < CONTRAST:
                faint[page] = round(contrast, 2), text
    assert faint == {}


def test_every_link_of_the_site_leads_to_a_page_and_a_place_in_it(site: Path, address: str, chromium: Browser) -> None:
    chromium.look(1280)
    places, links = {}, {}
    for page in pages(site):
        chromium.go(address + page)
        places[page] = set(chromium.script("return [...document.querySelectorAll('[id]')].map((each) => each.id)"))
        shown = chromium.script("return [...document.querySelectorAll('a[href]')].map((each) => each.href)")
        links[page] = {urljoin(address + page, each) for each in shown}
    dead = []
    for page, targets in links.items():
        for target in sorted(targets):
            if not target.startswith(address):
                continue
            path, place = urlsplit(target).path.lstrip("/") or "index.html", unquote(urlsplit(target).fragment)
            if path not in places:  # a picture, for example
                there = (site / path).is_file()
            else:
                there = not place or place.startswith("__") or place in places[path]
            if not there:
                dead.append((page, target))
    assert len(links) > 40 and sum(map(len, links.values())) > 1_000
    assert dead == []


@pytest.mark.parametrize("width", WIDTHS)
def test_the_search_finds_an_error_and_leads_to_it(width: int, address: str, chromium: Browser) -> None:
    chromium.look(width)
    chromium.go(address + "index.html")
    if width < 1_000:  # it is behind a button
        chromium.script("document.querySelector('label[for=__search]').click()")
    chromium.until("const field = document.querySelector('.md-search__input'); field.focus();"
                   "return document.activeElement === field")  # fmt: skip
    chromium.type("LedgerRefused")
    found = "return [...document.querySelectorAll('.md-search-result__link')].map((each) => each.href)"
    results = chromium.until(f"const of = (() => {{ {found} }})(); return of.length && of")
    assert any("runbook.html" in each for each in results)
    assert chromium.script(SCROLLS)[0] <= 0
    assert chromium.script(BROKEN_WORDS, ".md-search") == []
    chromium.go(next(each for each in results if re.search(r"runbook\.html.*#ledgerrefused", each)))
    chromium.until("return document.querySelector('.md-content').innerText.includes('LedgerRefused')")


def timelines() -> str:
    """A page with two batches: a usual one, and one in which every name is an attack."""
    sent = (
        Request(api="InitProducerId", node="b:9092", start=1.0, milliseconds=3.0, error="NOT_COORDINATOR"),
        Request(api="InitProducerId", node="b:9092", start=9.0, milliseconds=3.0),
        Request(api="Produce", node="b:9092", start=30.0, milliseconds=12.0, about="orders-copy-0 +3", task=2),
    )
    evil = (Request(api=EVIL, node=EVIL, start=1.0, milliseconds=3.0, about=EVIL, error=EVIL),)
    phases = (Phase(name="begin", start=0.5, milliseconds=23.0), Phase(name="append", start=24.0, milliseconds=22.0))
    reports = [
        CommitReport(
            query_id="q", batch_id=7, outcome="committed", producer_id=1, epoch=3, append_mode="driver", error=error,
            trace=Trace(began_ms=1.0, milliseconds=50.0, phases=phases, requests=requests),
        )
        for requests, error in ((sent, ""), (evil, EVIL))
    ]  # fmt: skip
    return html(f"Last batches of {EVIL}", [svg(each) for each in reports])


@pytest.mark.parametrize(("width", "dark"), list(itertools.product(WIDTHS, (False, True))))
def test_the_page_of_timelines_scrolls_within_and_executes_nothing(
    width: int, dark: bool, tmp_path: Path, chromium: Browser
) -> None:
    (tmp_path / "timelines.html").write_text(timelines(), encoding="utf-8")
    chromium.look(width, dark=dark)
    chromium.go((tmp_path / "timelines.html").as_uri())
    assert chromium.script(SCROLLS)[0] <= 0
    assert chromium.script("return [window.executed, document.scripts.length, document.images.length]") == [None, 0, 0]
    shown = chromium.script("return document.body.textContent")
    assert "orders�[2K��</title></text><script>window.executed" in shown and "\x1b" not in shown
    heights = chromium.script(
        "return [...document.querySelectorAll('svg text')].map((each) => each.getBoundingClientRect().height)"
    )
    assert min(heights) > 8, "too small to be read"
    page, text = chromium.script(
        "const of = (query, name) => getComputedStyle(document.querySelector(query))[name];"
        "return [of('rect.page', 'fill'), of('svg text.title', 'fill')]"
    )
    assert (page, text) == (
        ("rgb(13, 17, 23)", "rgb(240, 246, 252)") if dark else ("rgb(255, 255, 255)", "rgb(31, 35, 40)")
    )


def test_the_live_screen_is_drawn_whole_and_no_column_of_it_is_cut(tmp_path: Path, chromium: Browser) -> None:
    picture = asyncio.run(runpy.run_path(str(ROOT / "docs" / "pictures" / "top.py"))["take"]())
    (tmp_path / "top.svg").write_text(picture, encoding="utf-8")
    chromium.look(1280)
    chromium.go((tmp_path / "top.svg").as_uri())
    lines = chromium.script(
        "const rows = new Map();"
        "for (const each of document.querySelectorAll('text')) {"
        "  const top = Math.round(each.getBoundingClientRect().top);"
        "  rows.set(top, (rows.get(top) || '') + each.textContent);"
        "} return [...rows.values()];"
    )
    shown = "\n".join(lines).replace("\xa0", " ")
    for heading in ("transactional id", "who ends the oldest", "output held", "transaction"):
        assert heading in shown
    assert "nobody: it hangs" in shown
