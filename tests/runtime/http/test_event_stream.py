"""The bytes of a stream of events, without any I/O."""

from __future__ import annotations

from perdure.eventlog.record import START
from perdure.runtime.http.event_stream import EventStream
from perdure.runtime.kernel.channels.event import ChannelEvent
from perdure.runtime.kernel.channels.subscription import Delivery
from perdure.runtime.kernel.errors import OperationError
from tests.runtime.http.sse import Event, Parser


def shown(*values: object) -> list[ChannelEvent]:
    """Events that say something."""
    return [ChannelEvent("run", START, value) for value in values]


def delivery(
    *values: object, cursor: str | None = None, live: bool = False, end: bool = False
) -> Delivery:
    """A delivery of such events."""
    return Delivery(shown(*values), cursor, live, end)


def test_an_event_has_its_kind_its_cursor_and_its_data() -> None:
    """In this order, each on a line, with an empty line at the end."""
    stream = EventStream()
    sent = stream.deliver(delivery({"a": 1}, {"a": "x\ny"}, cursor="c2"), ["c1", "c2"])
    assert sent == (
        b'event: run\nid: c1\ndata: {"a":1}\n\nevent: run\nid: c2\ndata: {"a":"x\\ny"}\n\n'
    )
    assert Parser().feed(sent) == [Event("run", {"a": 1}, "c1"), Event("run", {"a": "x\ny"}, "c2")]


def test_a_stream_begins_with_when_to_come_back() -> None:
    """In milliseconds."""
    parser = Parser()
    assert parser.feed(EventStream(retry=2.5).begin()) == []
    assert parser.retry == 2500


def test_a_cursor_that_moves_without_events_is_an_id_alone() -> None:
    """It shows nothing, and is what the client comes back with."""
    stream, parser = EventStream(), Parser()
    parser.feed(stream.deliver(delivery({}, cursor="c1"), ["c1"]))
    sent = stream.deliver(delivery(cursor="c2"), [])
    assert sent == b"id: c2\n\n"
    assert (parser.feed(sent), parser.last_id) == ([], "c2")


def test_where_nothing_moves_a_comment_is_sent() -> None:
    """So that nothing between the two takes the connection for dead."""
    stream, parser = EventStream(), Parser()
    parser.feed(stream.deliver(delivery(cursor="c1"), []))
    assert stream.deliver(delivery(cursor="c1", live=True), []) == b""
    assert stream.beat() == b":\n\n"
    assert (parser.feed(stream.beat()), parser.last_id) == ([], "c1")
    assert parser.comments == 1


def test_listed_runs_have_an_id_only_at_the_end_of_the_list() -> None:
    """Who comes back in the middle of it begins again with the list."""
    stream, parser = EventStream(), Parser()
    parser.feed(stream.deliver(delivery(1, 2), [None, None]))
    assert parser.last_id == ""
    events = parser.feed(stream.deliver(delivery(3, 4, cursor="c"), [None, "c"]))
    assert [event.last_id for event in events] == ["", "c"]


def test_the_end_is_an_event_with_an_id() -> None:
    """After the last events; then the stream is closed."""
    stream, parser = EventStream(), Parser()
    events = parser.feed(stream.deliver(delivery(1, cursor="c", end=True), ["c"]))
    assert [event.kind for event in events] == ["run", "end"]
    assert events[-1] == Event("end", {"cursor": "c"}, "c")
    assert stream.closed


def test_a_stream_that_is_not_over_says_good_bye() -> None:
    """The place of the client stays what it was."""
    stream, parser = EventStream(), Parser()
    parser.feed(stream.deliver(delivery(1, cursor="c"), ["c"]))
    (bye,) = parser.feed(stream.bye())
    assert (bye.kind, bye.last_id, bye.data["cursor"]) == ("bye", "c", "c")
    assert stream.closed
    (bye,) = parser.feed(EventStream().bye(OperationError("INTERNAL", "oops")))
    assert bye.data == {"code": "INTERNAL", "message": "oops", "cursor": None}
