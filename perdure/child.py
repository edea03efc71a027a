"""The process of an entry: ``python -m perdure.child module:Class`` (see runtime.process.kit)."""

from perdure.runtime.process.kit import main

if __name__ == "__main__":
    main()
