"""Settings: flags, then PERDURE_* variables, then perdure.toml, then defaults.

They come in groups: the server's, and one for each feature that has any. In files, variables and
commands the groups do not show. An unknown name is refused together with the nearest known one.
"""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from perdure.runtime.kernel.budget import MEMORY_BUDGET
from perdure.runtime.kernel.variables import CONFIG, OF_PROCESSES, PREFIX, SECRET_PREFIX, URL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

FILE: Final = "perdure.toml"
BODIES: Final = 32  # of the largest kind that the memory budget is for: decoded, one may take six
DEFAULT: Final = "default"

About = msgspec.Meta
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Grace = Annotated[float, msgspec.Meta(ge=0)]
PortNumber = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Rate = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
BodyBytes = Annotated[int, msgspec.Meta(ge=1 << 10, le=64 << 20)]
MemoryBytes = Annotated[int, msgspec.Meta(ge=32 << 20)]

Group = TypeVar("Group", bound=msgspec.Struct)


class SettingsError(Exception):
    """A setting cannot be used. The message says which, where it comes from and what to do."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log is, and how it is served."""

    data_dir: Annotated[
        str, About(description="where the log and all that belongs to it lives")
    ] = ".perdure"
    host: Annotated[
        str, About(description="the address that the server listens on; this machine by default")
    ] = "127.0.0.1"
    port: Annotated[
        PortNumber, About(description="the port that the server listens on; 0 takes a free one")
    ] = 7373
    hosts: Annotated[
        list[str], About(description="names, besides local ones, by which the server may be asked")
    ] = []
    tls_certificate: Annotated[
        str, About(description="the file with the server's certificate (PEM); TLS, if it is given")
    ] = ""
    tls_key: Annotated[
        str, About(description="the file with the key that belongs to the certificate (PEM)")
    ] = ""
    drain_grace: Annotated[
        Grace, About(description="seconds that runs get to end when the server goes down")
    ] = 10.0
    origins: Annotated[
        list[str], About(description="web origins besides our own whose pages may ask us")
    ] = []
    body_limit: Annotated[BodyBytes, About(description="bytes that a request in JSON may have")] = (
        1 << 20
    )
    memory_budget: Annotated[
        MemoryBytes,
        About(description="bytes that all clients together may make the server keep in memory"),
    ] = MEMORY_BUDGET

    def __post_init__(self) -> None:
        """Refuse settings that do not fit together."""
        if self.body_limit * BODIES > self.memory_budget:
            raise ValueError(
                f"body_limit: a memory_budget of {self.memory_budget} bytes is for requests of"
                f" {self.memory_budget // BODIES} bytes; make one of the two fit the other"
            )


class Settings:
    """The settings of a process, in groups."""

    def __init__(self, *groups: msgspec.Struct) -> None:
        """A group that is not given has its defaults."""
        self._groups = {type(group): group for group in groups}

    def of(self, group: type[Group]) -> Group:
        """Give the settings of a group."""
        found = self._groups.get(group)
        return found if isinstance(found, group) else group()

    @property
    def server(self) -> ServerSettings:
        """Where the log is, and how it is served."""
        return self.of(ServerSettings)


class SettingsTable:
    """All settings that there are: their names, types and meanings."""

    def __init__(self, features: Iterable[type[msgspec.Struct]] = ()) -> None:
        """Know the server's settings, and those of features."""
        self._groups: tuple[type[msgspec.Struct], ...] = (ServerSettings, *features)
        self._types: dict[str, Any] = {}
        for group in self._groups:
            for name, kind in get_type_hints(group, include_extras=True).items():
                if name in self._types:
                    raise ValueError(f"two features have a setting called {name!r}")
                self._types[name] = kind

    @property
    def names(self) -> Sequence[str]:
        """The names of all settings."""
        return list(self._types)

    def description(self, name: str) -> str:
        """Say what a setting is for."""
        for part in self._types[name].__metadata__:
            if part.description is not None:
                return str(part.description)
        raise TypeError(f"{name} is not described")

    def values(self, settings: Settings) -> dict[str, Any]:
        """Give the value of each setting, by name."""
        groups = [settings.of(group) for group in self._groups]
        return {name: value for each in groups for name, value in msgspec.to_builtins(each).items()}

    def settings(self, values: Mapping[str, Any]) -> Settings:
        """Make settings from values by name; the rest has its defaults."""
        if unknown := values.keys() - self._types.keys():
            raise TypeError(f"there is no setting {min(unknown)}")
        try:
            return Settings(*(_group(each, values) for each in self._groups))
        except ValueError as error:
            raise SettingsError(str(error)) from error

    def load(
        self, flags: Mapping[str, Any], variables: Mapping[str, str], directory: Path
    ) -> LoadedSettings:
        """Put the settings together for a process that was started in a directory."""
        values: dict[str, Any] = {}
        origins = dict.fromkeys(self._types, DEFAULT)
        named = variables.get(CONFIG)
        path = directory / (named or FILE)
        for name, value, origin in (
            *self._from_file(path, required=named is not None),
            *self._from_variables(variables),
            *((name, value, _flag(name)) for name, value in flags.items() if value is not None),
        ):
            values[name] = self._checked(name, value, origin)
            origins[name] = origin
        return LoadedSettings(self.settings(values), origins)

    def _from_file(self, path: Path, *, required: bool) -> Iterable[tuple[str, Any, str]]:
        try:
            found = tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            if required:
                raise SettingsError(f"{CONFIG} names {path}, which does not exist") from None
            return
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"{path} cannot be read: {error}") from error
        for name, value in found.items():
            if name not in self._types:
                raise SettingsError(_unknown(name, f"in {path}", self._types))
            yield name, value, path.name

    def _from_variables(self, variables: Mapping[str, str]) -> Iterable[tuple[str, Any, str]]:
        known = {PREFIX + name.upper(): name for name in self._types}
        for variable, text in sorted(variables.items()):
            if not variable.startswith(PREFIX) or variable.startswith(SECRET_PREFIX):
                continue
            if variable in {CONFIG, URL} or variable in OF_PROCESSES:
                continue
            if variable not in known:
                raise SettingsError(_unknown(variable, "in the environment", known))
            name = known[variable]
            is_list = get_origin(get_args(self._types[name])[0]) is list
            value = [part for part in text.split(",") if part] if is_list else text
            yield name, value, variable

    def _checked(self, name: str, value: Any, origin: str) -> Any:  # noqa: ANN401 - of its type
        try:
            return msgspec.convert(value, self._types[name], strict=not isinstance(value, str))
        except msgspec.ValidationError as error:
            raise SettingsError(f"{name} ({origin}): {error}") from error


class LoadedSettings:
    """Settings, and where each of them comes from."""

    def __init__(self, settings: Settings, origins: Mapping[str, str]) -> None:
        """Keep both."""
        self.settings = settings
        self.origins = origins


def _group(group: type[Group], values: Mapping[str, Any]) -> Group:
    return group(**{name: values[name] for name in group.__struct_fields__ if name in values})


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _unknown(name: str, where: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "`perdure config` lists all settings"
    return f"there is no setting {name} ({where}); {hint}"
