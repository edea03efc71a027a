"""An event of a channel: what it shows of a record, encoded once a format and shared by all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cbor2
import msgspec

if TYPE_CHECKING:
    from perdure.eventlog.record import Mark


class ChannelEvent:
    """An event at a place in the log.

    ``subject`` is what it is a change of. Of a report only the newest news count, so it may be told
    by the next event on its subject instead. A listed one tells what is there at its place, and not
    what was recorded there.
    """

    __slots__ = (
        "_cbor",
        "_event",
        "_field",
        "_json",
        "_mark",
        "is_listed",
        "is_report",
        "kind",
        "subject",
    )

    kind: str  # as clients tell it from others of the same channel
    subject: str | None
    is_report: bool
    is_listed: bool
    _json: bytes | None
    _cbor: bytes | None

    def __init__(
        self,
        kind: str,
        mark: Mark,
        event: Any,  # noqa: ANN401 - whatever its channel shows
        *,
        subject: str | None = None,
        is_report: bool = False,
        is_listed: bool = False,
        field: str | None = None,
    ) -> None:
        """Nothing is encoded before somebody asks. In a ``field`` it is an object with that one."""
        self.kind = kind
        self._mark = mark
        self.subject = subject
        self.is_report = is_report
        self.is_listed = is_listed
        self._field = field
        self._event = event
        self._json = self._cbor = None

    @property
    def mark(self) -> Mark:
        """The place in the log."""
        return self._mark

    def as_event(self) -> Any:  # noqa: ANN401 - whatever its channel shows
        """Give the event itself."""
        return self._event if self._field is None else {self._field: self._event}

    def after(self, report: ChannelEvent) -> ChannelEvent:
        """Give this event with what a report before it has told and this one does not say anew."""
        return ChannelEvent(
            self.kind,
            self._mark,
            {**report._event, **self._event},
            subject=self.subject,
            is_report=self.is_report,
            field=self._field,
        )

    @property
    def json(self) -> bytes:
        """The event as JSON, in one line."""
        if self._json is None:
            self._json = msgspec.json.encode(self.as_event())
        return self._json

    @property
    def cbor(self) -> bytes:
        """The event as CBOR."""
        if self._cbor is None:
            self._cbor = cbor2.dumps(self.as_event())
        return self._cbor
