"""Databases of Postgres as tables, in and out, on a server of this machine."""
