"""Types of command-line parameters: runs, instants, entries, arguments."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from perdure.runtime.client.choice import Choice
from perdure.runtime.kernel.instants import NotAnInstant, cursor_or_instant, with_local_zone
from perdure.runtime.kernel.terminal.invocation import Invocation

if TYPE_CHECKING:
    from collections.abc import Mapping

STATUSES: Final = (
    "queued",
    "running",
    "cancel_requested",
    "succeeded",
    "failed",
    "canceled",
    "timeout",
)
_KINDS: Final = {  # the JSON schema types of a value
    str: {"string"},
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    type(None): {"null"},
    list: {"array"},
    dict: {"object"},
}
_OFFERED: Final = 50  # runs that completion offers


class InstantParam(click.ParamType):  # type: ignore[type-arg]  # older clicks have none
    """A cursor or an instant, as the operations take it; a time without an offset is local."""

    name = "CURSOR|INSTANT"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click has it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        """Take epoch seconds, ISO 8601, or a cursor."""
        text = with_local_zone(str(value))
        try:
            cursor_or_instant(text)
        except NotAnInstant as error:
            self.fail(f"{error}. A time without an offset is local.", param, ctx)
        return text


class RunName(click.ParamType):  # type: ignore[type-arg]  # older clicks have none
    """A run: its id or a prefix of it."""

    name = "RUN"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click has it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        """Accept text that can be the prefix of an id."""
        text = str(value).strip().lower()
        if not text or set(text) - set("0123456789abcdef-"):
            self.fail(
                f"{value!r} is not a run id or a prefix of one; `perdure runs` lists runs.",
                param,
                ctx,
            )
        return text

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - as click has it
        incomplete: str,
    ) -> list[CompletionItem]:
        """Offer the newest runs; offer none if they cannot be read."""
        with suppress(Exception):
            choice = Choice(ctx.find_root().ensure_object(Invocation))
            page = choice.asked(lambda caller: caller.call("runs.list", {"limit": _OFFERED}))
            return [
                CompletionItem(run["run_id"], help=f"{run['status']} {run['entry_id']}")
                for run in page["runs"]
                if run["run_id"].startswith(incomplete)
            ]
        return []


class EntryName(click.ParamType):  # type: ignore[type-arg]  # older clicks have none
    """An entry of a plugin: PLUGIN.ENTRY."""

    name = "PLUGIN.ENTRY"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click has it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, str]:
        """Split the names at the last dot."""
        if isinstance(value, tuple):
            return value
        plugin_id, dot, entry_id = value.rpartition(".")
        if not (dot and plugin_id and entry_id):
            self.fail(
                f"{value!r} is not PLUGIN.ENTRY, as in demo.count; `perdure plugins` lists them.",
                param,
                ctx,
            )
        return plugin_id, entry_id

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - as click has it
        incomplete: str,
    ) -> list[CompletionItem]:
        """Offer the loaded entries; offer none if plugins cannot be loaded."""
        with suppress(Exception):
            choice = Choice(ctx.find_root().ensure_object(Invocation))
            page = choice.asked(lambda caller: caller.call("plugins.list", {}))
            names = [
                f"{plugin['plugin_id']}.{entry['entry_id']}"
                for plugin in page["plugins"]
                for entry in plugin["entries"]
            ]
            return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
        return []


def parsed_args(words: tuple[str, ...], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an entry, each parsed as JSON, or else as text.

    An argument that can only be a string, by the entry's schema, stays as typed.
    """
    properties = schema.get("properties", {})
    args: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--arg {word!r} is not NAME=VALUE, such as to=100.")
        if name in args:
            raise click.UsageError(f"--arg {name} is given twice.")
        args[name] = value_of(text, properties.get(name, {}))
    return args


def parsed_secrets(words: tuple[str, ...]) -> dict[str, Any]:
    """Return secret arguments, each a reference or the value as typed."""
    secrets: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise click.UsageError('--secret takes NAME=VALUE, such as token={"secret": "name"}.')
        secrets[name] = value_of(text, {"type": "string", "writeOnly": True})
    return secrets


def value_of(text: str, schema: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    """Parse the text of an argument; a secret one may be a reference."""
    from perdure.runtime.secrets.secret import reference_in

    value = typed(text)
    if schema.get("writeOnly") and reference_in(value) is not None:
        return value
    if isinstance(value, str) or _takes(schema, value):
        return value
    return text if _takes(schema, text) else value


def _takes(schema: dict[str, Any], value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Tell whether a schema accepts values of this type, as far as it says."""
    kinds = {part.get("type") for part in schema.get("anyOf", [schema])}
    return None in kinds or not kinds.isdisjoint(_KINDS[type(value)])


def typed(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Parse a text as JSON; return the text itself if it is not JSON."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
