"""The start and the end of a command's process. With `DDCLI_PLAIN_START=1`, imports and the end are Python's own.

* library_parts: parts of libraries that are imported only when they are needed
* process: the start and end of a command's process, and its memory
"""
