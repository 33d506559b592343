"""Malformed, truncated, huge and hostile files: one line with the file and the line number, exit 2, never a traceback."""

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfcli.app import app
from perfmodel.errors import InputError
from perfmodel.records import ImportedRun
from sweeps.importers import source as source_module
from sweeps.importers.merging import import_files
from sweeps.importers.registry import names

ROOT = Path(__file__).resolve().parent.parent

GOOD = {
    "vllm-bench-json": json.dumps(
        {
            "backend": "openai",
            "total_output_tokens": 576,
            "output_throughput": 5.0,
            "mean_itl_ms": 9.0,
            "spec_decode_num_drafts": 103,
            "spec_decode_draft_tokens": 481,
            "spec_decode_accepted_tokens": 464,
            "spec_decode_acceptance_length": 5.504854368932039,
            "spec_decode_per_position_acceptance_rates": [0.99, 0.699, 0.689],
        },
        indent=1,
    ),
    "vllm-bench-text": (
        "============ Serving Benchmark Result ============\nSuccessful requests:                     12\nDrafts:      103\n"
        "Draft tokens:  481\nAccepted tokens:     464\nPer-position acceptance (%):\n  Position 0:    99.03\n  Position 1:   69.90\n"
        "==================================================\n"
    ),
    "vllm-prometheus": (
        'vllm:spec_decode_num_drafts_total{engine="0"} 10.0\nvllm:spec_decode_num_draft_tokens_total{engine="0"} 30.0\n'
        'vllm:spec_decode_num_accepted_tokens_total{engine="0"} 12.0\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 12.0\n'
    ),
    "vllm-log": (
        "INFO [metrics.py] SpecDecoding metrics: Mean acceptance length: 3.57, Accepted throughput: 2 tokens/s, Drafted throughput: 3"
        " tokens/s, Accepted: 239 tokens, Drafted: 245 tokens, Per-position acceptance rate: 0.978, 0.796, 0.796, Avg Draft acceptance"
        " rate: 97.6%\n"
    ),
    "vllm-requests": json.dumps(
        {
            "metrics": {
                "speculative_decoding": {
                    "acceptance_histogram": [1, 0, 1],
                    "num_spec_steps": 2,
                    "num_accepted_draft_tokens": 2,
                    "num_draft_tokens": 4,
                    "num_spec_tokens": 2,
                }
            }
        }
    ),
    "sglang-requests": json.dumps({"meta_info": {"spec_verify_ct": 4, "spec_accept_length": 2.5, "completion_tokens": 10}}),
    "sglang-bench": json.dumps({"task": "x", "latency": 3.0, "accept_length": 4.0, "num_requests": 8}),
    "sglang-log": (
        "[2026] Decode batch, #running-req: 9, #token: 104, accept len: 3.04, accept rate: 0.68, gen throughput (token/s): 22.40, x\n"
    ),
    "llamacpp-log": "draft acceptance = 0.98444 (  886 accepted /   900 generated), mean len =  4.94\n",
    "tpu-standalone": json.dumps(
        {
            "config": {"block_size": 4},
            "summary": {"tau": 2.0},
            "per_sample": [{"acceptance_lengths": [1, 3], "num_drafts": 2, "is_warmup": False}],
        }
    ),
    "tpu-verify-sweep": json.dumps({"k_values": [16], "results": {"64": {"16": {"mean_ms": 1.8}}}}),
    "tpu-phases": json.dumps(
        {
            "config": {"block_size": 4},
            "summary": {"step_total": {"median_ms": 3.0}},
            "tau": 2.0,
            "total_steps": 1,
            "per_step_timings": [{}],
        }
    ),
    "dflash-text": "DFlash throughput:  120.00 tok/s\nAcceptance length histogram: ['0.0%', '60.0%', '40.0%']\n",
    "dflash-mlx": json.dumps({"config": {"block_tokens": 16}, "runs": [{"dflash": {"cycles": 10, "tokens_per_cycle": 2.5}}]}),
    "speculation-profile": json.dumps({"measured": True, "num_speculative_tokens": 2, "marginal_accept_rates": [0.8, 0.5]}),
    "benchmark-conditions": json.dumps({"conditions": {"A": {"decode_tok_s": {"mean": 30.0}, "measured_rows": 20}}}),
    "generic-counters": json.dumps({"num_drafts": 10, "num_draft_tokens": 30, "num_accepted_tokens": 12}),
    "generic-steps": '{"step": 0, "accepted": 2, "proposed": 3}\n{"step": 1, "accepted": 0, "proposed": 3}\n',
    "csv": "tokens,batch,context,ms\n16,1,256,3.0\n32,1,256,3.5\n",
}


