"""An event of a channel: what it shows of a record, encoded once a format and shared by all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cbor2
import msgspec

if TYPE_CHECKING:
    from perdure.eventlog.record import Mark


class ChannelEvent:
    """An event at a place in the log.

    ``report`` names what it reports on, if only the newest report on that is of interest. A listed
    one tells what is there at its place, and not what was recorded there.
    """

    __slots__ = ("_cbor", "_event", "_json", "_mark", "is_listed", "kind", "report")

    kind: str  # as clients tell it from others of the same channel
    report: tuple[str, str] | None
    is_listed: bool
    _json: bytes | None
    _cbor: bytes | None

    def __init__(
        self,
        kind: str,
        mark: Mark,
        event: Any,  # noqa: ANN401 - whatever its channel shows
        *,
        report: tuple[str, str] | None = None,
        is_listed: bool = False,
    ) -> None:
        """Nothing is encoded before somebody asks."""
        self.kind = kind
        self._mark = mark
        self.report = report
        self.is_listed = is_listed
        self._event = event
        self._json = self._cbor = None

    @property
    def mark(self) -> Mark:
        """The place in the log."""
        return self._mark

    def as_event(self) -> Any:  # noqa: ANN401 - whatever its channel shows
        """Give the event itself."""
        return self._event

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
