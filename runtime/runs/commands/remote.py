"""Asking the server that holds the log, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from perdure.runtime.kernel.terminal.invocation import ExitCode, Refusal

if TYPE_CHECKING:
    from http.client import HTTPConnection

    from perdure.runtime.kernel.announcement import Announcement
    from perdure.runtime.kernel.terminal.invocation import Invocation
    from perdure.runtime.runs.answers import RunAnswer

_PATIENCE: Final = 60.0  # seconds that an answer may take
_REFUSED: Final = 400


class Remote:
    """A server on this machine."""

    def __init__(self, server: Announcement) -> None:
        """Nothing is sent before somebody asks."""
        self.server = server

    def create(self, request: dict[str, Any]) -> RunAnswer:
        """Create a run."""
        return _run_answer(self.post("/runs", request))

    def retry(self, run_id: str, secrets: dict[str, Any]) -> RunAnswer:
        """Run again what has ended."""
        return _run_answer(self.post(f"/runs/{quote(run_id)}/retry", {"secrets": secrets}))

    def cancel(self, run_id: str, reason: str | None) -> RunAnswer:
        """Ask a run to end."""
        return _run_answer(self.post(f"/runs/{quote(run_id)}/cancel", {"reason": reason}))

    def answer(self, run_id: str, question_id: str, answer: Any) -> RunAnswer:  # noqa: ANN401
        """Answer a question of a run."""
        body = {"question_id": question_id, "answer": answer}
        return _run_answer(self.post(f"/runs/{quote(run_id)}/answers", body))

    def post(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
        """Ask for something; what is refused there is refused here."""
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
            raise Refusal(
                f"The server at {self.server.url} (process {self.server.pid}) does not answer.",
                code="UNAVAILABLE",
                exit_code=ExitCode.UNAVAILABLE,
                remedy="It may be starting or going down; try again, or stop it.",
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
        context.check_hostname = False  # this very certificate is trusted, whatever it is called
        return HTTPSConnection(host, port, timeout=_PATIENCE, context=context)


def remote_of(invocation: Invocation) -> Remote | None:
    """Give the server that holds the log, if there is one."""
    from perdure.runtime.kernel.announcement import find_server

    server = find_server(invocation.data)
    return None if server is None else Remote(server)


def _run_answer(body: dict[str, Any]) -> RunAnswer:
    cursor = body.pop("cursor")
    body.pop("result", None)
    return {"run": body, "cursor": cursor}  # type: ignore[typeddict-item]  # as the server has it


def _refused(error: dict[str, Any]) -> Exception:
    from perdure.runtime.kernel.errors import ERRORS, OperationError

    code = error["code"] if error["code"] in ERRORS else "INTERNAL"
    return OperationError(code, error["message"], **(error["details"] or {}))
