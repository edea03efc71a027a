"""`perdure serve`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from perdure.runtime.kernel.terminal.command import Command, common
from perdure.runtime.kernel.terminal.interrupts import Interrupts
from perdure.runtime.kernel.terminal.invocation import (
    CommandRefusal,
    ExitCode,
    Invocation,
    pass_invocation,
)
from perdure.runtime.kernel.terminal.output import best_effort_output
from perdure.runtime.kernel.terminal.text import pairs

if TYPE_CHECKING:
    import trio

    from perdure.runtime.server.server import Server, Serving


@click.command(
    cls=Command,
    short_help="Serve the log over HTTP and WebSocket.",
    examples=[
        "perdure serve",
        "perdure serve --port 8080 --data-dir /tmp/trial",
        "perdure serve --host 0.0.0.0 --tls-certificate cert.pem --tls-key key.pem",
    ],
)
@click.option("--host", help="The address to listen on; default 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; default 7373.")
@click.option("--tls-certificate", metavar="FILE", help="The TLS certificate (PEM).")
@click.option("--tls-key", metavar="FILE", help="The private key of the certificate (PEM).")
@common
@pass_invocation
def serve(
    invocation: Invocation,
    host: str | None,
    port: int | None,
    tls_certificate: str | None,
    tls_key: str | None,
) -> None:
    """Serve the log of the data directory until stopped.

    The server resumes runs that an earlier process did not finish. On Ctrl-C or SIGTERM it takes
    no new work and gives runs drain_grace seconds to end; runs still in progress resume when the
    server next starts. A second signal kills it.
    """
    interrupts = click.get_current_context().with_resource(Interrupts(at_once=2))
    import trio

    from perdure.runtime.server.server_logging import logging_to

    invocation.flags = {
        "host": host,
        "port": port,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
    }
    settings = invocation.settings.server
    invocation.place.check()
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise CommandRefusal(
            "A TLS certificate needs its key, and a key its certificate.",
            code="VALIDATION_ERROR",
            exit_code=ExitCode.USAGE,
            remedy="Pass both: --tls-certificate FILE --tls-key FILE.",
        )
    with best_effort_output(), logging_to(sys.stderr):
        trio.run(_serve, invocation, interrupts)


async def _serve(invocation: Invocation, interrupts: Interrupts) -> None:
    import trio

    from perdure.runtime.kernel.opening import StoppedOpening
    from perdure.runtime.port import BadCertificate, CannotListen
    from perdure.runtime.server.server import Server

    warn = (lambda _: None) if invocation.json else invocation.warn
    features = invocation.features.prepared(invocation.settings, warn)
    server = Server(invocation.settings, features)

    async def stop() -> None:
        await interrupts.first()
        server.stop()

    with interrupts.listening():
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop)
                nursery.start_soon(_until_stopped, server, invocation, nursery.cancel_scope)
        except* BadCertificate as group:
            raise _refusal(group, ExitCode.USAGE, "VALIDATION_ERROR") from group
        except* CannotListen as group:
            raise _refusal(group, ExitCode.UNAVAILABLE, "UNAVAILABLE") from group
        except* StoppedOpening:
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


async def _until_stopped(server: Server, invocation: Invocation, scope: trio.CancelScope) -> None:
    import trio

    from perdure.runtime.cli.start_up_display import StartUpDisplay
    from perdure.runtime.server.garbage import leave_alone_what_is_there

    async with trio.open_nursery() as nursery:
        display = StartUpDisplay(server.start_up, sys.stderr)
        nursery.start_soon(display.run)
        serving: Serving = await nursery.start(server.run)
        display.opened()
        leave_alone_what_is_there()
        await _greet(invocation, serving)
    scope.cancel()


def _refusal(group: BaseExceptionGroup[Any], exit_code: ExitCode, code: str) -> CommandRefusal:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return CommandRefusal(f"{error}.", code=code, exit_code=exit_code)


async def _greet(invocation: Invocation, serving: Serving) -> None:
    """Print what is served, and commands to try."""
    from importlib.metadata import version

    from perdure.runtime.runs.settings import RunSettings
    from perdure.runtime.server.server import is_loopback

    demo = invocation.settings.of(RunSettings).demo
    settings, log, url = invocation.settings.server, serving.node.log, serving.url
    about = {
        "version": version("perdure"),
        "url": url,
        "log": str(invocation.data.log),
        "generation": log.generation,
        "records": (await log.head()).position,
    }
    if invocation.json:
        invocation.give(about)
    else:
        about["records"] = f"{about['records']:,}"
        rows = [(name, str(value)) for name, value in about.items()]
        invocation.say("Perdure, an event-sourced actor runtime for long-running agent work.")
        invocation.say()
        invocation.lines(["  " + line for line in pairs(rows, None)])
        invocation.say()
        invocation.lines(_what_to_type(url, settings.tls_certificate, demo=demo))
    if not is_loopback(settings.host):
        invocation.say(
            "Warning: other machines can reach this server, and it does not authenticate clients:"
            " every client may do\neverything. Put a proxy that authenticates in front of it, and"
            " name it in the setting hosts (and web pages in origins).",
            err=True,
        )


def _what_to_type(url: str, certificate: str, *, demo: bool) -> list[str]:
    curl = f"curl --cacert {certificate}" if certificate else "curl"
    lines = [f"Open   {url}/docs", "Type   (in another terminal)"]
    if demo:
        body = """{"plugin_id": "demo", "entry_id": "count", "args": {"to": 100}}"""
        lines.append(f"  {curl} {url}/runs -H 'content-type: application/json' -d '{body}'")
    lines += [f"  {curl} {url}/plugins", f"  {curl} -N {url}/events/runs", "", "Ctrl-C stops it."]
    return lines
