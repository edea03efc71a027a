"""`python -m runtime.cli` is `perdure`."""

from runtime.cli import main

if __name__ == "__main__":
    main(prog_name="perdure")
