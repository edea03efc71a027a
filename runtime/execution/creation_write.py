"""The write that brings a run into being."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.actors.run.core import RUN
from perdure.actors.run.events import RUN_EVENTS
from perdure.actors.run.stream import scope_of, stream_of
from perdure.eventlog.append import StreamWrite
from perdure.eventlog.record import encoded_metadata

if TYPE_CHECKING:
    from perdure.actors.run.events import RunCreated
    from perdure.eventlog.env import Env


def first_write(env: Env, created: RunCreated) -> StreamWrite:
    """Give it; whoever creates a run appends it, with whatever else belongs to that."""
    event = RUN_EVENTS.encode(
        created,
        event_id=env.new_id().bytes,
        event_time=created.at,
        metadata=encoded_metadata(
            f"{created.tenant}/{created.principal}",
            created.trace_id,
            tuple(RUN.describe(None, RUN.evolve(None, created)).items()),
        ),
    )
    scope = scope_of(created.run_id, created.session_id)
    return StreamWrite(stream_of(created.run_id), 0, [event], scope)
