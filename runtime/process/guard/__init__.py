"""The program between the server and a process; may know nothing of Perdure, and imports little."""
