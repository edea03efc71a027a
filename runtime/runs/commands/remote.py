"""HTTP client of the server that holds the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from perdure.runtime.kernel.terminal.invocation import CommandRefusal, ExitCode

if TYPE_CHECKING:
    from http.client import HTTPConnection

    from perdure.runtime.kernel.announcement import Announcement
    from perdure.runtime.kernel.terminal.invocation import Invocation
    from perdure.runtime.runs.answers import RunAnswer

_PATIENCE: Final = 60.0  # seconds to wait for an answer
_REFUSED: Final = 400


class Remote:
    """A server on this machine."""

    def __init__(self, server: Announcement) -> None:
        """Connect only when a request is sent."""
        self.server = server

    def create(self, request: dict[str, Any]) -> RunAnswer:
        """Create a run."""
        return _run_answer(self.post("/runs", request))

    def retry(self, run_id: str, secrets: dict[str, Any]) -> RunAnswer:
        """Retry a run that has ended."""
        return _run_answer(self.post(f"/runs/{quote(run_id)}/retry", {"secrets": secrets}))

    def cancel(self, run_id: str, reason: str | None) -> RunAnswer:
        """Ask a run to end."""
        return _run_answer(self.post(f"/runs/{quote(run_id)}/cancel", {"reason": reason}))

    def answer(self, run_id: str, question_id: str, answer: Any) -> RunAnswer:  # noqa: ANN401
        """Answer a question of a run."""
        body = {"question_id": question_id, "answer": answer}
        return _run_answer(self.post(f"/runs/{quote(run_id)}/answers", body))

    def post(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
        """Send a request; raise the error that the server answers with."""
        import http.client

        import msgspec

        connection = self._connection()
        try:
            headers = {"content-type": "application/json"}
            connection.request("POST", path, msgspec.json.encode(body), headers)
            response = connection.getresponse()
            data, status = response.read(), response.status
            answer = msgspec.json.decode(data)
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            raise CommandRefusal(
                f"The server at {self.server.url} (process {self.server.pid}) does not answer.",
                code="UNAVAILABLE",
                exit_code=ExitCode.UNAVAILABLE,
                remedy="It may be starting or shutting down: try again, or stop it.",
            ) from error
        finally:
            connection.close()
        if status >= _REFUSED:
            raise _refused(answer["error"])
        return answer

    def _connection(self) -> HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection

        address = urlsplit(self.server.url)
        host, port = address.hostname or "", address.port
        if address.scheme == "http":
            return HTTPConnection(host, port, timeout=_PATIENCE)
        import ssl

        context = ssl.create_default_context(cafile=self.server.certificate)
        context.check_hostname = False  # this certificate is trusted whatever its host name
        return HTTPSConnection(host, port, timeout=_PATIENCE, context=context)


def remote_of(invocation: Invocation) -> Remote | None:
    """Return the server that holds the log, if there is one."""
    from perdure.runtime.kernel.announcement import find_server

    server = find_server(invocation.data)
    return None if server is None else Remote(server)


def _run_answer(body: dict[str, Any]) -> RunAnswer:
    cursor = body.pop("cursor")
    body.pop("result", None)
    return {"run": body, "cursor": cursor}  # type: ignore[typeddict-item]  # the record as the server sent it


def _refused(error: dict[str, Any]) -> Exception:
    from perdure.runtime.kernel.errors import ERRORS, OperationError

    code = error["code"] if error["code"] in ERRORS else "INTERNAL"
    return OperationError(code, error["message"], **(error["details"] or {}))
