"""Run the command line as `python -m ddcli`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the folder we are in, which `-m` puts there: no file of it may pass for a module

from ddcli.cli.coreutils import main

if __name__ == "__main__":
    main()
