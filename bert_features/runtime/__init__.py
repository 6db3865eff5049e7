"""Runtimes compile the pure device step and spread it over devices; only they name a backend."""
