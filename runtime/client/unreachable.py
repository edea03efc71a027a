"""Why a server cannot be asked: it is away for now, or its address is a mistake."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from perdure.runtime.client.wire import ConnectionLost
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.variables import TRUSTED

if TYPE_CHECKING:
    from perdure.runtime.client.address import Address, Whereabouts

_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE"})


def found(where: Whereabouts) -> Address:
    """Give the address of a server, or raise ConnectionLost."""
    address = where.find()
    if address is None:
        raise ConnectionLost("it is not there")
    return address


def unreachable(where: Whereabouts, trouble: BaseException | None) -> OperationError:
    """Say that a server cannot be asked, and what to do."""
    mistake = _mistake_in(trouble)
    if mistake is not None:
        return OperationError("VALIDATION_ERROR", f"{where.lost}: {mistake}")
    why = getattr(trouble, "strerror", None) or trouble
    return OperationError("UNAVAILABLE", f"{where.lost} ({why}); {where.remedy}")


def _mistake_in(trouble: BaseException | None) -> str | None:
    """Say what is wrong with an address, if trying again is of no use."""
    while trouble is not None:
        if isinstance(trouble, socket.gaierror) and trouble.errno == socket.EAI_NONAME:
            return "no host has this name; check the address"
        verify = getattr(trouble, "verify_message", None)  # of an ssl.SSLCertVerificationError
        if verify is not None:
            return f"its certificate is not trusted ({verify}); name one to trust in {TRUSTED}"
        if getattr(trouble, "reason", None) in _NO_TLS:  # of an ssl.SSLError
            return "it has no TLS there; write http:// instead of https://"
        trouble = trouble.__cause__
    return None
