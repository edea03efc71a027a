"""What a server counts, for Prometheus.

Nothing is kept for it: each figure is read, when it is asked for, from the object that knows it.
Other parts of a server add figures of theirs, and need not know Prometheus for that.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from perdure.runtime.kernel.figures import Figure, figure, figures_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from prometheus_client.metrics_core import Metric

    from perdure.runtime.kernel.node import Node


class Metrics(Collector):
    """The figures of one server."""

    def __init__(self, node: Node, *more: Callable[[], Iterable[Figure]]) -> None:
        """Show a node, its process, and what else there is."""
        self._node = node
        self._more = more
        self._of_features: Sequence[Figure] = ()
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._registry.register(self)

    async def shown(self) -> bytes:
        """Give all figures as text."""
        parts = self._node.parts.values()
        self._of_features = [each for part in parts for each in await part.figures()]
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Give all figures as Prometheus has them."""
        for each in (*self._figures(), *(one for more in self._more for one in more())):
            yield _family(each)

    def _figures(self) -> Iterable[Figure]:
        node, log = self._node, self._node.log
        queued, queued_bytes = log.writer.queued
        yield Figure(
            "build_info", "gauge", "The release that runs.", {(("version", version("perdure")),): 1}
        )
        yield from self._of_features
        yield figure(
            "log_position", "gauge", "Position of the newest record.", log.tail.head.position
        )
        yield figure("log_commits", "counter", "Commits, each with an fsync.", log.writer.commits)
        yield figure("log_queued_appends", "gauge", "Appends that wait to be written.", queued)
        yield figure("log_queued_bytes", "gauge", "Bytes that wait to be written.", queued_bytes)
        yield figure(
            "log_wal_bytes",
            "gauge",
            "Bytes of the write-ahead log; it grows while another program reads without end.",
            log.store.wal_bytes,
        )
        yield figure(
            "log_watchers", "gauge", "Tasks that wait for the next record.", log.tail.watchers
        )
        yield figures_by(
            "surface", "followers", "gauge", "Clients that follow.", node.channels.followers
        )
        yield figures_by(
            "listing",
            "listing_position",
            "gauge",
            "Position that a list has reached.",
            {name: listing.progress[0] for name, listing in node.listings.items()},
        )
        yield figures_by(
            "listing",
            "listing_passed",
            "gauge",
            "Records, or damaged parts of the log, that a list lacks.",
            {name: listing.tables.passed for name, listing in node.listings.items()},
        )
        yield figure("closing", "gauge", "1 while no new work is taken.", node.closing.is_set())


def _family(figure: Figure) -> Metric:
    first = next(iter(figure.values), ())
    labels = [name for name, _ in first]
    make = GaugeMetricFamily if figure.kind == "gauge" else CounterMetricFamily
    family = make(f"perdure_{figure.name}", figure.about, labels=labels)
    for key, value in figure.values.items():
        family.add_metric([text for _, text in key], value)
    return family
