"""Settings: flags, then PERDURE_* variables, then perdure.toml, then defaults.

A name that nobody knows is refused together with the nearest one that somebody does: a setting
that is silently passed over is worse than none.
"""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from perdure.runtime.kernel.variables import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FILE: Final = "perdure.toml"
PREFIX: Final = "PERDURE_"
CONFIG_VARIABLE: Final = "PERDURE_CONFIG"  # names the file itself
SECRET_PREFIX: Final = "PERDURE_SECRET_"  # noqa: S105 - what values of secrets begin with
DEFAULT: Final = "default"

About = msgspec.Meta
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Grace = Annotated[float, msgspec.Meta(ge=0)]
PortNumber = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Rate = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Grant = Annotated[str, msgspec.Meta(pattern=r"^.+:(\*|[A-Za-z0-9_][A-Za-z0-9_.-]*\*?)$")]
InlineBytes = Annotated[int, msgspec.Meta(ge=0, le=512 << 10)]  # a record holds one MiB

TriggerMode = Literal["runs", "direct", "off"]
BodyBytes = Annotated[int, msgspec.Meta(ge=1 << 10, le=64 << 20)]


class SettingsError(Exception):
    """A setting cannot be used. The message says which, where it comes from and what to do."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set."""

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
    demo: Annotated[bool, About(description="whether the plugin demo is loaded")] = True
    plugins: Annotated[
        list[str], About(description="folders with a plugin.toml, or folders of such folders")
    ] = []
    modules: Annotated[list[str], About(description="Python modules that declare plugins")] = []
    reload: Annotated[
        bool, About(description="whether plugins are loaded anew when their files change")
    ] = False
    runs: Annotated[
        Count,
        About(description="runs that may work at once, without those that wait"),
    ] = 1000
    timeout: Annotated[
        Seconds | None, About(description="the longest a run may last, in seconds; none by default")
    ] = None
    cancel_grace: Annotated[
        Seconds, About(description="seconds an entry gets to obey, and again once interrupted")
    ] = 5.0
    sync_wait: Annotated[
        Seconds, About(description="seconds a caller may wait for the end of a run")
    ] = 30.0
    idempotency_window: Annotated[
        Seconds, About(description="seconds for which an idempotency key is kept")
    ] = 24 * 3600.0
    bulk_rate: Annotated[
        Rate, About(description="runs a second that are canceled or retried by a filter")
    ] = 100.0
    trigger: Annotated[
        TriggerMode,
        About(description="what POST /plugin/trigger does: create runs, execute without, nothing"),
    ] = "runs"
    origins: Annotated[
        list[str], About(description="web origins besides our own whose pages may ask us")
    ] = []
    body_limit: Annotated[BodyBytes, About(description="bytes that a request in JSON may have")] = (
        1 << 20
    )
    progress_items: Annotated[
        bool, About(description="whether progress is exported too, every half second at most")
    ] = False
    inline_limit: Annotated[
        InlineBytes, About(description="bytes an export item may hold itself; more become a blob")
    ] = 64 << 10
    blob_quota: Annotated[Count, About(description="bytes that all blobs may have")] = 10 << 30
    blob_scope_quota: Annotated[
        Count, About(description="bytes that the blobs of one session or run may have")
    ] = 1 << 30
    blob_grace: Annotated[
        Seconds, About(description="seconds for which a blob that nothing names is kept")
    ] = 24 * 3600.0
    granted_secrets: Annotated[
        list[Grant],
        About(description="who may refer to which secrets, as TENANT:NAME; * is all of them"),
    ] = msgspec.field(default_factory=lambda: ["local:*"])


NAMES: Final = Settings.__struct_fields__
_TYPES: Final = get_type_hints(Settings, include_extras=True)


class Loaded(msgspec.Struct, frozen=True):
    """Settings, and where each of them comes from."""

    settings: Settings
    origins: dict[str, str]


def load_settings(
    flags: Mapping[str, Any],
    variables: Mapping[str, str],
    directory: Path,
) -> Loaded:
    """Put the settings together for a process that was started in a directory."""
    values: dict[str, Any] = {}
    origins = dict.fromkeys(NAMES, DEFAULT)
    named = variables.get(CONFIG_VARIABLE)
    path = directory / (named or FILE)
    for name, value, origin in (
        *_from_file(path, required=named is not None),
        *_from_variables(variables),
        *((name, value, _flag(name)) for name, value in flags.items() if value is not None),
    ):
        values[name] = _checked(name, value, origin)
        origins[name] = origin
    return Loaded(Settings(**values), origins)


def description(name: str) -> str:
    """Say what a setting is for."""
    for part in _TYPES[name].__metadata__:
        if part.description is not None:
            return str(part.description)
    raise TypeError(f"{name} is not described")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _from_file(path: Path, *, required: bool) -> Iterable[tuple[str, Any, str]]:
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if required:
            raise SettingsError(f"{CONFIG_VARIABLE} names {path}, which does not exist") from None
        return
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    for name, value in found.items():
        if name not in NAMES:
            raise SettingsError(_unknown(name, f"in {path}", NAMES))
        yield name, value, path.name


def _from_variables(variables: Mapping[str, str]) -> Iterable[tuple[str, Any, str]]:
    known = {PREFIX + name.upper(): name for name in NAMES}
    for variable, text in sorted(variables.items()):
        if not variable.startswith(PREFIX) or variable.startswith(SECRET_PREFIX):
            continue
        if variable == CONFIG_VARIABLE:
            continue
        if variable not in known:
            if variable in VARIABLES:
                continue
            raise SettingsError(_unknown(variable, "in the environment", known))
        name = known[variable]
        value = [part for part in text.split(",") if part] if _is_list(name) else text
        yield name, value, variable


def _unknown(name: str, where: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "`perdure config` lists all settings"
    return f"there is no setting {name} ({where}); {hint}"


def _is_list(name: str) -> bool:
    return get_origin(get_args(_TYPES[name])[0]) is list


def _checked(name: str, value: Any, origin: str) -> Any:  # noqa: ANN401 - of the setting's type
    try:
        return msgspec.convert(value, _TYPES[name], strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        raise SettingsError(f"{name} ({origin}): {error}") from error
