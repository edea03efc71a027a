"""The settings of runs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from perdure.runtime.kernel.settings import About, Count, Rate, Seconds
from perdure.runtime.plugins.settings import PluginSettings

Grant = Annotated[str, msgspec.Meta(pattern=r"^.+:(\*|[A-Za-z0-9_][A-Za-z0-9_.-]*\*?)$")]
InlineBytes = Annotated[int, msgspec.Meta(ge=0, le=512 << 10)]  # a record holds one MiB
TriggerMode = Literal["runs", "direct", "off"]
UnknownEntries = Literal["refuse", "fail"]


class RunSettings(PluginSettings, frozen=True, kw_only=True):
    """Which plugins are loaded, how their runs are executed, and what runs may take."""

    runs: Annotated[
        Count,
        About(description="runs that may work at once, without those that wait"),
    ] = 1000
    timeout: Annotated[
        Seconds | None, About(description="the longest a run may last, in seconds; none by default")
    ] = None
    cancel_grace: Annotated[
        Seconds, About(description="seconds an entry gets to obey, and again once interrupted")
    ] = 5.0
    sync_wait: Annotated[
        Seconds, About(description="seconds a caller may wait for the end of a run")
    ] = 30.0
    idempotency_window: Annotated[
        Seconds, About(description="seconds for which an idempotency key is kept")
    ] = 24 * 3600.0
    bulk_rate: Annotated[
        Rate, About(description="runs a second that are canceled or retried by a filter")
    ] = 100.0
    trigger: Annotated[
        TriggerMode,
        About(description="what POST /plugin/trigger does: create runs, execute without, nothing"),
    ] = "runs"
    trigger_choice: Annotated[
        bool, About(description="whether a caller may choose, with `via`, what its trigger does")
    ] = False
    unknown_entries: Annotated[
        UnknownEntries,
        About(description="what creating a run of an unknown entry does: refuse, or make it fail"),
    ] = "refuse"
    progress_items: Annotated[
        bool, About(description="whether progress is exported too, every half second at most")
    ] = False
    inline_limit: Annotated[
        InlineBytes,
        About(
            description="bytes an export item may hold itself, texts and JSON too; more are a blob"
        ),
    ] = 64 << 10
    blob_quota: Annotated[Count, About(description="bytes that all blobs may have")] = 10 << 30
    blob_scope_quota: Annotated[
        Count, About(description="bytes that the blobs of one session or run may have")
    ] = 1 << 30
    blob_grace: Annotated[
        Seconds, About(description="seconds for which a blob that nothing names is kept")
    ] = 24 * 3600.0
    granted_secrets: Annotated[
        list[Grant],
        About(description="who may refer to which secrets, as TENANT:NAME; * is all of them"),
    ] = msgspec.field(default_factory=lambda: ["local:*"])
