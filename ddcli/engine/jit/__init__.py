"""Compiled kernels: written as Python functions, compiled by numba once, kept as images of machine code that any process loads.

* cache: files of code, found by a hash of all that they depend on
* cargo: the files that the package's wheel carries
* compilation: the modules that are being compiled, and the calls that wait for them
* compile: the compiler, a process of its own; the only import of numba
* image: machine code in memory: images, and object code where a machine takes none
* linker: images of object code
* load: the decorator of kernels; the code that their first call loads
* registry: the kernels of each module, as Python functions and machine code, and their errors
* settings: the folder for compiled kernels, of this user alone; the kind of processor; the listener for reports
"""
