"""Where a payload stood: Graph says it in addresses, `teams('…')/channels('…')/messages('…')/replies('…')`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from streammem.connectors.fields import Row, text_of

_STEP = re.compile(
    r"\b(teams|groups|channels|chats|messages|replies|tags|users|members|joinedTeams)\b"
    r"(?:\('([^'()]{1,400})'\)|/(?!delta\b|getAll|microsoft\.)([^/?#()'$]{1,400}))?",
    re.IGNORECASE,
)
_ADDRESSES = ("@odata.context", "@odata.nextLink", "@odata.deltaLink", "@odata.id")


@dataclass(frozen=True)
class Place:
    """What an address says. `thing` is what its last step holds: messages, members, channels …"""

    team: str = ""
    channel: str = ""
    root: str = ""
    message: str = ""
    tag: str = ""
    thing: str = ""


NOWHERE = Place()


def place_in(address: str) -> Place:
    """The parts of an address, decoded.

    >>> place_in("teams('T')/channels('19%3Aa%40thread.tacv2')/messages('1')/replies('2')")
    Place(team='T', channel='19:a@thread.tacv2', root='1', message='2', tag='', thing='replies')
    """
    steps: dict[str, str] = {}
    thing = ""
    for match in _STEP.finditer(address.partition("?")[0]):
        thing = match[1].casefold()
        steps[thing] = unquote(match[2] or match[3] or "")
    channel, _, opened = (steps.get("channels") or steps.get("chats") or "").partition(";messageid=")
    answered = "replies" in steps
    return Place(
        team=steps.get("teams") or steps.get("groups") or "",
        channel=channel,
        root=(steps.get("messages", "") if answered else "") or opened,
        message=steps.get("replies" if answered else "messages", ""),
        tag=steps.get("tags", ""),
        thing=thing,
    )


def place_of(page: Row) -> Place:
    """Where a page came from, by its own address or that of the page after it."""
    for key in _ADDRESSES:
        if (address := text_of(page, key)) and (place := place_in(address)) != NOWHERE:
            return place
    return NOWHERE
