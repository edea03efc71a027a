"""The program of a process: ``python -m perdure.child module:Class`` executes a plugin's entries.

All of it is in ``perdure.runtime.process.kit``.
"""

from perdure.runtime.process.kit import main

if __name__ == "__main__":
    main()
