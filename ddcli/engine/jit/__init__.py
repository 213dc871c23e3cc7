"""Compiled kernels: written as Python functions, compiled by numba once, kept as images of machine code that any process loads.

Why it exists: a run must not import numba, which takes half a second and 210 MB of disk; a call of a kernel may cost a tenth of a microsecond; and
one wheel serves every version of Python. So numba compiles a kernel in a process of its own, its object code becomes an image, and a run maps the images
that it calls.

An ordinary extension module (Cython, C or Rust) would leave some 150 of these 1 800 lines. It would cost a wheel for each platform, with Cython also for
each version of Python; a C compiler on each machine where `dd` is developed or installed from its source; and for C and Rust a second language.
With those two a kernel's source could also no longer run as Python, as it does under a debugger, where no code can be loaded, and in small calls
while the code is being compiled.

* bundled_kernels: the files that the package's wheel carries
* compilation: the modules that are being compiled, and the calls that wait for them
* compile: the compiler, a process of its own; the only import of numba
* linker: images of object code
* load: the decorator of kernels; the code that their first call loads: files, found by a hash of all that they depend on
* object_code: LLVM's object code, before it is linked to an image; loaded by LLVM on machines that take no images
* registry: the kernels of each module, as Python functions and machine code in images, and their errors
* settings: the folder for compiled kernels, of this user alone; the kind of processor; the listener for reports
"""
