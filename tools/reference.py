"""Write the reference pages that are made from the code: `python -m tools.reference`.

A test compares the pages with what this program would write.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from perdure.runtime.execution.limits import HostLimits
from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.operations import COMMON_ERRORS, Operation
from perdure.runtime.websocket.asyncapi import document

DOCS: Final = Path(__file__).parent.parent / "docs"
_MADE: Final = "Made from the code by `python -m tools.reference`; do not edit.\n"


def table(head: str, rows: Iterable[str]) -> list[str]:
    """Give a table; the cells of a row are divided by bars already."""
    return [f"| {head} |", "|" + "---|" * (head.count(" | ") + 1), *(f"| {r} |" for r in rows), ""]


def type_name(hint: Any) -> str:  # noqa: ANN401 - any type expression
    """Give a type as people read it."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        title = next((each.title for each in parts[1:] if isinstance(each, msgspec.Meta)), None)
        return title or type_name(parts[0])
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in parts)
    if origin in {Union, UnionType}:
        return " or ".join(map(type_name, parts))
    if origin is not None:
        inner = ", ".join(type_name(part) for part in parts if part is not ...)
        return f"{origin.__name__} of {inner}"
    return "null" if hint is type(None) else str(hint.__name__)


def first_line(thing: Any) -> str:  # noqa: ANN401 - anything with a docstring
    """Give the summary of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def request_rows(operation: Operation) -> list[str]:
    """Describe each field of a request."""
    hints = get_type_hints(operation.request, include_extras=True)
    return [
        f"`{field.name}` | {type_name(hints[field.name])} | "
        + ("yes" if field.required else _default(field))
        for field in msgspec.structs.fields(operation.request)
    ]


def _default(field: msgspec.structs.FieldInfo) -> str:
    made = field.default_factory
    value = field.default if made is msgspec.NODEFAULT else made()
    return "" if value is None else f"default `{value}`"


def operations() -> str:
    """Write the page of operations, channels, errors and limits."""
    introduction = (
        "Everything that can be asked of Perdure. Each operation is asked by a principal, needs a"
        " permission, and answers with the cursor at which the answer is true. Any of them may"
        f" refuse with {', '.join(f'`{code}`' for code in COMMON_ERRORS)}. An instant is a number"
        " of epoch seconds or an ISO 8601 time, on every surface ([moments](http.md#moments))."
    )
    lines = ["# Operations", "", _MADE, introduction, ""]
    for row in FEATURES.operations.values():
        own = [f"`{code}`" for code in row.errors if code not in COMMON_ERRORS]
        lines += [f"## {row.name}", "", row.summary, ""]
        lines += [
            f"Permission `{row.permission}`."
            + (f" Errors: {', '.join(own)}." if own else "")
            + f" Answers with {'frames: ' if row.follows else ''}`{row.response.__name__}`"
            + f" ({', '.join(f'`{name}`' for name in row.response.__annotations__)}).",
            "",
        ]
        if rows := request_rows(row):
            lines += table("field | type | required", rows)
    lines += ["## Channels", "", "What `log.follow` follows, and what its events hold.", ""]
    lines += table(
        "channel | event | fields",
        (
            f"`{name}` | `{event.__name__}`: {first_line(event)} | "
            + ", ".join(f"`{field}`" for field in event.__annotations__)
            for name, event in _events().items()
        ),
    )
    lines += ["## Errors", ""]
    lines += table(
        "code | HTTP | try again | meaning | what to do",
        (
            f"`{code}` | {kind.status} | {'yes' if kind.retriable else 'no'} | {kind.meaning} | "
            + kind.remedy
            for code, kind in FEATURES.errors.items()
        ),
    )
    lines += ["## Limits", "", first_line(HostLimits), ""]
    lines += table(
        "limit | default",
        (f"`{field.name}` | {field.default}" for field in fields(HostLimits)),
    )
    return "\n".join(lines).rstrip() + "\n"


def _events() -> dict[str, Any]:
    return {name: channel.event for name, channel in FEATURES.channels.items()}


def events() -> str:
    """Write the page of events."""
    lines = ["# Events", "", _MADE, "What the log stores. Names and shapes never change.", ""]
    for registry in FEATURES.events:
        for event in registry:
            hints = get_type_hints(event)
            names = [field.encode_name for field in msgspec.structs.fields(event)]
            lines += [f"## {event.event_name}", "", first_line(event), ""]  # type: ignore[attr-defined]
            lines += table(
                "field | type",
                (f"`{name}` | {type_name(hints[name])}" for name in names),
            )
    return "\n".join(lines).rstrip() + "\n"


def asyncapi() -> str:
    """Write the document of the WebSocket protocol."""
    described = document(FEATURES.operations.values(), FEATURES, "v1")
    return json.dumps(described, indent=2, sort_keys=False) + "\n"


PAGES: Final[dict[str, Callable[[], str]]] = {
    "operations.md": operations,
    "events.md": events,
    "asyncapi.json": asyncapi,
}


def main() -> None:
    """Write every page."""
    for name, write in PAGES.items():
        (DOCS / name).write_text(write(), "utf-8")


if __name__ == "__main__":
    main()
