"""Run the command line as `python -m ddcli`."""

from ddcli.cli.coreutils import main

if __name__ == "__main__":
    main()
