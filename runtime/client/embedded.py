"""The side of the port in a process that holds the log."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from perdure.runtime.client.local import LocalClient
from perdure.runtime.kernel.local_node import open_local_node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.node import Node
    from perdure.runtime.kernel.settings import Settings


class Embedded(LocalClient):
    """Asks the node of this process."""

    at_work: Final = True

    def __init__(self, node: Node) -> None:
        """Ask an open node."""
        super().__init__(node.operations)
        self._node = node

    async def settled(self) -> None:
        """Wait until this process executes nothing any more."""
        await self._node.settled()


@asynccontextmanager
async def open_embedded(settings: Settings, features: Features) -> AsyncIterator[Embedded]:
    """Be the writer of the log for the length of a block."""
    async with open_local_node(settings, features) as node:
        yield Embedded(node)
