"""The live screen of `kafka-eos top` (textual): three tables of one picture, and what is missing in it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import ClassVar, Literal

from rich.console import Group, RenderableType
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.tools.cli import query_tables, top_rows, transaction_tables
from spark_kafka_eos.tools.cli.terminal import Text
from spark_kafka_eos.tools.cli.top_rows import MOST_ROWS, Columns, Picture, Row
from spark_kafka_eos.tools.operators.outputs import outputs

SHORTEST_S, LONGEST_S = 0.5, 3600.0


class RowTable(DataTable[Text]):
    """One table: its columns, and how it is sorted now."""

    def __init__(self, title: str, columns: Columns, rows: Callable[[Picture], list[Row]], *, id: str) -> None:  # noqa: A002 - textual's
        super().__init__(cursor_type="row", zebra_stripes=True, id=id)
        self.title, self.columns_shown, self._rows = title, columns, rows
        self.sorted_by, self.reverse = columns.sort, columns.reverse
        self._kept: str | None = None  # the row under the cursor, before the table was emptied

    def on_mount(self) -> None:
        self.show_cursor = self.has_focus
        self._head()

    def on_focus(self) -> None:
        self.show_cursor = True

    def on_blur(self) -> None:
        self.show_cursor = False

    def sort_next(self) -> None:
        """Sort by the next column."""
        self.sorted_by = (self.sorted_by + 1) % len(self.columns_shown.names)
        self._head()

    def turn(self) -> None:
        """Sort in the other direction."""
        self.reverse = not self.reverse
        self._head()

    def fill(self, picture: Picture, text: str) -> None:
        """Show a picture; the cursor stays on its row."""
        at = self.row_key or self._kept
        rows = self._rows(picture)
        selected = top_rows.chosen(rows, text=text, column=self.sorted_by, reverse=self.reverse)
        self.clear()
        for row in selected[:MOST_ROWS]:
            cells = zip(self.columns_shown.names, row.cells, strict=True)
            self.add_row(*(Text(cell, row.style, justify=self._side(name)) for name, cell in cells), key=row.key)
        if at is not None and at in self.rows:
            self.move_cursor(row=self.get_row_index(at))
        more = len(selected) - MOST_ROWS
        count = f"{len(selected)} of {len(rows)}" if len(selected) < len(rows) else f"{len(rows)}"
        self.border_title = f"{self.title}: {count}" + (f", the first {MOST_ROWS} shown" if more > 0 else "")

    @property
    def row_key(self) -> str | None:
        """The key of the row under the cursor; None if there is no row."""
        if not self.row_count:
            return None
        return str(self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value)

    def _head(self) -> None:
        self._kept = self.row_key
        self.clear(columns=True)
        arrow = "↓" if self.reverse else "↑"
        for at, name in enumerate(self.columns_shown.names):
            label = f"{name} {arrow}" if at == self.sorted_by else name
            self.add_column(Text(label, justify=self._side(name)), key=name)

    def _side(self, name: str) -> Literal["left", "right"]:
        return "right" if name in self.columns_shown.numbers else "left"


class Details(ModalScreen[None]):
    """Everything about one row."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,d,enter", "dismiss", "Back")]

    def __init__(self, content: RenderableType) -> None:
        super().__init__()
        self._details = content

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="details"):
            yield Static(self._details)


