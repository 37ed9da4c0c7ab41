"""Text with its own checksum, which detects changed bits: JSON in its last field, YAML in its last line.

Text of earlier versions has no checksum and is not checked.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

CHECKSUM = "checksum"
COMMENT = re.compile(r"# kreiss run (\S+), checksum (\S+)\n\Z")
NOBODY = "none"  # the run of a folder that was made before runs had an identity


def checksum(text: str, before: int = 0) -> int:
    """CRC-32, which detects any single changed bit; `before` is that of the preceding text."""
    return zlib.crc32(text.encode(), before)


# ---------------------------------------------------------------- JSON


def sealed(content: dict[str, Any], indent: int | None = None) -> str:
    """JSON whose last field is the checksum of everything before it."""
    text = json.dumps({**content, CHECKSUM: ""}, indent=indent)
    end = text.rindex('"')
    return f"{text[:end]}{checksum(text[:end]):08x}{text[end:]}"


def unsealed(text: str, indent: int | None = None) -> tuple[dict[str, Any], bool]:
    """The content of such a text, and whether it had a checksum; ValueError if the text was changed."""
    try:
        content = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("no names and values")
    if CHECKSUM not in content:
        return content, False
    del content[CHECKSUM]
    if sealed(content, indent) != text:
        raise ValueError("another checksum than was written")
    return content, True


# ---------------------------------------------------------------- YAML


def commented(text: str, run: str | None) -> str:
    """YAML with a last line that names the run and holds the checksum of everything before it."""
    text = f"{text}# kreiss run {run or NOBODY}, checksum "
    return f"{text}{checksum(text):08x}\n"


def comment_of(text: str) -> str | None:
    """The run that such a text names, None if it has no such line; ValueError if the text was changed."""
    match = COMMENT.search(text)
    if match is None:
        return None
    if commented(text[: match.start()], match[1]) != text:
        raise ValueError("another checksum than was written")
    return match[1]
