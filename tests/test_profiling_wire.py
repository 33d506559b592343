import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiling.events import read_events
from profiling.wire import buffer, read_fields, read_varints
from profiling.xplane_schema import message_types

INT64 = st.integers(-(2**63), 2**63 - 1)
STAT = st.one_of(
    st.tuples(st.just("double_value"), st.floats(allow_nan=False)),
    st.tuples(st.just("uint64_value"), st.integers(0, 2**64 - 1)),
    st.tuples(st.just("int64_value"), INT64),
    st.tuples(st.just("str_value"), st.text(max_size=6).map(str.encode)),
    st.tuples(st.just("bytes_value"), st.binary(max_size=6)),
    st.tuples(st.just("ref_value"), st.integers(0, 300)),
)
EVENT = st.tuples(INT64, INT64, INT64, st.lists(st.tuples(st.integers(0, 300), STAT), max_size=4))
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
    events = read_events([encode(event) for event in written])
    assert list(zip(events.ids.tolist(), events.offsets.tolist(), events.durations.tolist(), strict=True)) == [
        e[:3] for e in written
    ]
    expected = [(owner, key, decoded(*value)) for owner, event in enumerate(written) for key, value in event[3]]
    stats = events.stats
    found = [(int(stats.owners[at]), int(stats.ids[at]), stats.decode(at, NAMES)) for at in range(len(stats.ids))]
    assert found == expected


@given(st.lists(EVENT, min_size=1, max_size=4), st.data())
def test_a_damaged_message_is_an_error_or_an_answer_and_never_a_hang(written, data):
    raw = bytearray(b"".join(map(encode, written)))
    if not raw:
        return
    for _ in range(3):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    try:
        read_events([bytes(raw[:cut])])
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