def write(folder, text):
    path = folder / "file"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_there_is_a_good_file_for_every_reader(tmp_path):
    assert set(GOOD) == set(names())
    for name, text in GOOD.items():
        record, _ = import_files([write(tmp_path, text)], name)
        assert record.source == name
        assert all(isinstance(run, ImportedRun) for run in record.records)


# (reader, from, to, the line to be named, a word of the message)
DAMAGE = [
    ("vllm-bench-json", "103", "-103", 6, "not negative"),
    ("vllm-bench-json", "103", "NaN", 6, "not JSON"),
    ("vllm-bench-json", "103", '"many"', 6, "a number is wanted"),
    ("vllm-bench-json", "103", "10.5", 6, "a whole number"),
    ("vllm-bench-json", "[\n  0.99", "[\n  [1]", 10, "a number"),
    ("vllm-bench-json", "103", "1e400", 6, "not JSON"),
    ("vllm-bench-text", "103", "-103", 3, "not negative"),
    ("vllm-bench-text", "99.03", "nan", 7, "number"),
    ("vllm-bench-text", "  Position 0", "  Position 3", 7, "position 3 follows"),
    ("vllm-prometheus", "10.0", "-10.0", 1, "not negative"),
    ("vllm-prometheus", "30.0", "NaN", 2, "finite"),
    ("vllm-prometheus", "30.0", "thirty", 2, "not a number"),
    ("vllm-prometheus", "30.0", "30.5", 2, "whole"),
    ("vllm-prometheus", 'position="0"', 'position="x"', 4, "position"),
    ("vllm-log", "239", "-239", 1, "not negative"),
    ("vllm-log", "245", "many", 1, "whole number"),
    ("vllm-requests", '"num_spec_steps": 2', '"num_spec_steps": -2', 1, "not negative"),
    ("vllm-requests", "[1, 0, 1]", '"abc"', 1, "a list"),
    ("sglang-requests", '"spec_verify_ct": 4', '"spec_verify_ct": "4"', 1, "a number"),
    ("sglang-bench", "4.0", "-4.0", 1, "not negative"),
    ("sglang-log", "3.04", "-3.04", 1, "not negative"),
    ("sglang-log", "req: 9", "req: x", 1, "not negative"),
    ("llamacpp-log", "886", "-886", 1, "not negative"),
    ("llamacpp-log", "900", "lots", 1, "whole number"),
    ("tpu-standalone", "[1, 3]", "[0, 3]", 1, "every step commits"),
    ("tpu-standalone", "[1, 3]", "[1, 3.5]", 1, "a whole number"),
    ("tpu-verify-sweep", "1.8", "-1.8", 1, "not negative"),
    ("tpu-verify-sweep", '"64"', '"sixty"', 1, "no context length"),
    ("tpu-phases", "[{}]", "7", 1, "a list of objects"),
    ("dflash-text", "'60.0%'", "'-60%'", 2, "list of per cents"),
    ("dflash-text", "120.00", "fast", 1, "number"),
    ("dflash-mlx", '"cycles": 10', '"cycles": -10', 1, "not negative"),
    ("speculation-profile", "[0.8, 0.5]", "[0.8, null]", 1, "a number"),
    ("benchmark-conditions", "30.0", '"x"', 1, "a number"),
    ("generic-counters", ": 30", ": -30", 1, "not negative"),
    ("generic-steps", '"step": 1, "accepted": 0', '"step": 1, "accepted": -1', 2, "not negative"),
    ("generic-steps", '"step": 1, "accepted": 0', '"step": 1, "accepted": 5', 2, "5 drafts were accepted of 3"),
    ("csv", "3.5", "-3.5", 3, "not negative"),
    ("csv", "3.5", "nan", 3, "number"),
    ("csv", "32,1,", "32,1,9,", 3, "5 cells under 4 columns"),
    ("csv", "32", "x", 3, "whole number"),
]


