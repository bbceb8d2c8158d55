"""Draws a batch's timeline: an SVG picture, and an HTML page of several. Both are complete in themselves.

Nothing is loaded from elsewhere, no script runs, and the reader's preference decides between light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.kafka.protocol.trace import Phase, Request, Rpc
from spark_kafka_eos.kafka.words import one_line

_WIDTH, _NAMES, _PLOT, _RIGHT, _ROW, _TOP = 1000, 262, 340, 30, 22, 66
_ROWS = 80  # of RPCs
_TICKS = 8

_STYLE = """
svg { --page: #ffffff; --text: #1f2328; --quiet: #59636e; --grid: #d1d9e0; --spark: #8c959f; --phase: #0e7490;
      --rpc: #2a78d6; --failed: #c2410c; color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  svg { --page: #0d1117; --text: #f0f6fc; --quiet: #9198a1; --grid: #3d444d; --spark: #6e7781; --phase: #22b8cf;
        --rpc: #539bf5; --failed: #fb923c; }
}
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--text); }
svg .quiet { fill: var(--quiet); } svg .title { font-size: 15px; font-weight: 600; }
svg .grid { stroke: var(--grid); } svg .wait { stroke: var(--failed); stroke-dasharray: 2 3; }
svg .spark { fill: var(--spark); } svg .phase { fill: var(--phase); } svg .rpc { fill: var(--rpc); }
svg .failed { fill: var(--failed); } svg .page { fill: var(--page); } svg .error { fill: var(--failed); }
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px system-ui, sans-serif; margin: 2rem auto; max-width: 1040px; padding: 0 1rem; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #0d1117; color: #f0f6fc; }} }}
h1 {{ overflow-wrap: break-word; }}
.timeline {{ overflow-x: auto; }}
svg {{ width: 100%; min-width: 720px; height: auto; }}
</style></head><body><h1>{title}</h1>
{pictures}
</body></html>
"""


def html(title: str, pictures: Iterable[str]) -> str:
    """A page with these pictures (`svg`)."""
    drawings = "\n".join(f'<div class="timeline">\n{picture}</div>' for picture in pictures)
    return _PAGE.format(title=_escaped(title), pictures=drawings)


def _escaped(text: str) -> str:
    """`text` for the page: XML has no control characters, and marks of direction could turn what stands beside it."""
    return escape(one_line(text))


def svg(report: CommitReport, spark: Sequence[Phase] = ()) -> str:
    """The timeline of one batch: Spark's phases of the trigger, if they are known, the batch's own, and each RPC.

    Of more than 80 RPCs, those that were retried or failed are shown, and the longest.
    """
    rpcs, left_out = _rpcs_to_draw(report.trace.rpcs())
    phases = [*spark, *report.trace.phases]
    scale = _Scale([*phases, *report.trace.requests])
    rows = [*(_phase_row(phase, "spark", "Spark: ", scale) for phase in spark)]
    rows += [_phase_row(phase, "phase", "", scale) for phase in report.trace.phases]
    rows += [_rpc_row(rpc, scale) for rpc in rpcs]
    left_out += report.trace.left_out
    if left_out:
        rows.append(_text(_NAMES, f"and {left_out} others", "quiet", anchor="end", y=15))
    height = _TOP + _ROW * len(rows) + 12
    drawn = [f"<g transform='translate(0 {_TOP + _ROW * number})'>{row}</g>" for number, row in enumerate(rows)]
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' role='img'>",
            f"<title>{_escaped(heading(report))}</title><style>{_STYLE}</style>",
            f"<rect class='page' width='{_WIDTH}' height='{height}'/>",
            f"<g transform='translate(0 22)'>{_text(12, heading(report), 'title')}</g>",
            *scale.grid(height),
            *drawn,
            "</svg>\n",
        ]
    )


def heading(report: CommitReport) -> str:
    """What became of the batch, in a line."""
    records = f", {report.records} records" if report.outcome == "committed" else ""
    why = f" ({report.error})" if report.error else ""
    return f"Batch {report.batch_id} {report.outcome}{why}{records}, {report.trace.milliseconds:.0f} ms"


class _Scale:
    """Milliseconds to horizontal positions, for everything that is drawn."""

    def __init__(self, spans: Sequence[Phase | Request]) -> None:
        self._start = min([0.0, *(span.start for span in spans)])
        self._end = max([self._start + 1.0, *(span.start + span.milliseconds for span in spans)])

    def at(self, milliseconds: float) -> float:
        share = (milliseconds - self._start) / (self._end - self._start)
        return round(_PLOT + share * (_WIDTH - _PLOT - _RIGHT), 1)

    def grid(self, height: int) -> list[str]:
        """Vertical lines at round times, each with its time."""
        rough = (self._end - self._start) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        drawn = []
        for number in range(math.ceil(self._start / step), math.floor(self._end / step) + 1):
            at = self.at(number * step)
            drawn.append(f"<line class='grid' x1='{at}' x2='{at}' y1='{_TOP - 12}' y2='{height - 8}'/>")
            drawn.append(
                f"<text class='quiet' x='{at}' y='{_TOP - 18}' text-anchor='middle'>{number * step:g} ms</text>"
            )
        return drawn


def _rpcs_to_draw(rpcs: Sequence[Rpc]) -> tuple[list[Rpc], int]:
    """The RPCs to draw, by start, and how many others there are."""
    kept = sorted(rpcs, key=lambda rpc: (not (rpc.retries or rpc.last.error), -rpc.milliseconds))[:_ROWS]
    return sorted(kept, key=lambda rpc: rpc.first.start), len(rpcs) - len(kept)


def _phase_row(phase: Phase, kind: str, prefix: str, scale: _Scale) -> str:
    name = f"{prefix}{phase.name}"
    return _row(name, phase.milliseconds) + _bar(phase, kind, f"{name}: {phase.milliseconds:.0f} ms", scale)


def _rpc_row(rpc: Rpc, scale: _Scale) -> str:
    first, last = rpc.first, rpc.last
    task = "" if first.task is None else f"task {first.task}: "
    name = f"{task}{first.api} {first.about}".rstrip()
    drawn = [_row(name, rpc.milliseconds)]
    if len(rpc.attempts) > 1:
        start, end, middle = scale.at(first.start), scale.at(last.start), _ROW // 2
        drawn.append(f"<line class='wait' x1='{start}' x2='{end}' y1='{middle}' y2='{middle}'/>")
    for attempt in rpc.attempts:
        title = f"{name} at {attempt.node}: {attempt.milliseconds:.1f} ms {attempt.error}".rstrip()
        drawn.append(_bar(attempt, "failed" if attempt.error else "rpc", title, scale))
    errors = [f"{error} × {count}" if count > 1 else error for error, count in rpc.retries.items()]
    errors += [last.error] if last.error else []
    drawn.append(_beside(scale.at(first.start), scale.at(last.start + last.milliseconds), ", ".join(errors)))
    return "".join(drawn)


def _row(name: str, milliseconds: float) -> str:
    cut = name if len(name) <= 40 else f"{name[:39]}…"
    took = f"{milliseconds:.1f}" if milliseconds < 10 else f"{milliseconds:.0f}"
    return _text(_NAMES, cut, anchor="end", y=15) + _text(_PLOT - 12, f"{took} ms", "quiet", anchor="end", y=15)


def _beside(start: float, end: float, errors: str) -> str:
    """The errors on the side of the bars that has more room."""
    if _WIDTH - end >= start - _PLOT:
        return _text(end + 6, errors, "error", y=15)
    return _text(start - 6, errors, "error", anchor="end", y=15)


def _text(x: float, text: str, kind: str = "", anchor: str = "start", y: int = 0) -> str:
    return f"<text class='{kind}' x='{x}' y='{y}' text-anchor='{anchor}'>{_escaped(text)}</text>" if text else ""


def _bar(span: Phase | Request, kind: str, title: str, scale: _Scale) -> str:
    start, end = scale.at(span.start), scale.at(span.start + span.milliseconds)
    width = max(round(end - start, 1), 2)
    box = f"<rect class='{kind}' x='{start}' y='4' width='{width}' height='{_ROW - 8}' rx='2'>"
    return f"{box}<title>{_escaped(title)}</title></rect>"
