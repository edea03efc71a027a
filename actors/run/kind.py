"""Runs as a kind of actor."""

from typing import Final

from perdure.actors.kind import Kind
from perdure.actors.run.commands import RunCommand
from perdure.actors.run.core import RUN, Run
from perdure.actors.run.events import RunEvent
from perdure.actors.run.stream import RUN_STREAMS
from perdure.actors.run.views import record

RUN_KIND: Final[Kind[Run, RunCommand, RunEvent]] = Kind(
    name=RUN_STREAMS,
    decider=RUN,
    view=lambda folded: record(folded.state, folded.commit_time),
    tenant=lambda run: run.created.tenant,
    not_found="RUN_NOT_FOUND",
)
