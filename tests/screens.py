"""What is not fit for a screen, by Unicode's own tables rather than by ours."""

import re
import unicodedata

IGNORABLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def raw(text):
    """Return the characters of a text that steer or deceive a screen."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return []
    return [
        letter
        for letter in text.replace("\n", "")
        if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"} or IGNORABLE.match(letter)
    ]


def unfit_for_screen(text, *, annotations=False, github=True):
    """Return what of a text is not fit for a screen, or for a log of GitHub, where only annotations may be commands."""
    found = [repr(letter) for letter in raw(text)]
    for line in text.splitlines():
        command = github and line.lstrip().startswith("::")
        if "##[" in line or (command and not (annotations and re.match(r"::error (file|title)=[^:]*::", line))):
            found.append(line)
    return found
