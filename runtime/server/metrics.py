"""What a server counts, for Prometheus.

Nothing is kept for it: each figure is read, when it is asked for, from the object that knows it.
Other parts of a server add figures of theirs, and need not know Prometheus for that.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, NamedTuple

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from perdure.actors.run.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client.metrics_core import Metric

    from perdure.runtime.kernel.node import Node


Labels = tuple[tuple[str, str], ...]


class Figure(NamedTuple):
    """A number with a name, or one for each value of its labels."""

    name: str  # without the prefix and, of a counter, without `_total`
    kind: Literal["gauge", "counter"]
    about: str
    values: Mapping[Labels, float]


def figure(name: str, kind: Literal["gauge", "counter"], about: str, value: float) -> Figure:
    """Give a figure that is one number."""
    return Figure(name, kind, about, {(): value})


def figures_by(
    label: str,
    name: str,
    kind: Literal["gauge", "counter"],
    about: str,
    values: Mapping[str, float],
) -> Figure:
    """Give a figure with a number for each value of a label."""
    return Figure(name, kind, about, {((label, key),): value for key, value in values.items()})


class Metrics(Collector):
    """The figures of one server."""

    def __init__(self, node: Node, *more: Callable[[], Iterable[Figure]]) -> None:
        """Show a node, its process, and what else there is."""
        self._node = node
        self._more = more
        self._runs: Mapping[str, int] = {}
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._registry.register(self)

    async def shown(self) -> bytes:
        """Give all figures as text."""
        self._runs = await self._node.catalogue.statuses()
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Give all figures as Prometheus has them."""
        for each in (*self._figures(), *(one for more in self._more for one in more())):
            yield _family(each)

    def _figures(self) -> Iterable[Figure]:
        node, log = self._node, self._node.host.log
        queued, queued_bytes = log.writer.queued
        runs = {status.value: self._runs.get(status.value, 0) for status in Status}
        yield Figure(
            "build_info", "gauge", "The release that runs.", {(("version", version("perdure")),): 1}
        )
        yield figures_by("status", "runs", "gauge", "Runs in the log.", runs)
        yield figure("executions", "gauge", "Runs being executed.", node.host.running)
        yield figure("runs_waiting", "gauge", "Runs that wait for their turn.", node.host.waiting)
        yield figure("actors_live", "gauge", "Actors in memory.", node.host.runs.live)
        yield figure(
            "actors_started", "counter", "Actors that came to life.", node.host.runs.started
        )
        yield figure("actor_crashes", "counter", "Actors that crashed.", node.host.runs.crashed)
        yield figure(
            "log_position", "gauge", "Position of the newest record.", log.tail.head.position
        )
        yield figure("log_commits", "counter", "Commits, each with an fsync.", log.writer.commits)
        yield figure("log_queued_appends", "gauge", "Appends that wait to be written.", queued)
        yield figure("log_queued_bytes", "gauge", "Bytes that wait to be written.", queued_bytes)
        yield figure(
            "log_watchers", "gauge", "Tasks that wait for the next record.", log.tail.watchers
        )
        yield figures_by(
            "surface", "followers", "gauge", "Clients that follow.", node.channels.followers
        )
        yield figure("closing", "gauge", "1 while no new work is taken.", node.host.closing)


def _family(figure: Figure) -> Metric:
    first = next(iter(figure.values), ())
    labels = [name for name, _ in first]
    make = GaugeMetricFamily if figure.kind == "gauge" else CounterMetricFamily
    family = make(f"perdure_{figure.name}", figure.about, labels=labels)
    for key, value in figure.values.items():
        family.add_metric([text for _, text in key], value)
    return family
