import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiling.events import read_events
from profiling.wire import buffer, read_fields, read_varints, split
from profiling.xplane_schema import message_types

INT64 = st.integers(-(2**63), 2**63 - 1)
TIME = st.integers(-(2**62) + 1, 2**62 - 1)  # 53 days in ps; what is longer is refused, since sums of it would not fit
STAT = st.one_of(
    st.tuples(st.just("double_value"), st.floats(allow_nan=False)),
    st.tuples(st.just("uint64_value"), st.integers(0, 2**64 - 1)),
    st.tuples(st.just("int64_value"), INT64),
    st.tuples(st.just("str_value"), st.text(max_size=6).map(str.encode)),
    st.tuples(st.just("bytes_value"), st.binary(max_size=6)),
    st.tuples(st.just("ref_value"), st.integers(0, 300)),
)
EVENT = st.tuples(INT64, TIME, TIME, st.lists(st.tuples(st.integers(0, 300), STAT), max_size=4))
NAMES = {key: f"name {key}" for key in range(301)}


def encode(event) -> bytes:
    types = message_types()
    name_id, offset, duration, stats = event
    messages = [types["Stat"](metadata_id=key, **{kind: value}) for key, (kind, value) in stats]
    return types["Event"](metadata_id=name_id, offset_ps=offset, duration_ps=duration, stats=messages).SerializeToString()


def decoded(kind: str, value):
    if kind == "str_value":
        return value.decode()
    return NAMES[value] if kind == "ref_value" else value


@given(st.lists(EVENT, max_size=6))
def test_bulk_decoding_gives_back_what_the_protobuf_library_wrote(written):
    messages = [encode(event) for event in written]
    ends = np.cumsum([0, *map(len, messages)])
    events = read_events(buffer(messages), np.stack((ends[:-1], ends[1:]), axis=1))
    expected_times = [(offset, offset + duration) for _, offset, duration, _ in written]
    assert list(zip(events.ids.tolist(), map(tuple, events.times.tolist()), strict=True)) == [
        (event[0], times) for event, times in zip(written, expected_times, strict=True)
    ]
    expected = [(owner, key, decoded(*value)) for owner, event in enumerate(written) for key, value in event[3]]
    stats = events.stats
    found = [(int(stats.owners[at]), int(stats.ids[at]), stats.decode(at, NAMES)) for at in range(len(stats.ids))]
    assert found == expected


@pytest.mark.parametrize("time", [2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_a_time_of_more_than_62_bits_is_refused(time):
    message = encode((1, 0, time, []))
    with pytest.raises(ValueError, match="62 bits"):
        read_events(buffer([message]), np.array([[0, len(message)]]))


@given(st.lists(EVENT, min_size=1, max_size=4), st.data())
def test_a_damaged_message_is_an_error_or_an_answer_and_never_a_hang(written, data):
    raw = bytearray(b"".join(map(encode, written)))
    if not raw:
        return
    for _ in range(3):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    try:
        read_events(buffer([bytes(raw[:cut])]), np.array([[0, cut]]))
    except ValueError:
        return


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_varints_by_the_definition(values):
    # Seven bits a byte, lowest first, the top bit set on all but the last.
    encoded = [[(value >> shift) & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)] for value in values]
    raw = [bytes([*(byte | 0x80 for byte in digits[:-1]), digits[-1]]) for digits in encoded]
    starts = np.cumsum([0, *map(len, raw)])
    found, after = read_varints(buffer(raw), starts[:-1])
    assert found.tolist() == values
    assert after.tolist() == starts[1:].tolist()


def test_an_endless_varint_is_refused():
    with pytest.raises(ValueError, match="does not end"):
        read_varints(buffer([b"\xff" * 12]), np.array([0]))


def test_a_field_that_reaches_past_its_message_is_refused():
    # Tag of field 4, delimited, length 9, of which 2 bytes are there.
    message = np.frombuffer(b"\x22\x09ab", np.uint8)
    with pytest.raises(ValueError, match="cut off"):
        list(read_fields(buffer([message.tobytes()]), np.array([0]), np.array([4])))


@given(st.binary(max_size=6), st.lists(st.binary(max_size=300), max_size=5), INT64)
def test_a_message_is_taken_apart_as_the_protobuf_library_reads_it(name, events, timestamp):
    line = message_types()["Line"](name=name, timestamp_ns=timestamp, events=events)
    raw = line.SerializeToString()
    extents, rest = split(buffer([b"before", raw]), 6, 6 + len(raw), 4)
    assert [(b"before" + raw)[start:end] for start, end in extents.tolist()] == events
    del line.events[:]
    assert message_types()["Line"].FromString(rest) == line


@given(st.binary(max_size=40))
def test_what_is_no_message_is_an_error_or_an_answer_within_its_bounds(raw):
    try:
        extents, _ = split(buffer([raw]), 0, len(raw), 4)
    except ValueError:
        return
    assert (extents <= len(raw)).all()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\x22\x09ab", "cut off"),
        (b"\x12\x09ab", "cut off"),
        (b"\x22" + b"\xff" * 9 + b"\x7f", "longer than its message"),  # a length beyond 63 bits
        (b"\x08" + b"\xff" * 12, "does not end"),
        (b"\x23", "no longer exists"),  # the begin of a group
    ],
)
def test_a_damaged_message_says_what_is_wrong(raw, reason):
    with pytest.raises(ValueError, match=reason):
        split(buffer([raw]), 0, len(raw), 4)
