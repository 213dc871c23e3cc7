"""Compiled kernels: written as Python functions, compiled by numba once, kept as object code, loaded by llvmlite.

* cache: files of object code, found by a hash of all they depend on
* compile: the compiler, a process of its own; the only import of numba
* errors: how a kernel can fail
* load: the decorator of kernels; what their first call loads
* ownership: directories of this user alone, and files there that are written whole
* registry: kernels by module, and how they take their arguments
* settings: the cache directory, and where a compilation is reported
"""
