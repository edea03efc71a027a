"""What is said on one connection, without saying how it is sent.

    client                                         server
    {id, call, args}                               {id, ok, cursor} or {id, error}
    {id, follow: {channel, ...}, after, credit}    {id, events, cursor}, again and again
                                                   {id, live: cursor} once it has caught up
    {id, credit: 100}
    {id, stop: true}                               {id, end: "stopped", cursor}

An id is chosen by the client and free again when what it named has ended: a call with its answer,
a follow with ``end`` or an error. Credit counts events: a follow that has a credit gets so many
and waits for more; without one the connection itself is the limit.

``Conversation`` reads messages, which changes nothing and can be done in a thread, and gives what
is to be done; it writes messages and knows what is open. A message that makes no sense is answered
with an error; credit and stop for a follow that has ended are passed over, since the two messages
have met on their way.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from perdure.eventlog.errors import CodecError
from perdure.runtime.kernel.decoding import Decoded, weighed
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.invalid_value import invalid_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perdure.runtime.kernel.budget import Account, Hold
    from perdure.runtime.websocket.formats import Format
    from perdure.runtime.websocket.socket_subscription import SocketSubscription

Id = (
    Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    | Annotated[
        int, msgspec.Meta(ge=0, le=(1 << 53) - 1)  # what JavaScript can hold
    ]
)
Credit = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
EndReason = Literal["terminal", "stopped", "draining"]
CALL_BYTES: Final = 6 << 10  # that an open call takes besides what it says: a task
FOLLOW_BYTES: Final = 10 << 10
FOLLOW_ROOM: Final = 128 << 10  # of records, and of the events made from them


class Call(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Ask for an operation."""

    id: Id
    call: str
    args: dict[str, Any] = {}


class Follow(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Follow a channel from a cursor on."""

    id: Id
    follow: dict[str, Any]
    after: str | None = None
    credit: Credit | None = None


class More(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Allow so many events more."""

    id: Id
    credit: Credit


class Stop(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Follow no longer."""

    id: Id
    stop: Literal[True]


ClientMessage = Call | Follow | More | Stop
_KINDS: Final[dict[str, type[ClientMessage]]] = {  # a follow may have a credit too
    "call": Call,
    "follow": Follow,
    "stop": Stop,
    "credit": More,
}


@dataclass(frozen=True, slots=True)
class ImmediateReply:
    """Something to send at once."""

    message: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationLimits:
    """How much may be open at once on one connection: a call is, until its answer was taken.

    How many bytes they take all together is for the connection's account to say.
    """

    calls: int = 1000
    reads: int = 2  # calls that read and are answered at the same time; others wait
    follows: int = 100


class Conversation:
    """The state of one connection: which ids stand for what."""

    def __init__(
        self,
        format: Format,  # noqa: A002 - what else
        account: Account,
        limits: ConversationLimits | None = None,
    ) -> None:
        """Begin with nothing open."""
        self._format = format
        self._account = account
        self._limits = limits or ConversationLimits()
        self._calls: set[str | int] = set()  # that have no answer yet
        self._open_calls = 0  # those, and whose answers are on their way
        self._holds: dict[str | int, Hold] = {}  # of what has begun, until its task takes it
        self.subscriptions: dict[str | int, SocketSubscription] = {}  # whoever serves one adds it

    # What a client says

    def read(self, message: str | bytes) -> Decoded | ImmediateReply:
        """Decode a message, or give the reply that tells what is wrong with it."""
        try:
            return weighed(self._format.decode(message), message)
        except CodecError as error:
            return self._refuse(f"this is no message: {error}")

    def receive(self, message: Decoded | ImmediateReply) -> ClientMessage | ImmediateReply | None:
        """Give what a message that was read asks for, or what to reply."""
        if isinstance(message, ImmediateReply):
            return message
        value, weight = message
        if not isinstance(value, dict):
            return self._refuse("a message is an object with an id")
        name = next((name for name in _KINDS if name in value), None)
        if name is None:
            known = ", ".join(_KINDS)
            return self._refuse(f"a message has an id and one of {known}", value.get("id"))
        try:
            asked = msgspec.convert(value, _KINDS[name])
        except msgspec.ValidationError as error:
            values = invalid_values(value, _KINDS[name])
            return self._refuse(f"this is no {name}: {error}", value.get("id"), errors=values)
        if isinstance(asked, Call | Follow):
            return self._begin(asked, weight)
        return asked if asked.id in self.subscriptions else None

    def _begin(self, asked: Call | Follow, weight: int) -> ClientMessage | ImmediateReply:
        if asked.id in self._calls or asked.id in self.subscriptions:
            return self._refuse("this id stands for something else that is open", asked.id)
        limits = self._limits
        if isinstance(asked, Follow) and len(self.subscriptions) >= limits.follows:
            return self._too_many(asked.id, f"{limits.follows} follows")
        if isinstance(asked, Call) and self._open_calls >= limits.calls:
            return self._too_many(asked.id, f"{limits.calls} calls")
        fixed, room = (CALL_BYTES, 0) if isinstance(asked, Call) else (FOLLOW_BYTES, FOLLOW_ROOM)
        try:
            held = self._account.hold(fixed + weight + room)
        except OperationError as error:
            return ImmediateReply(self.refusal(asked.id, error))
        held.resize(fixed + weight)
        self._holds[asked.id] = held
        if isinstance(asked, Call):
            self._calls.add(asked.id)
            self._open_calls += 1
        return asked

    def _too_many(self, about: str | int, what: str) -> ImmediateReply:
        message = f"a connection may have {what} open; wait until one has ended"
        return ImmediateReply(self.refusal(about, OperationError("OVERLOADED", message)))

    def _refuse(self, message: str, about: Any = None, **details: Any) -> ImmediateReply:  # noqa: ANN401 - what was sent
        """Refuse a message. Its id may stand for something that goes on, so it is a detail."""
        if isinstance(about, str | int):
            details["id"] = about
        return ImmediateReply(
            self.refusal(None, OperationError("VALIDATION_ERROR", message, **details))
        )

    # What the server says

    @contextmanager
    def answering(self, call_id: str | int) -> Iterator[Hold]:
        """Count a call until its answer was taken: a peer that takes none may not ask on."""
        with self.take_hold(call_id) as held:
            try:
                yield held
            finally:
                self._open_calls -= 1

    def take_hold(self, begun: str | int) -> Hold:
        """Give what is held for a call or a follow to the task that serves it."""
        return self._holds.pop(begun)

    def answer(self, call_id: str | int, answer: Mapping[str, Any]) -> bytes:
        """Answer a call: what was asked for, and the cursor at which it is true, if it has one."""
        self._forget(call_id)
        found = dict(answer)
        place = {"cursor": found.pop("cursor")} if "cursor" in found else {}
        return self._format.encode({"id": call_id, "ok": found, **place})

    def refusal(self, about: str | int | None, error: OperationError) -> bytes:
        """Refuse a call or a follow, or end a follow that cannot go on."""
        if about is not None:
            self._forget(about)
        return self._format.encode({"id": about, "error": error.view()})

    def live(self, follow_id: str | int, cursor: str | None) -> bytes:
        """Say that a follow has caught up."""
        return self._format.encode({"id": follow_id, "live": cursor})

    def end(self, follow_id: str | int, reason: EndReason, cursor: str | None) -> bytes:
        """Say that a follow has ended, and where."""
        self._forget(follow_id)
        return self._format.encode({"id": follow_id, "end": reason, "cursor": cursor})

    def _forget(self, ended: str | int) -> None:
        self._calls.discard(ended)
        self.subscriptions.pop(ended, None)
