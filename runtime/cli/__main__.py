"""`python -m perdure.runtime.cli` is `perdure`."""

from perdure.runtime.cli import main

if __name__ == "__main__":
    main(prog_name="perdure")
