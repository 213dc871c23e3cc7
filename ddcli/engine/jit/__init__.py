"""Compiled kernels: written as Python functions, compiled by numba once, kept as images of machine code that any process loads.

* cache: files of code, found by a hash of all that they depend on
* cargo: the files that the package's wheel carries
* compilation: the modules that are being compiled, and the calls that wait for them
* compile: the compiler, a process of its own; the only import of numba
* errors: the errors of kernels
* image: machine code that runs at any address
* linker: images of object code
* load: the decorator of kernels; the code that their first call loads
* objects: object code, which LLVM loads on machines that take no images
* ownership: directories of this user alone, and files there that are written whole
* processor: the targets whose code a processor runs
* registry: kernels by module, and their arguments
* settings: the cache directory, and the listener for reports of compilations
"""
