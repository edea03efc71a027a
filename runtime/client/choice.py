"""Which side of the port a command has: chosen here, and nowhere else.

PERDURE_URL names a server. Without it, a server that holds the log of the data directory is asked.
Without a server the log is read beside its writer, if it has one; to write it, this process becomes
its writer.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager, closing, contextmanager
from typing import TYPE_CHECKING, Any

from perdure.runtime.kernel.terminal.invocation import CommandRefusal, ExitCode
from perdure.runtime.kernel.variables import URL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from perdure.runtime.client.address import Whereabouts
    from perdure.runtime.client.client import Caller, Client
    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.terminal.invocation import Invocation


class Choice:
    """The side that one command has; what it asks first and last goes to the same."""

    def __init__(self, invocation: Invocation) -> None:
        """Choose by the environment and by who holds the log."""
        self._server = _server_of(invocation)
        self.features = invocation.features  # of this process, if it has to write itself
        self._invocation = invocation

    @property
    def is_here(self) -> bool:
        """Whether this process has to be the writer itself, to write: no server is asked."""
        return self._server is None

    @property
    def is_elsewhere(self) -> bool:
        """Whether the log is out of reach of this process: a server is known by its address."""
        return bool(os.environ.get(URL))

    @property
    def server_name(self) -> str:
        """The server that is asked, for messages."""
        address = None if self._server is None else self._server.find()
        return "The server" if address is None else f"The server at {address.url}"

    @property
    def place(self) -> str:
        """What is asked, for messages: an address or a directory."""
        return str(os.environ.get(URL) or self._invocation.data.path)

    @contextmanager
    def caller(self) -> Iterator[Caller]:
        """Open the side for operations that read; its calls never suspend, so no loop is needed."""
        if self._server is not None:
            from perdure.runtime.client.blocking import BlockingRemote

            _ = self.features.errors  # declares the codes that a server may answer with
            with closing(BlockingRemote(self._server)) as remote:
                yield remote
        else:
            from perdure.runtime.client.local import Beside
            from perdure.runtime.kernel.log_reader import open_reader

            data, settings = self._invocation.data, self._invocation.settings
            with open_reader(data, self.features, settings) as reader:
                yield Beside(reader.operations, self.features, data)

    def asked(self, ask: Callable[[Caller], Awaitable[Any]]) -> Any:  # noqa: ANN401 - any answer
        """Ask operations that read, and come to the end of it without an event loop."""
        from perdure.runtime.kernel.completion import completed

        async def whole(caller: Caller) -> Any:  # noqa: ANN401
            return await ask(caller)

        with self.caller() as caller:
            return completed(whole(caller))

    @asynccontextmanager
    async def client(self, *, writing: bool = False) -> AsyncIterator[Client]:
        """Open the whole port, in an event loop."""
        if self._server is not None:
            from perdure.eventlog.env import RealEnv
            from perdure.runtime.client.remote import open_remote

            reading, tell = _reading(self.features), self._invocation.note
            async with open_remote(RealEnv(), self._server, reading, tell=tell) as remote:
                yield remote
        elif writing:
            from perdure.runtime.client.embedded import open_embedded

            async with open_embedded(self._invocation.settings, self.features) as embedded:
                yield embedded
        else:
            from perdure.runtime.client.beside import open_beside

            data, settings = self._invocation.data, self._invocation.settings
            async with open_beside(data, self.features, settings) as beside:
                yield beside


def _reading(features: Features) -> frozenset[str]:
    """Name the operations that change nothing."""
    from perdure.runtime.kernel.principal import Permission

    table = features.operations.values()
    return frozenset(row.name for row in table if row.permission is Permission.READ)


def _server_of(invocation: Invocation) -> Whereabouts | None:
    from perdure.runtime.client.address import Address, Announced, Named, NotAnAddress

    url = os.environ.get(URL)
    if not url:
        announced = Announced(invocation.data)
        return None if announced.find() is None else announced
    if invocation.data_dir is not None:
        raise _usage(
            f"{URL} names a server, and --data-dir a directory: only one of them can be asked.",
            f"Leave out --data-dir, or unset {URL}.",
        )
    try:
        return Named(Address.of(url))
    except NotAnAddress as error:
        raise _usage(f"{URL}: {error}.", "Name a server, such as http://127.0.0.1:7373.") from error


def _usage(message: str, remedy: str) -> CommandRefusal:
    return CommandRefusal(message, code="VALIDATION_ERROR", exit_code=ExitCode.USAGE, remedy=remedy)
