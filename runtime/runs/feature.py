"""Runs as a feature: start an entry of a plugin, see how it stands, end it, do it again."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from perdure.runtime.kernel.feature import Feature

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    import click

    from perdure.actors.kind import Kind
    from perdure.eventlog.log import EventLog
    from perdure.eventlog.registry import EventRegistry
    from perdure.runtime.kernel.channels.channel import Channel
    from perdure.runtime.kernel.data_directory import DataDir
    from perdure.runtime.kernel.errors import ErrorKind
    from perdure.runtime.kernel.listing import Listing
    from perdure.runtime.kernel.log_reader import LogReader
    from perdure.runtime.kernel.node import Foundation, Node
    from perdure.runtime.kernel.opening import StartUp
    from perdure.runtime.kernel.routes.route import Route
    from perdure.runtime.kernel.settings import Settings
    from perdure.runtime.plugins.loading import LoadedPlugins
    from perdure.runtime.plugins.plugin import Plugin
    from perdure.runtime.runs.part import RunResources, RunsPart
    from perdure.runtime.runs.settings import RunSettings
    from perdure.runtime.runs.stored_runs import StoredRuns


class RunsFeature(Feature):
    """Runs of the entries of plugins."""

    name = "runs"
    tags: ClassVar[Mapping[str, str]] = {
        "runs": "Start work, see how it stands, end it, do it again.",
        "blobs": "Bytes of any size: into a run that is running, and out of it.",
        "plugins": "What can be run.",
    }

    def __init__(
        self,
        resources: RunResources | None = None,
        *,
        loaded: LoadedPlugins | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        """Use these resources, or those that the settings and the data directory name.

        In the second case ``loaded`` are plugins that were loaded already, and ``only`` is that of
        ``RunResources``.
        """
        self._resources = resources
        self._loaded = loaded
        self._only = only

    def kinds(self) -> Sequence[Kind[Any, Any, Any]]:
        """Runs are actors."""
        from perdure.actors.run.kind import RUN_KIND

        return [RUN_KIND]

    def events(self) -> Sequence[EventRegistry]:
        """A lineage is a stream without an actor."""
        from perdure.actors.lineage import LINEAGE_EVENTS

        return [LINEAGE_EVENTS]

    def services(self) -> Sequence[type]:
        """Everything that can be asked about runs."""
        from perdure.runtime.runs.bulk import Bulk
        from perdure.runtime.runs.operations import Runs
        from perdure.runtime.runs.plugin_list import PluginList
        from perdure.runtime.runs.trigger import Trigger
        from perdure.runtime.runs.uploads import Uploads

        return [Runs, Bulk, PluginList, Uploads, Trigger]

    def channels(self) -> Sequence[Channel]:
        """Changes of runs, what they put out, and both."""
        from perdure.runtime.runs.channels import RUN_CHANNELS

        return RUN_CHANNELS

    def listings(self) -> Sequence[Listing]:
        """Which runs there are."""
        from perdure.runtime.runs.index import RUN_LISTING

        return [RUN_LISTING]

    def routes(self) -> Sequence[Route]:
        """The Run protocol over HTTP."""
        from perdure.runtime.runs.routes import ROUTES

        return ROUTES

    def commands(self) -> Sequence[click.Command]:
        """From `perdure run` to `perdure plugins`."""
        from perdure.runtime.runs.commands import answer, history, lists, run, show, watch

        return [
            run.run,
            lists.runs,
            show.show,
            history.history,
            watch.watch,
            show.export,
            show.logs,
            run.retry,
            run.cancel,
            answer.answer,
            lists.plugins,
        ]

    def errors(self) -> Mapping[str, ErrorKind]:
        """Those of runs, and of the services below them."""
        from perdure.runtime.blobs.blob import BLOB_ERRORS
        from perdure.runtime.plugins.entries import PLUGIN_ERRORS
        from perdure.runtime.runs.errors import RUN_ERRORS
        from perdure.runtime.secrets.errors import SECRET_ERRORS

        return {**RUN_ERRORS, **PLUGIN_ERRORS, **BLOB_ERRORS, **SECRET_ERRORS}

    def settings(self) -> type[RunSettings]:
        """Which plugins are loaded, and what their runs may take."""
        from perdure.runtime.runs.settings import RunSettings

        return RunSettings

    def capabilities(self) -> Mapping[str, Any]:
        """Statuses, types of exports, what triggering an entry does, and who chooses that."""
        return {
            "statuses": list[str],
            "export_types": list[str],
            "trigger": str,
            "trigger_choice": bool,
        }

    def prepared(self, settings: Settings, warn: Callable[[str], None]) -> RunsFeature:
        """Load the plugins that the settings name."""
        from perdure.runtime.plugins.loading import load_plugins
        from perdure.runtime.runs.settings import RunSettings

        loaded = self._loaded or load_plugins(settings.of(RunSettings))
        for problem in loaded.problems:
            warn(str(problem))
        return RunsFeature(loaded=loaded, only=self._only)

    def open(self, foundation: Foundation) -> AbstractAsyncContextManager[RunsPart]:
        """Take up the runs that an earlier process left, and execute runs."""
        from perdure.runtime.runs.index import RUN_LISTING
        from perdure.runtime.runs.local_runs import open_local_runs
        from perdure.runtime.runs.part import open_runs

        listing = foundation.listings[RUN_LISTING.name]
        if self._resources is not None:
            return open_runs(foundation.log, listing, self._resources, foundation.start_up)
        return open_local_runs(foundation, listing, self._loaded, self._only)

    def reader(self, log: LogReader) -> StoredRuns:
        """What can be read of runs and plugins without an event loop."""
        from perdure.runtime.runs.stored_runs import StoredRuns

        return StoredRuns(log, self._loaded)


@asynccontextmanager
async def open_run_node(
    log: EventLog,
    plugins: Mapping[str, Plugin],
    *,
    data: DataDir | None = None,
    start_up: StartUp | None = None,
    **resources: Any,
) -> AsyncIterator[Node]:
    """Open a node with runs alone; ``resources`` are those of RunResources."""
    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.node import open_node
    from perdure.runtime.runs.part import RunResources

    features = Features([RunsFeature(RunResources(plugins=plugins, **resources))])
    async with open_node(log, features, data=data, start_up=start_up) as node:
        yield node
