"""What a process said, as the server reads it.

A line that is no message breaks the protocol. One that is a message of an entry, with something in
it that it may not hold, is a wrong call: it is refused where it is checked, as the same call in
Python is.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn, get_args

import msgspec

from perdure.eventlog.errors import CodecError
from perdure.runtime.kernel.strict_json import refuse_many_values
from perdure.runtime.plugins.contract import PluginError
from perdure.runtime.plugins.run_messages import FromEntry, Request, RunMessage
from perdure.runtime.process.messages import FromProcess, Malformed

_QUOTED: Final = re.compile(r" '.*'", re.DOTALL)  # in an error: what was said, or a part of it
_decoder: Final[msgspec.json.Decoder[FromProcess]] = msgspec.json.Decoder(FromProcess)
_OF_ENTRIES: Final[dict[object, type[RunMessage]]] = {
    kind.__struct_config__.tag: kind for kind in get_args(FromEntry)
}


class WrongReport(RunMessage):
    """A report with something in it that it may not hold."""

    why: str

    def checked(self) -> NoReturn:
        """Refuse it."""
        raise PluginError("VALIDATION_ERROR", self.why)


class WrongRequest(Request):
    """A request with something in it that it may not hold; it is answered."""

    why: str

    def checked(self) -> NoReturn:
        """Refuse it."""
        raise PluginError("VALIDATION_ERROR", self.why)


Wrong = WrongReport | WrongRequest


def parse(line: bytes) -> FromProcess | Wrong:
    """Read what a process said, of so many values and no more."""
    try:
        refuse_many_values(line)
        message = _decoder.decode(line)
    except CodecError as error:
        raise Malformed(f"not a message: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _wrong(line, _QUOTED.sub("", str(error)))
    if isinstance(message, Request) and message.id is None:
        raise Malformed("not a message: Object missing required field `id`")
    return message


def _wrong(line: bytes, why: str) -> Wrong:
    """Give the call that a line was meant to be, with what is wrong in it."""
    constants: list[str] = []
    try:
        said: Any = json.loads(line, parse_constant=constants.append)  # which many writers write
    except (ValueError, RecursionError):
        raise Malformed(f"not a message: {why}") from None
    say = said.get("say") if isinstance(said, dict) else None
    kind = _OF_ENTRIES.get(say) if isinstance(say, str) else None
    why = f"{constants[0]} is no JSON number" if constants else why
    if kind is None or not isinstance(run_id := said.get("run_id"), str | None):
        raise Malformed(f"not a message: {why}")
    if not issubclass(kind, Request):
        return WrongReport(run_id=run_id, why=f"{say}: {why}")
    if type(said.get("id")) is not int:
        raise Malformed(f"not a message: {why}")
    return WrongRequest(run_id=run_id, id=said["id"], why=f"{say}: {why}")
