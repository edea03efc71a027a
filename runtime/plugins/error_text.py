"""What an entry has raised, as its process and its server tell it. Light."""

from __future__ import annotations

import traceback
from linecache import getline
from typing import TYPE_CHECKING, Any, Final

from perdure.runtime.plugins.contract import FailedStep, PluginError, RunCancelled

if TYPE_CHECKING:
    from types import FrameType

    Frame = tuple[FrameType, int]

FRAMES: Final = 6  # of an exception's traceback, the last ones: a line of a log holds no more
ERRORS: Final = 3  # of a chain, or of a group
_OURS: Final = frozenset({"perdure.runtime", "perdure.actors", "perdure.eventlog"})
_BELOW: Final = _OURS | {"trio", "outcome", "asyncio", "concurrent", "threading"}  # every entry
_HINTS: Final = {  # what Python and Trio say to code that is in the wrong place
    "no running event loop": "Async entries run on Trio: write `await trio.sleep(1)`; with"
    ' @entry(where="process") they run on asyncio, and a plain function calls asyncio.run()',
    "must be called from async context": "Async entries in processes run on asyncio: write"
    " `await asyncio.sleep(1)`; without `where` they run on Trio",
}


def is_cancellation(error: BaseException) -> bool:
    """Tell whether an entry obeys a cancel request, also from inside a group."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_cancellation, error.exceptions))
    return isinstance(error, RunCancelled)


def unwrapped(error: BaseException) -> BaseException:
    """Give what a group of one holds."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def text_of(value: object) -> str:
    """Give a text, whatever becomes of the code that is to make it."""
    try:
        return str(value)
    except BaseException:  # noqa: BLE001 - a stranger's code, which can raise anything
        return f"(the text of this {type(value).__name__} could not be made)"


def told(error: BaseException) -> tuple[str, dict[str, Any] | None]:
    """Give what an error without a code says, and the plugin's line that it came from."""
    frames = list(traceback.walk_tb(error.__traceback__))
    above = _above(frames)
    own = [each for each in above if _is_of_plugin(each[0], above[0][0])]
    where = None
    for frame, line in (own or frames)[-1:]:
        where = {"file": frame.f_code.co_filename.rpartition("/")[2], "line": line}
    text = text_of(error)
    hint = _HINTS.get(text) if isinstance(error, RuntimeError) else None
    return f"{type(error).__name__}: {text}" + (f". {hint}" if hint else ""), where


def traced(error: BaseException) -> str | None:
    """Give the traceback of an error that nobody has raised on purpose, without our own frames.

    It names files as briefly as they can be told apart: it is read by people elsewhere, too.
    """
    error = unwrapped(error)
    if isinstance(error, FailedStep) and error.__cause__ is not None:
        error = unwrapped(error.__cause__)
    if isinstance(error, PluginError) or is_cancellation(error):
        return None
    try:
        return _chained(error) or None
    except BaseException:  # noqa: BLE001 - it asks a stranger's exception for what it says
        return None


def _chained(error: BaseException) -> str:
    """Write an error below those that led to it; nothing if none of it is of the plugin."""
    told: list[str] = []
    each: BaseException | None = error
    while each is not None and len(told) < ERRORS:
        told.append(_written(each))
        each = each.__cause__ if each.__suppress_context__ else each.__context__
    if not any("\n  File" in text for text in told):
        return ""
    return "\nThen:\n".join(reversed(told))


def _written(error: BaseException) -> str:
    """Write one error, and if it is a group, the first of those it holds."""
    frames = _above(list(traceback.walk_tb(error.__traceback__)))
    lines = ["Traceback (most recent call last):"] if frames else []
    for frame, number in [each for each in frames if _top(each[0]) not in _OURS][-FRAMES:]:
        code = frame.f_code
        file = "/".join(code.co_filename.split("/")[-2:])
        lines.append(f'  File "{file}", line {number}, in {code.co_name}')
        lines.append(f"    {getline(code.co_filename, number, frame.f_globals).strip()}")
    lines += [part.rstrip("\n") for part in traceback.format_exception_only(error)]
    if isinstance(error, BaseExceptionGroup):
        lines += [_written(each) for each in error.exceptions[:ERRORS]]
    return "\n".join(lines)


def _above(frames: list[Frame]) -> list[Frame]:
    """Give the frames from the plugin's first on: below are those of whoever has called it."""
    for number, (frame, _) in enumerate(frames):
        if _top(frame) not in _BELOW:
            return frames[number:]
    return []


def _is_of_plugin(frame: FrameType, first: FrameType) -> bool:
    """Tell whether code is the plugin's own: of the package, or the folder, of its first frame."""
    folder, home = (each.f_code.co_filename.rpartition("/")[0] for each in (frame, first))
    return _top(frame) == _top(first) or folder == home


def _top(frame: FrameType) -> str:
    """Give the package that code belongs to; in perdure there are several, plugins among them."""
    first, *rest = str(frame.f_globals.get("__name__", "")).split(".")
    return ".".join([first, *rest[:1]]) if first == "perdure" else first