class Top(App[None]):
    """Looks again and again, in a thread of its own. While nobody answers, the last picture stays, and says so.

    `look` returns a picture, or raises KafkaEosError; `clock` returns seconds since 1970.
    """

    TITLE = "kafka-eos top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #status { height: auto; padding: 0 1; background: $panel; }
    #status.stale { background: $error; color: $text; }
    #filter { display: none; }
    #filter.shown { display: block; }
    RowTable { border: round $primary; height: 1fr; }
    RowTable:focus { border: round $accent; }
    Details { align: center middle; }
    #details { width: 90%; height: 80%; border: round $accent; background: $surface; padding: 1 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("s", "sort", "Sort by next column"),
        ("r", "reverse", "Reverse"),
        ("slash", "filter", "Filter"),
        ("d", "describe", "Describe"),
        ("space", "pause", "Pause"),
        ("plus", "slower", "Slower"),
        ("minus", "faster", "Faster"),
    ]

    def __init__(self, look: Callable[[], Picture], *, seconds: float, clock: Callable[[], float]) -> None:
        super().__init__()
        self._look, self._seconds, self._clock = look, seconds, clock
        self._picture: Picture | None = None
        self._text = ""
        self._paused = self._looking = False
        self._trouble: tuple[float, str] | None = None  # since when, and the last error

    def compose(self) -> ComposeResult:
        yield Static("", id="status")
        yield Input(placeholder="filter: a part of an id, a topic or a state; Enter to keep it", id="filter")
        yield RowTable("Open transactions", top_rows.TRANSACTIONS, top_rows.transaction_rows, id="transactions")
        yield RowTable("Held partitions", top_rows.PARTITIONS, top_rows.partition_rows, id="partitions")
        yield RowTable("Queries", top_rows.QUERIES, top_rows.query_rows, id="queries")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#transactions").focus()
        self._timer = self.set_interval(self._seconds, self.look_again)
        self.look_again()

    # -- looking

    def look_again(self) -> None:
        """Look, unless the last look has not ended yet."""
        if not (self._looking or self._paused):
            self._looking = True
            self.run_worker(self._look_once, thread=True)
        self._tell()  # for how long nobody has answered

    def _look_once(self) -> None:
        began = self._clock()
        try:
            picture = self._look()
        except KafkaEosError as error:
            self.call_from_thread(self._failed, began, error.what)
        else:
            self.call_from_thread(self._seen, picture)

    def _seen(self, picture: Picture) -> None:
        self._looking, self._trouble, self._picture = False, None, picture
        self._fill()

    def _failed(self, began: float, what: str) -> None:
        self._looking = False
        self._trouble = self._trouble[0] if self._trouble else began, what
        self._tell()

    # -- showing

    def _fill(self) -> None:
        if self._picture is not None:
            for table in self.query(RowTable):
                table.fill(self._picture, self._text)
        self._tell()

    def _tell(self) -> None:
        status = self.query_one("#status", Static)
        status.set_class(self._trouble is not None, "stale")
        status.update(Text(" · ".join(self._status())))

    def _status(self) -> list[str]:
        parts = []
        if self._trouble is not None:
            since, what = self._trouble
            parts.append(f"no answer since {_time(since)}: {what}")
        if self._picture is None:
            parts.append("no picture yet")
        else:
            parts.append(f"as of {_time(self._picture.survey.taken_ms / 1e3)}")
        parts.append("paused" if self._paused else f"every {self._seconds:g} s")
        if self._text:
            parts.append(f"filter: {self._text}")
        return parts + ([] if self._picture is None else top_rows.remarks(self._picture))

    # -- keys

    @property
    def _table(self) -> RowTable:
        focused = self.focused
        return focused if isinstance(focused, RowTable) else self.query_one("#transactions", RowTable)

    def action_sort(self) -> None:
        self._table.sort_next()
        self._fill()

    def action_reverse(self) -> None:
        self._table.turn()
        self._fill()

    def action_filter(self) -> None:
        entry = self.query_one("#filter", Input)
        entry.add_class("shown")
        entry.focus()

    def on_input_changed(self, changed: Input.Changed) -> None:
        self._text = changed.value
        self._fill()

    def on_input_submitted(self) -> None:
        self.query_one("#filter").remove_class("shown")
        self.query_one("#transactions").focus()

    def on_data_table_row_selected(self) -> None:
        self.action_describe()

    def action_describe(self) -> None:
        table, picture = self._table, self._picture
        key = table.row_key
        if key is not None and picture is not None:
            self.push_screen(Details(describe(picture, str(table.id), key)))

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._tell()

    def action_slower(self) -> None:
        self._every(self._seconds * 2)

    def action_faster(self) -> None:
        self._every(self._seconds / 2)

    def _every(self, seconds: float) -> None:
        self._seconds = min(max(seconds, SHORTEST_S), LONGEST_S)
        self._timer.stop()
        self._timer = self.set_interval(self._seconds, self.look_again)
        self._tell()


def describe(picture: Picture, table: str, key: str) -> RenderableType:
    """Everything in the picture about a row of a table."""
    survey = picture.survey
    if table == "partitions":
        parts = [part for part in survey.open_parts if str(part.partition) == key]
        return Group(
            Text(key, "bold"),
            transaction_tables.parts(survey, [(part.partition, part) for part in parts]),
            *(Text(_owner(part.partition, part.facts is None), "dim") for part in parts[:1]),
            *(Text(part.end_command) for part in parts if part in survey.hanging),
        )
    if table == "queries":
        row = next(query for query in picture.queries if query.transactional_id == key)
        return query_tables.description(row, survey.taken_ms, written=outputs(row.outputs, survey))
    return transaction_tables.description(survey, survey.transactions[key])


def _owner(partition: TopicPartition, unknown: bool) -> str:
    return f"No coordinator lists the oldest producer of {partition}." if unknown else ""


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S UTC")
