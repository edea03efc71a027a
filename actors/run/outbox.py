"""The outbox: what an execution has put out and not yet handed over.

Progress and stage are thinned (``perdure.actors.run.reports``), and the last ones always leave; of
a text that is too long for its report the beginning leaves, with a mark. Log lines beyond a bound
are counted and dropped. Exports and results are never dropped; one that an earlier activation has
recorded is recognised and not put out again. Pure: the caller says what time it is.

An entry that is called again after a crash repeats its reports from the beginning. They are muted
until it is past what was recorded: it comes by the last recorded step, or the log has something
new of it (the outcome of another step, another item), or it reports progress beyond all that was
recorded, or a stage that never was. A version of the plugin that was loaded since may not have the
last recorded step; where it has not, one of the others tells. That a new step begins tells nothing:
recorded steps may be inside of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.actors.errors import Invalid
from perdure.actors.run.events import ExportAppended, ProgressReported, ResultMarked
from perdure.actors.run.history import History, fingerprint, ref_of
from perdure.actors.run.log_lines import LogLines
from perdure.actors.run.output import check_output, check_progress, checked_size, readable
from perdure.actors.run.report_bounds import MAX_LABEL, MAX_MESSAGE, shortened
from perdure.actors.run.reports import Reports
from perdure.eventlog.errors import CodecError

if TYPE_CHECKING:
    from perdure.actors.run.events import Output, QuestionAsked

PROGRESS_ITEMS: Final = 500_000_000  # nanoseconds between two exports of progress, if wanted
_PROGRESS_KEY: Final = "perdure.progress-"
MAX_ITEMS: Final = 64  # exports that wait; more make the entry wait
MAX_BYTES: Final = 256 << 10


class Outbox:
    """Outputs that wait for the next flush."""

    def __init__(self, history: History, started_at: int, *, progress_items: bool = False) -> None:
        """Begin with what earlier activations recorded.

        With ``progress_items`` progress is exported too, now and then, for people who read along.
        """
        self._progress_items = progress_items
        self._next_progress_item = 0
        self._history = history
        self._reports = Reports(started_at)
        self._lines = LogLines(started_at)
        self._items: list[Output] = []
        self._bytes = 0
        self._exports = history.exports
        self._occurrences: dict[str, int] = {}
        self._keyed = dict(history.keyed)
        self._refs = dict(history.refs)
        self._is_muted = history.last is not None
        self.marked_a_result = False

    # What the entry puts out

    def progress(self, progress: float, message: str | None, now: int) -> None:
        """Report progress; the latest report wins."""
        check_progress(progress)
        message = _message(message)
        if self._hears(is_new=progress > self._history.progress):
            self._reports.progress(float(progress), message, now)

    def stage(self, stage: str, message: str | None, now: int) -> None:
        """Name what the work is doing; the latest name wins."""
        message = _message(message)
        stage = shortened(readable(stage, "a stage"), MAX_LABEL)
        if self._hears(is_new=stage not in self._history.stages):
            self._reports.stage(stage, message, now)

    def ask(self, asked: QuestionAsked, stage: str, message: str | None) -> None:
        """Put out a question; its stage takes the place of the one that waits, at once."""
        self._items.append(asked)
        self._is_muted = False
        self._reports.stage(stage, message, asked.at)
        self._reports.open_window()

    def reached(self, step: str) -> None:
        """Come by a step that has its outcome in the log, from before a crash or from now."""
        self._hears(is_new=step == self._history.last or not self._history.has(step))

    def _hears(self, *, is_new: bool) -> bool:
        """Tell whether reports are heard; once there is something new, they are."""
        self._is_muted = self._is_muted and not is_new
        return not self._is_muted

    def drop_stage(self, stage: str) -> None:
        """Forget a stage that waits: it is over."""
        self._reports.drop_stage(stage)

    def log(self, level: str, text: str, now: int) -> None:
        """Log a line; surplus lines are counted and dropped."""
        self._lines.add(level, text, now)

    @property
    def is_flooded(self) -> bool:
        """Whether the entry logs more than anybody can mean."""
        return self._lines.is_flood

    def export(self, kind: str, content: Any, now: int, **more: Any) -> int:  # noqa: ANN401
        """Put out an item; give its number, which is an old one if it was recorded before."""
        key = more.get("key")
        try:
            mark = fingerprint(kind, content)
        except CodecError as error:
            raise Invalid(f"an export cannot hold this: {error}") from error
        known, occurrence = self._known(key, mark)
        if known is not None:
            return known
        number = self._exports + 1
        item = ExportAppended(
            number=number,
            type=kind,
            fingerprint=mark,
            occurrence=occurrence,
            at=now,
            **{kind: content},
            **more,
        )
        check_output(item, self._exports)
        self._bytes += checked_size(item)
        self._exports = number
        self._refs[number] = ref_of(item)
        self._is_muted = False
        if key is not None:
            self._keyed[key] = number
        self._items.append(item)
        return number

    def number_of(self, key: str | None) -> int | None:
        """Give the number of the item with a key, if there is one."""
        return None if key is None else self._keyed.get(key)

    def result(self, numbers: tuple[int, ...], now: int) -> None:
        """Mark the result; the latest marking counts."""
        check_output(ResultMarked(items=numbers, at=now), self._exports)
        refs = tuple(self._refs[number] for number in numbers)
        marked = ResultMarked(items=numbers, refs=refs, at=now)
        checked_size(marked)
        self._items.append(marked)
        self.marked_a_result = True

    def _known(self, key: str | None, mark: str) -> tuple[int | None, int]:
        if key is not None:
            if not isinstance(key, str) or not key:
                raise Invalid("an export's key is a text that is not empty")
            return self._keyed.get(key), 0
        occurrence = self._occurrences[mark] = self._occurrences.get(mark, 0) + 1
        return self._history.equal.get((mark, occurrence)), occurrence

    # What leaves

    @property
    def exports(self) -> int:
        """How many items the run has put out, those that still wait here included."""
        return self._exports

    @property
    def is_full(self) -> bool:
        """Whether the entry has to wait before it exports more."""
        return len(self._items) >= MAX_ITEMS or self._bytes >= MAX_BYTES

    @property
    def has_items(self) -> bool:
        """Whether items or lines wait, which wait for no window."""
        return bool(self._items or self._lines)

    def due(self, now: int) -> int | None:
        """When the next flush is worth it; None if nothing waits."""
        if self._items or self._lines:
            return now
        return self._reports.due(now) if self._reports else None

    def take(self, now: int, *, last: bool = False) -> tuple[Output, ...]:
        """Take what may leave now; with ``last``, everything."""
        taken: list[Output] = []
        report = self._reports.take(now, last=last)
        if isinstance(report, ProgressReported):
            self._export_progress(report, now)
        if (lines := self._lines.take(now, last=last)) is not None:
            taken.append(lines)
        taken.extend(self._items)
        if report is not None:
            taken.append(report)
        self._items, self._bytes = [], 0
        return tuple(taken)

    def stored(self, at: int) -> None:
        """Know when what was taken last was stored."""
        self._reports.stored(at)

    def _export_progress(self, report: ProgressReported, now: int) -> None:
        """Put progress among the items, if that is wanted and the last time is long ago."""
        if self._progress_items and now >= self._next_progress_item:
            self._next_progress_item = now + PROGRESS_ITEMS
            text = report.message or f"{report.progress:.0%}"
            key = f"{_PROGRESS_KEY}{self._exports + 1}"  # one that no export of the entry's has
            self.export("text", text, now, key=key, metadata={"progress": report.progress})


def _message(message: str | None) -> str | None:
    return None if message is None else shortened(readable(message, "a message"), MAX_MESSAGE)