@pytest.mark.parametrize(("reader", "old", "new", "line", "word"), DAMAGE)
def test_a_wrong_value_is_refused_with_its_line(tmp_path, reader, old, new, line, word):
    text = GOOD[reader].replace(old, new)
    assert text != GOOD[reader], "the damage must take effect"
    path = write(tmp_path, text)
    result = CliRunner().invoke(app, ["import", str(path), "--format", reader])
    assert isinstance(result.exception, InputError), result.output
    message = str(result.exception)
    assert word in message
    assert f"line {line}" in message or (line == 1 and "entry 1" in message)


@pytest.mark.parametrize(
    "reader", [name for name, text in GOOD.items() if text.lstrip().startswith("{") and name != "generic-steps"]
)
def test_truncated_json_is_refused_with_its_last_line(tmp_path, reader):
    text = GOOD[reader]
    half = write(tmp_path, text[: len(text) // 2])
    with pytest.raises(InputError, match=r"line \d+"):
        import_files([half])
    with pytest.raises(InputError, match=r"line \d+"):
        import_files([half], reader)


def test_a_report_without_its_end_is_refused(tmp_path):
    with pytest.raises(InputError, match="line 7: the report ends without its last line"):
        import_files([write(tmp_path, "\n".join(GOOD["vllm-bench-text"].splitlines()[:7]))])


def test_a_whole_run_of_the_command_exits_2_without_a_traceback(tmp_path):
    path = write(tmp_path, GOOD["vllm-prometheus"].replace("10.0", "-1"))
    result = subprocess.run(
        [sys.executable, "-m", "perfcli", "import", str(path)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert "line 1" in result.stderr


@pytest.mark.parametrize("reader", ["vllm-log", "generic-steps", "csv", "vllm-prometheus", "llamacpp-log", "sglang-bench"])
def test_a_line_of_ten_megabytes_is_refused_by_number(tmp_path, reader):
    good = GOOD[reader].rstrip("\n") + "\n"
    path = write(tmp_path, good + "x" * 10_000_000 + "\n")
    number = good.count("\n") + 1
    with pytest.raises(InputError, match=rf"line {number} is longer than 8 MiB|line {number}: "):
        import_files([path], reader)


def test_a_result_on_one_line_of_ten_megabytes_is_no_log_and_is_read(tmp_path):
    document = {**json.loads(GOOD["vllm-bench-json"]), "generated_texts": ["x" * 10_000_000]}
    record, _ = import_files([write(tmp_path, json.dumps(document))])
    assert record.num_steps == 103


@pytest.mark.parametrize("content", ["", "\n\n", "hello\n", "\x00" * 100, "{}", "[]", "[1, 2]", '"text"', "{" * 100_000, "a,b\n"])
def test_nothing_known_says_so(tmp_path, content):
    with pytest.raises(InputError, match=r"line \d+"):
        import_files([write(tmp_path, content)])


def test_paths_that_are_no_files(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        import_files([tmp_path / "absent"])
    with pytest.raises(InputError, match="cannot be read"):
        import_files([tmp_path])


def test_a_document_above_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(source_module, "MAX_DOCUMENT_BYTES", 1000)
    with pytest.raises(InputError, match="JSON document above"):
        import_files([write(tmp_path, '{\n"a": "' + "x" * 2000 + '"}')], "vllm-bench-json")


def test_gzip_is_read_and_damaged_gzip_is_refused(tmp_path):
    import gzip

    packed = gzip.compress(GOOD["vllm-prometheus"].encode())
    assert import_files([write(tmp_path, packed)])[0].num_steps == 10
    for damaged in (packed[:-12], packed[:2], packed[:20] + b"junk" + packed[24:]):
        with pytest.raises(InputError, match="cannot be read"):
            import_files([write(tmp_path, damaged)])


def test_carriage_returns_colours_and_a_byte_order_mark(tmp_path):
    text = "\ufeff" + GOOD["vllm-log"].replace("INFO", "\x1b[32mINFO\x1b[0m").replace("\n", "\r\n")
    assert import_files([write(tmp_path, text)])[0].num_accepted == 239


def test_a_counter_twice_in_one_scrape_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"line 5: .*stands twice"):
        import_files([write(tmp_path, GOOD["vllm-prometheus"] * 2)])


# --- bounded memory ---

NOISE = "(APIServer pid=1) INFO 11-29 20:28:29 [loggers.py:271] Engine 000: Avg generation throughput: 28.9 tokens/s, Running: 1 reqs\n"


def big_log(path, num_bytes):
    """A server log of that size: every tenth line holds metrics."""
    block = (NOISE * 9 + GOOD["vllm-log"]).encode()
    repeats = num_bytes // len(block) + 1
    with path.open("wb") as stream:
        for _ in range(repeats):
            stream.write(block)
    return repeats


def test_a_log_is_streamed_in_bounded_memory(tmp_path):
    path = tmp_path / "server.log"
    repeats = big_log(path, 2_000_000)
    tracemalloc.start()
    record, _ = import_files([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert record.num_steps == 93 * repeats
    assert record.num_accepted == 239 * repeats
    assert peak < 1_000_000, "less than the file: it is not held"


@pytest.mark.slow
def test_a_log_of_a_gigabyte_is_streamed(tmp_path):
    path = tmp_path / "server.log"
    repeats = big_log(path, 1_000_000_000)
    # VmHWM and not ru_maxrss: the latter starts from what the process had that started this one.
    code = (
        "import sys; from pathlib import Path; from sweeps.importers.merging import import_files\n"
        "record, _ = import_files([Path(sys.argv[1])])\n"
        "status = Path('/proc/self/status').read_text()\n"
        "print(record.num_accepted, status.split('VmHWM:')[1].split()[0])"
    )
    result = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd=ROOT, check=True)
    accepted, kilobytes = map(int, result.stdout.split())
    path.unlink()
    assert accepted == 239 * repeats
    assert kilobytes < 300_000


def test_many_requests_keep_a_histogram_and_give_up_the_single_steps(tmp_path, monkeypatch):
    from sweeps.importers import vllm_requests

    monkeypatch.setattr(vllm_requests, "MAX_STEPS_KEPT", 5)
    item = json.loads(GOOD["vllm-requests"])
    item["metrics"]["speculative_decoding"] |= {"per_step_accepted": [0, 2], "per_step_drafted": [2, 2]}
    record, _ = import_files([write(tmp_path, (json.dumps(item) + "\n") * 10)])
    assert record.num_steps == 20
    assert record.records[0].committed == ()


# --- fuzz ---

FUZZ = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def survives(path, reader):
    """Import, or refuse with a line for a person; anything else is a bug."""
    try:
        record, _ = import_files([path], reader)
    except InputError:
        return
    for run in record.records:
        assert run.num_steps is None or run.num_steps >= 0
        assert run.tau is None or run.tau == run.tau


@pytest.mark.parametrize("reader", names())
@FUZZ
@given(data=st.data())
def test_damaged_files_never_end_in_a_traceback(tmp_path, reader, data):
    text = GOOD[reader].encode()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        junk = data.draw(
            st.sampled_from(
                [
                    b"",
                    b"-1",
                    b"1e9",
                    b"0",
                    b'"',
                    b"{",
                    b"}",
                    b",",
                    b"\n",
                    b"null",
                    b"true",
                    b"nan",
                    b"[]",
                    b"\xff",
                    b"99999999999999999999",
                ]
            )
        )
        text = text[:start] + junk + text[end:]
    survives(write(tmp_path, text), reader)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 40)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("reader", [name for name in names() if GOOD[name].lstrip().startswith("{")])
@FUZZ
@given(data=st.data())
def test_json_with_other_values_never_ends_in_a_traceback(tmp_path, reader, data):
    document = json.loads(GOOD[reader].splitlines()[0] if reader == "generic-steps" else GOOD[reader])
    for _ in range(data.draw(st.integers(1, 2))):
        holder, keys = document, list(document)
        while True:
            key = data.draw(st.sampled_from(keys))
            deeper = holder[key]
            if isinstance(deeper, dict) and deeper and data.draw(st.booleans()):
                holder, keys = deeper, list(deeper)
                continue
            holder[key] = data.draw(VALUES)
            break
    survives(
        write(
            tmp_path, json.dumps(document) + "\n" + json.dumps(document) if reader == "generic-steps" else json.dumps(document)
        ),
        reader,
    )


@FUZZ
@given(content=st.binary(max_size=300))
def test_any_bytes_are_recognised_or_refused(tmp_path, content):
    survives(write(tmp_path, content), None)
