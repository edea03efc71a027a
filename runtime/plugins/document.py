"""A TOML file that people write: what it says, checked, and on which line it says so."""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from perdure.runtime.plugins.plugin import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Table = TypeVar("Table", bound=msgspec.Struct)

_AT: Final = re.compile(r"(.*) - at `\$(.*)`", re.DOTALL)  # how msgspec says where
_LINE: Final = re.compile(r"\(at line (\d+)")  # how tomllib does
_WORD: Final = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_NAME: Final = rf"({_WORD}(?:\s*\.\s*{_WORD})*)"
_HEADER: Final = re.compile(rf"\s*\[\s*{_NAME}\s*\]")
_KEY: Final = re.compile(rf"\s*{_NAME}\s*=")


class Document:
    """What a file says. Whatever is wrong with it has a line."""

    def __init__(self, path: Path) -> None:
        """Read the file."""
        self._name = path.name
        self._text = ""
        try:
            self._text = path.read_text("utf-8")
            self.content = tomllib.loads(self._text)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            told = _LINE.search(str(error))
            line = int(told[1]) if told else self._text.count("\n") + 1
            raise DeclarationError(f"{self._name}: {error}", line=line) from error

    def table(self, value: Any, kind: type[Table], *place: str) -> Table:  # noqa: ANN401 - any data
        """Give what stands at a place as what it should be."""
        if isinstance(value, dict):
            for name in value.keys() - set(kind.__struct_fields__):
                known = kind.__struct_fields__
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise self.wrong(f"there is no such key; {hint}", *place, name)
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            told = _AT.fullmatch(str(error))
            message, inside = (told[1], told[2]) if told else (str(error), "")
            raise self.wrong(message, *place, *_keys(inside)) from error

    def wrong(self, message: str, *place: str) -> DeclarationError:
        """Say what is wrong at a place."""
        where = f" {'.'.join(place)}:" if place else ""
        return DeclarationError(f"{self._name}:{where} {message}", line=self.line_of(*place))

    def line_of(self, *place: str) -> int:
        """Find the line where a place begins, or the nearest thing that it is in."""
        found, known = 1, 0
        for number, here in self._places():
            if known < len(here) and here == place[: len(here)]:
                found, known = number, len(here)
        return found

    def _places(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Give each line with a header or a key, and what it begins."""
        table: tuple[str, ...] = ()
        for number, line in enumerate(self._text.splitlines(), 1):
            if header := _HEADER.match(line):
                table = _keys(header[1])
                yield number, table
            elif key := _KEY.match(line):
                yield number, (*table, *_keys(key[1]))


def _keys(text: str) -> tuple[str, ...]:
    return tuple(word.strip("\"'") for word in re.findall(_WORD, text))
