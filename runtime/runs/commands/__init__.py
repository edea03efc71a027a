"""The commands about runs. Modules import what they need when a command runs."""
