"""Toolchains: named interpreters with what is installed there, made, verified, chosen and removed.

A room of its own beside ``toolchain``, which only knows processes: to verify an environment takes a backend,
and backends stand on processes. ``jobs.py`` runs in the other interpreter before anything is installed there,
so nothing is imported here.
"""
