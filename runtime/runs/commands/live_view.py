"""The progress of a run: JSON lines for programs, lines for people, a bar on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from perdure.actors.run.status import ENDED
from perdure.runtime.kernel.terminal.text import clipped, one_line, styled
from perdure.runtime.runs.commands.outcome import outcome
from perdure.runtime.runs.commands.show import content

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from perdure.actors.run.views import ExportItem, RunDelta, RunRecord
    from perdure.runtime.kernel.terminal.invocation import Invocation

_BAR: Final = 24  # columns
_LABEL: Final = 20
_BESIDE: Final = _LABEL + _BAR + 22  # columns of a line beside the message
_MOST: Final = 500  # characters of an item that are shown; `perdure export` shows all


class Display(Protocol):
    """Shows the progress of a run."""

    def begin(self, run: RunRecord, cursor: str) -> None:
        """Show the current record."""

    def change(self, change: RunDelta, cursor: str) -> None:
        """Show a change."""

    def item(self, item: ExportItem, cursor: str) -> None:
        """Show an export item."""

    def note(self, text: str) -> None:
        """Show a note to people."""

    def pause(self, *, paused: bool) -> None:
        """Stop drawing while the user types, or draw again."""

    def tick(self) -> None:
        """Update the elapsed time."""

    def end(self, run: RunRecord, cursor: str, trace: str | None) -> None:
        """Show the outcome, and the traceback that is in the log, if there is one."""

    def close(self) -> None:
        """Restore the terminal."""


def display_for(invocation: Invocation) -> Display:
    """Return the display for the output: JSON, terminal or plain lines."""
    if invocation.json:
        return JsonDisplay(invocation)
    return LiveDisplay(invocation) if invocation.is_terminal else PlainDisplay(invocation)


class JsonDisplay:
    """JSON lines, each with the cursor to continue from."""

    def __init__(self, invocation: Invocation) -> None:
        """Write to standard output."""
        self._give = invocation.give

    def begin(self, run: RunRecord, cursor: str) -> None:
        """Print the current record."""
        self._give({"event": "run", "run": run, "cursor": cursor})

    def change(self, change: RunDelta, cursor: str) -> None:
        """Print a change."""
        self._give({"event": "change", "change": change, "cursor": cursor})

    def item(self, item: ExportItem, cursor: str) -> None:
        """Print an export item."""
        self._give({"event": "export", "item": item, "cursor": cursor})

    def note(self, text: str) -> None:
        """Print nothing: notes are for people."""

    def pause(self, *, paused: bool) -> None:
        """Nothing moves by itself."""

    def tick(self) -> None:
        """Nothing moves by itself."""

    def end(self, run: RunRecord, cursor: str, trace: str | None) -> None:  # noqa: ARG002
        """Print the final record."""
        self._give({"event": "end", "run": run, "cursor": cursor})

    def close(self) -> None:
        """Nothing is open."""


class PlainDisplay:
    """Lines for output that is no terminal: one per stage, per tenth and per item."""

    def __init__(self, invocation: Invocation) -> None:
        """Write to standard output."""
        self._say = invocation.say
        self._width = invocation.width or _MOST
        self._tenth = 0
        self._status = ""

    def begin(self, run: RunRecord, cursor: str) -> None:  # noqa: ARG002 - as programs get it
        """Name the run."""
        self._status = run["status"]
        self._say(headline(run))

    def change(self, change: RunDelta, cursor: str) -> None:  # noqa: ARG002
        """Print a new status or stage, and progress once per tenth."""
        if change["status"] != self._status and change["status"] not in ENDED:
            self._status = change["status"]
            self._say(styled(self._status, self._status))
        tenth = int((change["progress"] or 0) * 10)
        if change.get("stage") or tenth > self._tenth:
            self._tenth = max(tenth, self._tenth)
            self._say(clipped(_report(change), self._width))

    def item(self, item: ExportItem, cursor: str) -> None:  # noqa: ARG002
        """Print an item in one line."""
        self._say(clipped(item_line(item), self._width))

    def note(self, text: str) -> None:
        """Print a note."""
        self._say(text)

    def pause(self, *, paused: bool) -> None:
        """Nothing moves by itself."""

    def tick(self) -> None:
        """Nothing moves by itself."""

    def end(self, run: RunRecord, cursor: str, trace: str | None) -> None:  # noqa: ARG002
        """Print the outcome."""
        for line in outcome(run, trace):
            self._say(line)

    def close(self) -> None:
        """Nothing is open."""


class LiveDisplay:
    """A progress bar at the bottom of a terminal; other lines scroll above it."""

    def __init__(self, invocation: Invocation) -> None:
        """Draw nothing before ``begin``."""
        self._invocation = invocation
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._status = ""
        self._paused = False
        self._say: Callable[[str], None] = invocation.say

    def begin(self, run: RunRecord, cursor: str) -> None:  # noqa: ARG002
        """Name the run, and show the bar unless the run has ended."""
        self._status = run["status"]
        self._say(headline(run))
        if run["status"] in ENDED:
            return
        self._progress, console = _bar(color=self._invocation.color)
        self._say = lambda text: console.print(
            text, markup=False, highlight=False, soft_wrap=True, emoji=False
        )
        self._task = self._progress.add_task(
            "",
            total=None,
            label=run["stage"] or run["status"],
            message=self._fitting(run["message"] or ""),
        )
        self._progress.start()
        if run["progress"]:
            self._update(total=1.0, completed=run["progress"])

    def change(self, change: RunDelta, cursor: str) -> None:  # noqa: ARG002
        """Update the bar."""
        shown: dict[str, Any] = {}
        if change["progress"] is not None:
            shown |= {"total": 1.0, "completed": change["progress"]}
        if "stage" in change:
            shown["label"] = one_line(change["stage"] or change["status"])
        elif change["status"] != self._status:
            shown["label"] = change["status"]
        if "message" in change:
            shown["message"] = self._fitting(change["message"] or "")
        self._status = change["status"]
        self._update(**shown)

    def _fitting(self, message: str) -> str:
        """Clip a message so that the line leaves room for typed text."""
        return clipped(one_line(message), max(10, (self._invocation.width or 80) - _BESIDE))

    def _update(self, **shown: Any) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, refresh=not self._paused, **shown)

    def item(self, item: ExportItem, cursor: str) -> None:  # noqa: ARG002
        """Print an item above the bar."""
        self._say(clipped(item_line(item), self._invocation.width or _MOST))

    def note(self, text: str) -> None:
        """Print a note above the bar."""
        self._say(text)

    def pause(self, *, paused: bool) -> None:
        """Hide the bar while the user types."""
        self._paused = paused
        if self._progress is not None:
            if paused:
                self._progress.stop()
            else:
                self._progress.start()

    def tick(self) -> None:
        """Update the elapsed time."""
        self._update()

    def end(self, run: RunRecord, cursor: str, trace: str | None) -> None:  # noqa: ARG002
        """Remove the bar and print the outcome."""
        self.close()
        for line in outcome(run, trace):
            self._invocation.say(line)

    def close(self) -> None:
        """Remove the bar and show the cursor again."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
            self._say = self._invocation.say


