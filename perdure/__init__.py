"""The one import of plugin authors and clients; knows nothing that is not promised to them."""


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  (asked for rarely)

        return version("perdure")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
