"""Everything that can be asked of Perdure: one table, bound to every surface."""
