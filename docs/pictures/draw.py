"""Draw the README's picture, once for light pages and once for dark ones: `python docs/pictures/draw.py`.

One micro-batch, many executors, one transaction. The SVG is written by hand, so it needs no package and stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

WIDTH, HEIGHT = 900, 380
PALETTES: Mapping[str, Mapping[str, str]] = {
    "light": {"text": "#1f2328", "quiet": "#59636e", "line": "#59636e", "box": "#ffffff", "area": "#f6f8fa",
              "spark": "#c2410c", "kafka": "#0e7490", "open": "#15803d"},
    "dark": {"text": "#f0f6fc", "quiet": "#9198a1", "line": "#9198a1", "box": "#0d1117", "area": "#161b22",
             "spark": "#fb923c", "kafka": "#22d3ee", "open": "#4ade80"},
}  # fmt: skip
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"


def picture(palette: Mapping[str, str]) -> str:
    """The whole SVG."""
    shapes = [*_source(palette), *_spark(palette), *_transaction(palette), *_arrows(palette)]
    title = "One micro-batch: all executors append to one Kafka transaction, which the driver commits"
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' {FONT} role='img'>",
            f"<title>{title}</title>",
            "<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' "
            f"orient='auto'><path d='M0 0L8 4L0 8z' fill='{palette['line']}'/></marker></defs>",
            *shapes,
            "</svg>\n",
        ]
    )


def _source(palette: Mapping[str, str]) -> list[str]:
    boxes = [_box(palette, 32, 72 + 52 * n, 132, 38, f"partition {n}") for n in range(4)]
    return [_area(palette, 16, 20, 164, 274, "kafka", "Source topic"), *boxes]


def _spark(palette: Mapping[str, str]) -> list[str]:
    executors = [_box(palette, 276, 68 + 58 * n, 204, 46, f"executor {n + 1}", "encode and append") for n in range(3)]
    driver = _box(palette, 276, 250, 204, 98, "driver", "check the appends, commit")
    return [_area(palette, 258, 20, 240, 340, "spark", "Spark: micro-batch 42"), *executors, driver]


def _transaction(palette: Mapping[str, str]) -> list[str]:
    dashed = (
        f"<rect x='580' y='20' width='304' height='340' rx='12' fill='{palette['area']}' stroke='{palette['open']}' "
        "stroke-width='2.5' stroke-dasharray='9 6'/>"
    )
    return [
        dashed,
        _text(732, 46, "One Kafka transaction", palette["open"], 16, "bold"),
        _text(732, 64, "transactional.id, producer ID, epoch", palette["quiet"], 12),
        *[_box(palette, 600, 76 + 56 * n, 264, 38, f"output partition {n}: records") for n in range(3)],
        _box(palette, 600, 246, 264, 46, "source offsets and ledger entry", "batch 42 is done, up to these offsets"),
        _box(palette, 600, 304, 264, 46, "EndTxn (commit)", "everything becomes visible together"),
    ]


def _arrows(palette: Mapping[str, str]) -> list[str]:
    reads = [(164, 91 + 52 * n, 276, 91 + 58 * min(n, 2) + (12 if n == 3 else 0)) for n in range(4)]
    appends = [(480, 91 + 58 * n, 600, 95 + 56 * n) for n in range(3)]
    commits = [(480, 274, 600, 269), (480, 322, 600, 327)]
    return [
        f"<path d='M{x1} {y1}C{(x1 + x2) // 2} {y1} {(x1 + x2) // 2} {y2} {x2} {y2}' fill='none' "
        f"stroke='{palette['line']}' stroke-width='1.6' marker-end='url(#tip)'/>"
        for x1, y1, x2, y2 in (*reads, *appends, *commits)
    ]


def _area(palette: Mapping[str, str], x: int, y: int, width: int, height: int, hue: str, title: str) -> str:
    frame = (
        f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='12' fill='{palette['area']}' "
        f"stroke='{palette[hue]}' stroke-width='1.5'/>"
    )
    return frame + _text(x + width // 2, y + 26, title, palette[hue], 16, "bold")


def _box(palette: Mapping[str, str], x: int, y: int, width: int, height: int, name: str, remark: str = "") -> str:
    frame = (
        f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='6' fill='{palette['box']}' "
        f"stroke='{palette['line']}'/>"
    )
    middle, centre = x + width // 2, y + height // 2
    if not remark:
        return frame + _text(middle, centre + 5, name, palette["text"], 14)
    below = _text(middle, centre + 15, remark, palette["quiet"], 12)
    return frame + _text(middle, centre - 2, name, palette["text"], 14) + below


def _text(x: int, y: int, words: str, colour: str, size: int, weight: str = "normal") -> str:
    return (
        f"<text x='{x}' y='{y}' fill='{colour}' font-size='{size}' font-weight='{weight}' "
        f"text-anchor='middle'>{words}</text>"
    )


if __name__ == "__main__":
    for name, palette in PALETTES.items():
        (Path(__file__).parent / f"transaction-{name}.svg").write_text(picture(palette))
