"""What people see while a server starts."""

from __future__ import annotations

import io
import logging

import pytest
import trio
from trio.testing import MockClock

from perdure.runtime.cli.start_up_display import StartUpDisplay
from perdure.runtime.kernel.opening import StartUp


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
async def test_a_short_start_shows_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, stream: io.StringIO
) -> None:
    """Neither on a terminal nor in the log."""
    caplog.set_level(logging.INFO)
    display = StartUpDisplay(StartUp(), stream)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(display.run)
        await trio.sleep(0.5)
        display.opened()
    assert (stream.getvalue(), caplog.messages) == ("", [])


async def test_a_terminal_shows_one_line_that_is_updated(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Until the server is ready; what goes on then is logged, and nothing stays on the screen."""
    caplog.set_level(logging.INFO)
    start_up, terminal = StartUp(), Terminal()
    begun = trio.current_time()
    start_up.watch("runs taken up", lambda: (round(100 * (trio.current_time() - begun)), 1000))
    display = StartUpDisplay(start_up, terminal)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(display.run)
        await trio.sleep(3.05)
        display.opened()
    shown = terminal.getvalue().split("\r\x1b[2K")
    assert shown[1] == "starting: 100 of 1,000 runs taken up"
    assert shown[-2] == "starting: 300 of 1,000 runs taken up"
    assert shown[-1] == ""
    assert "\n" not in terminal.getvalue()
    assert caplog.messages == [
        "starting: 320 of 1,000 runs taken up",
        "starting: 820 of 1,000 runs taken up",
    ]


async def test_elsewhere_lines_are_logged(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Every few seconds, so that a log does not fill with them; a stop ends them."""
    caplog.set_level(logging.INFO)
    start_up, stream = StartUp(), io.StringIO()
    start_up.watch("records in the list of runs", lambda: (7, 1_000_000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(StartUpDisplay(start_up, stream).run)
        await trio.sleep(12)
        start_up.stopping.set()
    assert stream.getvalue() == ""
    assert caplog.messages == ["starting: 7 of 1,000,000 records in the list of runs"] * 3
