"""Topics as data, and where events go: always the same way, whoever asks."""

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core.topics import DIRECTORY, LOG, MESSAGES, TOPICS, input_of, named, partition_of, place
from streammem.records import ChannelEvent, ChannelRef, Event, MembershipEvent, MessageEvent, ReactionEvent, UserEvent
from tests.strategies import histories

names = st.text(min_size=1, max_size=8)
counts = st.integers(1, 1000)

KNOWN: list[tuple[Event, int]] = [
    (MessageEvent(workspace="W", channel=ChannelRef(id="C1"), id="1", text="a"), 13),
    (MessageEvent(workspace="Ω/%", channel=ChannelRef(id="C/1"), id="1", text="a"), 34),
    (ReactionEvent(workspace="W", channel="C1", message="1", name="ok"), 13),
    (MembershipEvent(workspace="W", channel="C1", user="U1"), 13),
    (UserEvent(workspace="W", id="U1"), 55),
    (ChannelEvent(workspace="W", id="C1"), 23),
]


def test_every_topic_has_a_name_of_its_own_and_says_who_writes_and_reads_it():
    assert len({t.short for t in TOPICS}) == len({t.name for t in TOPICS}) == len(TOPICS)
    assert all(t.holds and t.key and t.writers and t.readers and t.name.endswith(".v1") for t in TOPICS)


def test_the_log_is_compacted_and_kept_for_ever_and_nothing_else_is():
    assert [t for t in TOPICS if t.retention is None] == [t for t in TOPICS if t.cleanup == "compact"] == [LOG]
    assert LOG.config["retention.ms"] == "-1"


def test_inputs_take_larger_records_than_the_log():
    assert min(MESSAGES.max_bytes, DIRECTORY.max_bytes) > 2 * LOG.max_bytes


def test_a_prefix_stands_before_every_name():
    assert named("test.", LOG) == "test.memory.log.v1"
    assert named("", LOG) == "memory.log.v1"


@pytest.mark.parametrize(("event", "partition"), KNOWN)
def test_partitions_are_what_they_always_were(event, partition):
    assert partition_of(event, 64) == partition


def test_another_process_finds_the_same_partition():
    script = (
        "from streammem.core.topics import partition_of; from streammem.records import UserEvent;"
        "print([partition_of(UserEvent(workspace='W', id=f'U{n}'), 64) for n in range(50)])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str([partition_of(UserEvent(workspace="W", id=f"U{n}"), 64) for n in range(50)])


@given(history=histories(), partitions=counts)
def test_all_versions_of_a_message_share_a_partition_and_an_input_key(history, partitions):
    found: dict[tuple[str, str, str], set[tuple[int, tuple[str, str]]]] = {}
    for event in history:
        number = partition_of(event, partitions)
        assert 0 <= number < partitions
        if isinstance(event, MessageEvent):
            at = found.setdefault((event.workspace, event.channel.id, event.id), set())
            at.add((number, input_of(event)))
    assert all(len(places) == 1 for places in found.values())


@given(workspace=names, channel=names, others=st.tuples(names, names))
def test_what_happens_in_a_channel_has_one_place(workspace, channel, others):
    message = MessageEvent(workspace=workspace, channel=ChannelRef(id=channel), id=others[0])
    reaction = ReactionEvent(workspace=workspace, channel=channel, message=others[0], name="ok", user=others[1])
    membership = MembershipEvent(workspace=workspace, channel=channel, user=others[1])
    assert place(message) == place(reaction) == place(membership)
    assert input_of(message) == input_of(reaction)


@given(one=st.tuples(names, names), two=st.tuples(names, names))
def test_two_channels_never_have_the_same_place(one, two):
    places = {place(MembershipEvent(workspace=w, channel=c, user="U")) for w, c in (one, two)}
    assert len(places) == len({one, two})


@given(histories())
def test_messages_and_reactions_go_to_one_input_and_the_directory_to_the_other(history):
    for event in history:
        short, key = input_of(event)
        assert (short == "messages") == isinstance(event, MessageEvent | ReactionEvent)
        assert event.workspace in key


@given(history=histories(), texts=st.tuples(names, names))
def test_a_place_does_not_depend_on_what_was_said(history, texts):
    for event in history:
        if isinstance(event, MessageEvent):
            other = msgspec.structs.replace(event, text=texts[0], version="77", sender=type(event.sender)(id=texts[1]))
            assert place(other) == place(event)