def _bar(*, color: bool | None) -> tuple[Progress, Console]:
    """Make a bar that is refreshed by hand, so that it needs no thread."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.table import Column

    console = Console(no_color=color is False, highlight=False)
    rest = Column(no_wrap=True, overflow="ellipsis")
    narrow = Column(no_wrap=True, overflow="ellipsis", max_width=_LABEL)
    progress = Progress(
        TextColumn("{task.fields[label]}", markup=False, style="bold", table_column=narrow),
        BarColumn(bar_width=_BAR),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[message]}", markup=False, table_column=rest),
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,  # what an entry prints is in the log of its run
        redirect_stderr=False,
    )
    return progress, console


def headline(run: RunRecord) -> str:
    """Return the name of a run and of its entry."""
    tries = f"  attempt {run['attempt']}" if run["attempt"] > 1 else ""
    return f"{run['plugin_id']}.{run['entry_id']}  {run['run_id']}{tries}"


def item_line(item: ExportItem) -> str:
    """Return an item as one line."""
    about = f"{item['description']}: " if item["description"] else ""
    return f"  {item['type']}  {one_line(about + content(item)[:_MOST])}"


def _report(change: RunDelta) -> str:
    words = [] if change["progress"] is None else [f"{change['progress']:.0%}"]
    words += [one_line(text or "") for text in (change.get("stage"), change.get("message"))]
    return "  " + " ".join(filter(None, words))
