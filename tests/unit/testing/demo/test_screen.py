"""Where there is no terminal the demo still tells what happens, in a few lines; the table marks what is off."""

import io

from rich.console import Console

from spark_kafka_eos.testing.demo.check import Figure
from spark_kafka_eos.testing.demo.screen import Screen, table


def console() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=100), out


def test_a_plain_log_gets_a_line_per_fifth_of_the_input() -> None:
    plain, out = console()
    with Screen(plain) as screen:
        screen.expect_flights(1_000)
        for sent in range(0, 1_001, 10):
            screen.sent(sent)
    lines = out.getvalue().splitlines()
    assert len(lines) == 5
    assert lines[-1].endswith("departures sent: 1,000 of about 1,000")


def test_kills_are_numbered() -> None:
    plain, out = console()
    with Screen(plain) as screen:
        screen.expect_kills(2)
        screen.killed("first")
        screen.killed("second")
    assert [line.split("s  ")[1] for line in out.getvalue().splitlines()] == ["kill 1: first", "kill 2: second"]


def test_a_long_silence_is_broken_by_what_is_being_done_and_for_how_long() -> None:
    plain, out = console()
    now = [0.0]
    with Screen(plain, clock=lambda: now[0]) as screen:
        for second in range(60):
            now[0] = float(second)
            screen.doing("Spark starts" if second < 10 else "Spark plans batch 0")
    said = [line.split("s  ", 1)[1] for line in out.getvalue().splitlines()]
    assert said == [f"Spark plans batch 0 (for {seconds} s)" for seconds in (5, 20, 35)]


def test_a_terminal_shows_what_is_being_done_below_the_bars() -> None:
    out = io.StringIO()
    with Screen(Console(file=out, width=100, force_terminal=True)) as screen:
        screen.expect_batches(6)
        screen.doing("the job computes and writes batch 3")
    assert "now: the job computes and writes batch 3" in out.getvalue()


def test_the_table_marks_each_figure() -> None:
    plain, out = console()
    plain.print(table([Figure(name="missing", expected=0, actual=0), Figure(name="duplicates", expected=0, actual=3)]))
    text = {line.split("│")[1].strip(): line for line in out.getvalue().splitlines() if "│" in line}
    assert "ok" in text["missing"]
    assert "WRONG" in text["duplicates"]
