"""Runs that write a folder of shards: restartable, and by several processes.

Importing this package imports no framework.
"""
