"""The outbox of an execution: all that leaves for people's eyes is redacted on its way in.

On its way in, because what is known of an item, like the fingerprint by which it is recognised
after a crash, is made from what is written and never from what was redacted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.actors.run.outbox import Outbox

if TYPE_CHECKING:
    from perdure.actors.run.history import History
    from perdure.runtime.execution.run_secrets import RunRedactor

TRACE: Final = "trace_id"


class RunOutbox(Outbox):
    """Outputs of a run, without its secrets and with its trace."""

    def __init__(
        self,
        redactor: RunRedactor,
        trace_id: str | None,
        history: History,
        started_at: int,
        *,
        progress_items: bool = False,
    ) -> None:
        """Begin with what earlier activations recorded."""
        super().__init__(history, started_at, progress_items=progress_items)
        self._redactor = redactor
        self._trace_id = trace_id

    def progress(self, progress: float, message: str | None, now: int) -> None:
        """Report progress; the latest report wins."""
        super().progress(progress, self._redactor.maybe_text(message), now)

    def stage(self, stage: str, message: str | None, now: int) -> None:
        """Name what the work is doing; the latest name wins."""
        super().stage(self._redactor.text(stage), self._redactor.maybe_text(message), now)

    def log(self, level: str, text: str, now: int) -> None:
        """Log a line; it is cut only after it was redacted."""
        super().log(self._redactor.text(level), self._redactor.text(text), now)

    def export(self, kind: str, content: Any, now: int, **more: Any) -> int:  # noqa: ANN401
        """Put out an item; give its number.

        Bytes are never altered, and neither is a key, by which code finds an item again: with a
        secret in them they are refused.
        """
        redactor = self._redactor
        redactor.refuse("the key of an export", more.get("key"))
        if isinstance(content, bytes):
            redactor.refuse("an export of bytes", content)
        else:
            content = redactor.value(content)
        more = {
            name: part if name == "key" else redactor.value(part) for name, part in more.items()
        }
        if self._trace_id is not None:
            more["metadata"] = {TRACE: self._trace_id, **(more.get("metadata") or {})}
        return super().export(kind, content, now, **more)
