"""The variables of the environment that Perdure reads. Light: processes of entries import it."""

from typing import Final

PREFIX: Final = "PERDURE_"
CONFIG: Final = "PERDURE_CONFIG"  # names the file with settings
URL: Final = "PERDURE_URL"  # names the server that commands ask
TRUSTED: Final = "SSL_CERT_FILE"  # OpenSSL's: the certificates that a server's is checked with
SECRET_PREFIX: Final = "PERDURE_SECRET_"  # noqa: S105 - what values of secrets begin with

# In the process of an entry. What such a process starts inherits them; none is a setting.
READ_FD: Final = "PERDURE_READ_FD"
WRITE_FD: Final = "PERDURE_WRITE_FD"
CODE: Final = "PERDURE_CODE"  # a folder that a Python process imports its plugin from
OF_PROCESSES: Final = frozenset({READ_FD, WRITE_FD, CODE})
