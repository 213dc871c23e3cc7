"""The commands: one module each, imported when its command is called."""
