"""Which release of Perdure this is."""

from importlib.metadata import version
from typing import Final, TypedDict

NAME: Final = "perdure"


class Version(TypedDict):
    """What answers here."""

    name: str
    version: str


def release() -> Version:
    """Say what this is."""
    return {"name": NAME, "version": version(NAME)}
