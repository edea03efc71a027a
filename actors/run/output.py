"""What an execution may put out: each kind checked before it can become an event."""

from __future__ import annotations

from base64 import b64decode
from typing import Final

from perdure.actors.errors import Invalid, TooLarge
from perdure.actors.run.events import (
    RUN_EVENTS,
    ExportAppended,
    Output,
    ProgressReported,
    ResultMarked,
    StageChanged,
)
from perdure.actors.run.report_bounds import MAX_LABEL, MAX_MESSAGE, progress_fault, text_fault
from perdure.eventlog.errors import CodecError

# Each type of export with the field that carries its content.
EXPORT_FIELDS: Final = {
    "text": "text",
    "url": "url",
    "binary_url": "binary_url",
    "binary": "binary",
    "json": "json",
}
MAX_OUTPUT: Final = 900_000  # bytes of one output; a record holds a megabyte
MAX_BINARY: Final = 64 << 10  # bytes that an item may hold itself; more has an address


def check_output(output: Output, exports: int) -> None:
    """Refuse an output that no run may put out; ``exports`` items came before it."""
    if isinstance(output, ProgressReported):
        check_progress(output.progress)
        _check_length(output.stage, MAX_LABEL, "a stage")
        _check_length(output.message, MAX_MESSAGE, "a message")
    elif isinstance(output, StageChanged):
        _check_length(output.stage, MAX_LABEL, "a stage")
        _check_length(output.message, MAX_MESSAGE, "a message")
    elif isinstance(output, ExportAppended):
        _check_export(output, exports)
    elif isinstance(output, ResultMarked):
        unknown = [number for number in output.items if not 1 <= number <= exports]
        if unknown:
            raise Invalid(f"export {unknown[0]} cannot be a result: there is none")
        items, described = len(output.items), len(output.refs)
        if described not in {0, items}:
            raise Invalid(f"{items} items are the result, and {described} of them are described")


def check_progress(progress: float) -> None:
    """Refuse a progress that is no number from 0.0 to 1.0."""
    _refuse(progress_fault(progress))


def checked_size(output: Output) -> int:
    """Refuse what could not be stored or read again; give its size in bytes."""
    try:
        size = RUN_EVENTS.check(output)
    except CodecError as error:
        raise Invalid(str(error)) from error
    if size > MAX_OUTPUT:
        raise TooLarge(size, MAX_OUTPUT)
    return size


def readable(text: str, what: str) -> str:
    """Give a text as it can be stored: what no encoding knows is replaced."""
    _refuse(text_fault(text, what))
    if text.isascii() and "\0" not in text:
        return str.__str__(text)  # of a subclass, the text itself: nothing else can be stored
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def inline_bytes(data: bytes | str, limit: int = MAX_BINARY) -> bytes:
    """Give the bytes that an item is to hold itself; text is base64."""
    if isinstance(data, str):
        try:
            data = b64decode(data, validate=True)
        except ValueError as error:
            raise Invalid(f"this is not base64: {error}") from error
    if len(data) > limit:
        raise TooLarge(len(data), limit)
    return data


def _check_export(export: ExportAppended, exports: int) -> None:
    if export.number != exports + 1:
        raise Invalid(f"export {export.number} cannot follow {exports} others")
    content = EXPORT_FIELDS.get(export.type)
    if content is None:
        raise Invalid(f"an export is one of {', '.join(EXPORT_FIELDS)}, not {export.type!r}")
    given = {name for name in EXPORT_FIELDS.values() if getattr(export, name) is not None}
    if given - {content}:
        raise Invalid(f"an export of type {export.type} has no {min(given - {content})}")
    if not given and export.type != "json":  # null is a JSON value
        raise Invalid(f"an export of type {export.type} needs its {content}")


def _check_length(text: str | None, most: int, what: str) -> None:
    if text is not None:
        _refuse(text_fault(text, what, most))


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise Invalid(fault)
