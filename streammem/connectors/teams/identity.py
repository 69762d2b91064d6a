"""Who said or did something: Graph's identity sets, in which one of several members is filled."""

from __future__ import annotations

from typing import NamedTuple

from streammem.connectors.fields import Row, row_of, text_of
from streammem.records import SenderKind

_OUTSIDE = frozenset(
    {
        *("anonymousguest", "federateduser", "personalmicrosoftaccountuser", "skypeuser", "phoneuser", "emailuser"),
        *("azurecommunicationservicesuser", "guest"),
    }
)
_PEOPLE = ("user", "guest", "phone", "acsUser", "applicationInstance")
_OTHERS = ("device", "conversation")


class Identity(NamedTuple):
    """An id with what was said about it. `tenant` is the one its owner is at home in."""

    id: str
    name: str
    kind: SenderKind
    tenant: str = ""


def identity_of(row: Row) -> Identity | None:
    """The one that an identity set names: a person before the application that a person spoke through."""
    for key in _PEOPLE:
        if found := _named(row_of(row, key)):
            return Identity(*found, _kind_of_person(row_of(row, key), key), text_of(row_of(row, key), "tenantId"))
    if found := _named(row_of(row, "application")):
        return Identity(*found, "bot")
    named = (_named(row_of(row, key)) for key in _OTHERS)
    return next((Identity(*found, "unknown") for found in named if found), None)


def user_in(row: Row, key: str) -> str:
    """The id of the person or application in a field that holds an identity set; empty for none."""
    found = identity_of(row_of(row, key))
    return found.id if found else text_of(row_of(row, key), "id")


def _named(row: Row) -> tuple[str, str] | None:
    found = (text_of(row, "id"), text_of(row, "displayName").strip())
    return found if any(found) else None


def _kind_of_person(row: Row, key: str) -> SenderKind:
    """A person of the tenant, from outside, or one whose account is gone: deleted accounts have no name left."""
    stated = text_of(row, "userIdentityType").casefold()
    if stated in _OUTSIDE or key != "user":
        return "external"
    return "user" if text_of(row, "displayName").strip() else "unknown"
