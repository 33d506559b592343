"""Every sample file imports with the totals its source states; several files of one experiment; what the record is good for."""

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from perfcli.app import app
from perfmodel import codec
from perfmodel.acceptance import load_acceptance, tau_interval
from perfmodel.errors import InputError
from perfmodel.records import Imported
from sweeps.importers.merging import import_files
from sweeps.importers.registry import READERS, recognise
from sweeps.importers.source import Source
from sweeps.tables import read_timings

# file: (reader, steps, drafted, accepted, K); figures as the sources state them
TOTALS = {
    "bench/vllm_metrics_qwen36_27b_mtp2.prom": ("vllm-prometheus", 68270, 136537, 116128, 3),
    "bench/vllm_bench_serve_dflash_qwen36_35b_k8.txt": ("vllm-bench-text", 446819, 3574552, 1685779, 9),
    "vllm-cpu/bench-ngram-k7.json": ("vllm-bench-json", 103, 481, 464, 6),
    "vllm-cpu/bench-ngram-k7.stdout.txt": ("vllm-bench-text", 103, 481, 464, 6),
    "vllm-cpu/bench-dflash_copy-k7.json": ("vllm-bench-json", 378, 2646, 210, 8),
    "vllm-cpu/bench-dflash_copy-k7.stdout.txt": ("vllm-bench-text", 378, 2646, 210, 8),
    "vllm-cpu/metrics-ngram-k1.txt": ("vllm-prometheus", 760, 760, 747, 2),
    "vllm-cpu/metrics-ngram-k3.txt": ("vllm-prometheus", 440, 1146, 1107, 4),
    "vllm-cpu/metrics-ngram-k7.txt": ("vllm-prometheus", 389, 1805, 1737, 6),
    "vllm-cpu/metrics-dflash_copy-k1.txt": ("vllm-prometheus", 1007, 1007, 593, 2),
    "vllm-cpu/metrics-dflash_copy-k3.txt": ("vllm-prometheus", 1587, 4761, 3, 4),
    "vllm-cpu/metrics-cmp-dflash_copy-k7.txt": ("vllm-prometheus", 762, 5334, 915, 8),
    "vllm-cpu/metrics-dflash_copy-k7.txt": ("vllm-prometheus", 1147, 8029, 1125, 8),
    "vllm-cpu/metrics-dflash_copy-k7-bf16.txt": ("vllm-prometheus", 744, 5208, 915, 8),
    "vllm-cpu/metrics-dflash-k3.txt": ("vllm-prometheus", 1590, 4770, 0, 4),
    "vllm-cpu/metrics-dflash-k7.txt": ("vllm-prometheus", 1590, 11130, 0, 8),
    "vllm-cpu/metrics-dflash-k8.txt": ("vllm-prometheus", 1590, 12720, 0, 9),
    "vllm-cpu/metrics-draft_model-k3.txt": ("vllm-prometheus", 404, 1212, 1212, 4),
    "vllm-cpu/metrics-eagle3-k1.txt": ("vllm-prometheus", 1590, 1590, 0, 2),
    "vllm-cpu/metrics-eagle3-k3.txt": ("vllm-prometheus", 1590, 4770, 0, 4),
    "vllm-cpu/metrics-eagle3-k7.txt": ("vllm-prometheus", 1590, 11130, 0, 8),
    "vllm-cpu/metrics-base.txt": ("vllm-prometheus", None, None, None, None),
    "published/tpu_v5p_standalone_gsm8k.json": ("tpu-standalone", 325, 4875, 1430, 16),  # 1755 committed in 325 steps
    "published/tpu_v5p_standalone_math500.json": ("tpu-standalone", 195, 2925, 1521, 16),  # 1716 in 195
    "published/tpu_v5p_standalone_alpaca.json": ("tpu-standalone", 470, 7050, 872, 16),  # 1342 in 470
    "published/tpu_v4_phase_profile_gsm8k.json": ("tpu-phases", 114, 1710, 590, 16),  # tau 6.175438… · 114 = 704
    "bench/dflash-mlx_qwen3-5-4b-1024.json": ("dflash-mlx", 417, None, 2655, 16),  # three runs of 1024 tokens in 139 cycles
    "bench/sglang_decode_batch.log": ("sglang-log", None, None, None, 4),
}


@pytest.mark.parametrize("file", TOTALS)
def test_totals_are_those_the_source_states(shared_data, file):
    reader, steps, drafted, accepted, block_size = TOTALS[file]
    record, lines = import_files([shared_data / file])
    assert record.source == reader
    assert reader in lines[0]
    assert (record.num_steps, record.num_draft_tokens, record.num_accepted) == (steps, drafted, accepted)
    assert record.block_size == block_size
    if steps is not None:
        assert record.tau == pytest.approx(1 + accepted / steps)


# file: totals of every record in order, (steps, drafted, accepted, K, tau)
RECORDS = {
    "bench/vllm_specdecoding_lines.log": [
        (4437, 13311, 8547, 4, 10616 / 4437),  # accepted is an upper bound there: tau from the emitted tokens
        (3, 15, 1, 6, 1.0),
        (None, 66, 66, None, None),
        (59, 295, 262, 6, 1 + 262 / 59),
        (431, 6465, 19, 16, 1 + 19 / 431),  # 16 positions listed, 6465 = 431 · 15 drafted
        (418, 6270, 884, 16, 1 + 884 / 418),  # 455 + 415 + 14 accepted in three intervals
        (65, 975, 89, 16, 1 + 89 / 65),
        (996, 7968, 160, 9, 1 + 160 / 996),  # 54 + 106
    ],
    "vllm-cpu/log-lines-specdecoding.txt": [
        (535, 1624 + 1540 + 581, 0, 8, 1.0),
        (392, 245 + 602 + 179, 239 + 580 + 176, 4, 1 + 995 / 392),
        (297, 868 + 938 + 273, 49 + 105, 8, 1 + 154 / 297),
        (832, 942 + 900 + 654, 0, 4, 1.0),
        (279, 252 + 420 + 165, 252 + 420 + 165, 4, 4.0),
        (239, 646 + 448 + 33, 623 + 438 + 26, 6, 1 + 1087 / 239),
    ],
    "bench/llamacpp_spec.log": [
        (87, 259, 167, 4, 1 + 167 / 87),
        (None, 187, 128, None, None),
        (225, 900, 886, 5, 1 + 886 / 225),
        (None, 33, 31, None, None),
    ],
    "bench/sglang_bench_eagle_dflash.jsonl": [(None, None, None, None, tau) for tau in (4.07, 3.695, 4.11, 5.08)],
    "published/block7_survival_qwen3_4b_a10.csv": [
        (5114, None, None, 8, 4.352),
        (4437, None, None, 8, 4.9754),
        (4800, None, None, 8, 4.6392),
        (4361, None, None, 8, 5.1085),
    ],
    "published/tpu_v5p_survival_by_position.csv": [(None, None, None, 16, 5.9191), (None, None, None, 16, 7.9345)],
    "bench/vllm_per_request_gsm8k_metrics.json": [(None, None, None, None, None)] * 4,
}


@pytest.mark.parametrize("file", RECORDS)
def test_every_run_of_a_file_keeps_its_own_totals(shared_data, file):
    record, _ = import_files([shared_data / file])
    found = [(run.num_steps, run.num_draft_tokens, run.num_accepted, run.block_size) for run in record.records]
    assert found == [expected[:4] for expected in RECORDS[file]]
    for run, (*_, tau) in zip(record.records, RECORDS[file], strict=True):
        assert run.tau == (None if tau is None else pytest.approx(tau, abs=1e-9))
    sizes = {(run.definition, run.block_size) for run in record.records if run.tau is not None or run.num_accepted is not None}
    if len(sizes) > 1:
        assert record.tau is None, "runs of several K or definitions have no common total"


# file: (number of step times, shape of the first, its seconds)
TABLES = {
    "published/verify_vs_k.csv": (73, (16, 1, 64), 1.807e-3),
    "published/rtx2000ada_verify_vs_k.json": (16, (16, 1, 256), 50.666e-3),
    "published/qwen3-1.7b_rtx4060_verify_cost_medians.csv": (42, (16, 8, 0), 14.38310432434082e-3),
    "published/gemm_latency_vs_tokens.csv": (860, (1, 1, None), 24.081e-6),
}


@pytest.mark.parametrize("file", TABLES)
def test_latency_tables_become_cost_points_with_batch_and_context(shared_data, file):
    number, shape, seconds = TABLES[file]
    record, _ = import_files([shared_data / file])
    first = record.cost_points[0]
    assert len(record.cost_points) == number
    assert (first.tokens, first.batch, first.context) == shape
    assert first.seconds == pytest.approx(seconds)
    assert record.tau is None


def test_counters_of_a_scrape_give_survival_by_position(shared_data):
    record, _ = import_files([shared_data / "vllm-cpu/metrics-cmp-dflash_copy-k7.txt"])
    assert record.survival == pytest.approx([count / 762 for count in (139, 133, 133, 129, 129, 126, 126)])
    assert record.records[0].target == "tiny"


def test_the_recorded_runs_file_names_every_start(shared_data):
    record, _ = import_files([shared_data / "vllm-cpu/runs.jsonl"])
    by_name = {run.name: run for run in record.records}
    assert by_name["ngram-k3 series"].num_accepted == 1107
    assert by_name["dflash-k8 series"].block_size == 9
    listed = next(finding for finding in record.findings if finding.code == "methods-without-drafts")
    assert "base" in listed.message
    assert not any(run.name.startswith("base") for run in record.records)


def test_counts_recovered_from_a_log_are_the_servers_own(shared_data, tmp_path):
    lines = (shared_data / "vllm-cpu/log-lines-specdecoding.txt").read_text().splitlines()
    path = tmp_path / "bench.log"  # the two intervals of the benchmark, without the one before it
    path.write_text("\n".join([line for line in lines if line.startswith("[ngram-k7]")][1:]))
    log, _ = import_files([path])
    bench, _ = import_files([shared_data / "vllm-cpu/bench-ngram-k7.json"])
    assert (log.num_steps, log.num_draft_tokens, log.num_accepted) == (103, 481, 464)
    assert log.survival == pytest.approx(bench.survival)


def test_a_16_position_list_of_15_drafts_is_a_finding(shared_data):
    record, _ = import_files([shared_data / "bench/vllm_specdecoding_lines.log"])
    codes = {finding.code for finding in record.findings}
    assert {"positions-beyond-draft", "accepted-upper-bound", "runs-not-added"} <= codes


def test_warm_ups_are_left_out_and_counted(shared_data):
    run = import_files([shared_data / "published/tpu_v5p_standalone_gsm8k.json"])[0].records[0]
    assert (run.num_requests, run.num_warmup) == (7, 1)
    assert sum(map(len, run.committed)) == 325  # the warm-up's 32 steps are not among them
    assert run.survival == pytest.approx([1 - 0.13846153846153847, *run.survival[1:]])  # share of steps that committed 1 token


def test_async_phase_times_are_flagged(shared_data):
    record, _ = import_files([shared_data / "published/tpu_v4_phase_profile_gsm8k.json"])
    assert [finding.code for finding in record.findings] == ["async-phases"]
    assert record.cost_points == ()


def test_a_share_of_output_is_not_taken_for_an_acceptance_rate(shared_data):
    run = import_files([shared_data / "bench/dflash-mlx_qwen3-5-4b-1024.json"])[0].records[0]
    assert run.num_draft_tokens is None
    assert run.num_output_tokens == 1024
    assert run.findings[0].code == "ratio-of-output"


def test_sglang_k_follows_from_length_and_rate(shared_data):
    speculative, plain = import_files([shared_data / "bench/sglang_decode_batch.log"])[0].records
    assert (speculative.block_size, speculative.tau) == (4, 3.04)  # (3.04 - 1) / 0.68 = 3.0 drafts
    assert plain.tau is None
    assert plain.cycles[0].seconds == pytest.approx(1 / 147.64)  # median of three rates at batch 1
    assert plain.cycles[0].context == 144


def test_every_reader_says_what_it_reads_and_cannot_know():
    assert len({reader.name for reader in READERS}) == len(READERS)
    for reader in READERS:
        assert reader.description
        assert reader.cannot_know


def test_each_sample_file_is_recognised_by_one_reader(shared_data):
    for file, (reader, *_) in TOTALS.items():
        assert recognise(Source(shared_data / file)).name == reader


# --- several files ---


def scrape(drafts, tokens, accepted, positions, engine="0", created=None):
    lines = [
        f'vllm:spec_decode_num_drafts_total{{engine="{engine}",model_name="m"}} {drafts}',
        f'vllm:spec_decode_num_draft_tokens_total{{engine="{engine}",model_name="m"}} {tokens}',
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="{engine}",model_name="m"}} {accepted}',
    ]
    for index, count in enumerate(positions):
        lines.append(
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="{engine}",model_name="m",position="{index}"}} {count}'
        )
    if created is not None:
        lines.append(f'vllm:spec_decode_num_drafts_created{{engine="{engine}",model_name="m"}} {created}')
    return "\n".join(lines) + "\n"


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def test_two_scrapes_of_one_server_are_before_and_after(tmp_path):
    before = write(tmp_path, "a.prom", scrape(100, 300, 150, [80, 50, 20], created=1.7e9))
    after = write(tmp_path, "b.prom", scrape(300, 900, 400, [200, 130, 70], created=1.7e9))
    record, _ = import_files([before, after])
    assert (record.num_steps, record.num_draft_tokens, record.num_accepted) == (200, 600, 250)
    assert record.survival == pytest.approx((120 / 200, 80 / 200, 50 / 200))
    assert record.block_size == 4
    assert "difference of 2 scrapes" in record.definition


def test_a_counter_that_fell_is_refused(tmp_path):
    before = write(tmp_path, "a.prom", scrape(300, 900, 400, [200, 130, 70]))
    after = write(tmp_path, "b.prom", scrape(100, 300, 150, [80, 50, 20]))
    with pytest.raises(InputError, match="fell from 300 to 100"):
        import_files([before, after])


def test_a_restart_that_grew_past_the_old_counts_is_seen_by_the_creation_time(tmp_path):
    before = write(tmp_path, "a.prom", scrape(100, 300, 150, [80, 50, 20], created=1.7e9))
    after = write(tmp_path, "b.prom", scrape(300, 900, 400, [200, 130, 70], created=1.8e9))
    with pytest.raises(InputError, match="began at another time"):
        import_files([before, after])


def test_engines_are_added_by_name_and_position_and_created_gauges_are_no_counts(tmp_path):
    text = scrape(100, 300, 150, [80, 50, 20], "0", 1.7e9) + scrape(50, 150, 60, [30, 20, 10], "1", 1.7e9)
    record, _ = import_files([write(tmp_path, "a.prom", text)])
    assert (record.num_steps, record.num_draft_tokens, record.num_accepted) == (150, 450, 210)
    assert record.survival == pytest.approx((110 / 150, 70 / 150, 30 / 150))


def test_scrapes_of_another_k_are_runs_of_their_own(tmp_path):
    one = write(tmp_path, "a.prom", scrape(100, 300, 150, [80, 50, 20]))
    two = write(tmp_path, "b.prom", scrape(100, 100, 70, [70]))
    record, _ = import_files([one, two])
    assert [run.block_size for run in record.records] == [4, 2]
    assert record.num_steps is None


def test_files_of_one_definition_and_k_are_pooled_by_steps(shared_data):
    names = ("gsm8k", "alpaca")
    record, _ = import_files([shared_data / f"published/tpu_v5p_standalone_{name}.json" for name in names])
    assert record.num_steps == 325 + 470
    assert record.tau == pytest.approx((1755 + 1342) / (325 + 470))
    first = [run.survival[0] for run in record.records]
    assert record.survival[0] == pytest.approx((325 * first[0] + 470 * first[1]) / 795)


def test_a_saved_import_can_be_merged_again(shared_data, tmp_path):
    codec.save(tmp_path / "a.json", import_files([shared_data / "published/tpu_v5p_standalone_gsm8k.json"])[0])
    record, lines = import_files([tmp_path / "a.json", shared_data / "published/tpu_v5p_standalone_alpaca.json"])
    assert record.num_steps == 795
    assert lines[0] == "a.json: an earlier import"


def test_an_ambiguous_file_lists_the_candidates_and_format_decides(tmp_path):
    row = '{"num_draft_tokens": 3, "num_accepted_tokens": %d}\n'  # totals of a run each, or one step each?
    path = write(tmp_path, "x.jsonl", row % 2 + row % 0)
    with pytest.raises(InputError, match=r"generic-counters .*generic-steps") as caught:
        import_files([path])
    assert "--format" in caught.value.hint
    record, _ = import_files([path], "generic-steps")
    assert (record.num_steps, record.num_accepted, record.block_size, record.tau) == (2, 2, 4, 2.0)


def test_an_unknown_format_name_gets_the_nearest(tmp_path):
    with pytest.raises(InputError, match="no format called 'vllm-logs'") as caught:
        import_files([write(tmp_path, "x", "x")], "vllm-logs")
    assert "vllm-log" in caught.value.hint


# --- what the record is good for ---


def perf(*args):
    """Run a verb in this process; the parts of its output."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    return result


def test_imported_acceptance_predicts_and_carries_its_interval(shared_data, tmp_path):
    out = tmp_path / "a.json"
    document = json.loads(perf("import", shared_data / "published/tpu_v5p_standalone_gsm8k.json", "-o", out, "--json").stdout)
    assert document["schema"] == "perf.imported"
    assert (document["num_steps"], document["num_accepted"], document["tau"], document["block_size"]) == (325, 1430, 5.4, 16)
    assert len(document["survival"]) == 15
    (profile,) = load_acceptance(out)
    low, high = tau_interval(profile, 16)
    assert low < 5.4 < high
    answer = json.loads(perf("predict", "--hardware", "tpu-v5p", "--acceptance", out, "--k", "1,8,16", "--json").stdout)
    assert answer["best"]["tau"] == pytest.approx(5.4)


def test_a_mean_alone_with_its_k_is_one_point_of_the_curve(shared_data, tmp_path):
    codec.save(tmp_path / "a.json", import_files([shared_data / "bench/sglang_decode_batch.log"])[0])
    (profile,) = load_acceptance(tmp_path / "a.json")
    assert profile.tau_points == ((1, 1.0), (4, 3.04))
    assert profile.findings[0].code == "curve-estimated"


def test_a_mean_without_k_is_no_acceptance(shared_data, tmp_path):
    codec.save(tmp_path / "a.json", import_files([shared_data / "bench/sglang_bench_eagle_dflash.jsonl"])[0])
    with pytest.raises(InputError, match="no usable acceptance"):
        load_acceptance(tmp_path / "a.json")


def test_short_drafts_keep_the_positions_they_reached(shared_data, tmp_path):
    codec.save(tmp_path / "a.json", import_files([shared_data / "vllm-cpu/metrics-ngram-k7.txt"])[0])
    (profile,) = load_acceptance(tmp_path / "a.json")
    assert (profile.block_size, len(profile.survival)) == (8, 7)  # K is 6 by the mean length, seven positions were reached


def test_impossible_rates_are_imported_and_refused_as_a_curve(tmp_path):
    record, _ = import_files([write(tmp_path, "a.prom", scrape(100, 300, 150, [80, 90, 20]))])
    assert any(finding.code == "survival-rises" for finding in record.findings)
    assert record.survival == (0.8, 0.9, 0.2), "kept as read"
    codec.save(tmp_path / "a.json", record)
    with pytest.raises(InputError, match="rising by position"):
        load_acceptance(tmp_path / "a.json")


def test_imported_step_times_are_a_table_for_fit_and_check(shared_data, tmp_path):
    codec.save(tmp_path / "t.json", import_files([shared_data / "published/qwen3-1.7b_rtx4060_verify_cost_medians.csv"])[0])
    points = read_timings(tmp_path / "t.json").points
    assert len(points) == 42
    assert (points[0].block_size, points[0].batch, points[0].context) == (2, 8, 0)  # 16 tokens at batch 8
    direct = read_timings(shared_data / "published/qwen3-1.7b_rtx4060_verify_cost_medians.csv").points
    assert [point.median_s for point in points] == pytest.approx([point.median_s for point in direct])


def test_check_takes_an_imported_table(shared_data, tmp_path):
    out = tmp_path / "t.json"
    perf("import", shared_data / "published/rtx2000ada_verify_vs_k.json", "-o", out)
    document = json.loads(perf("check", out, "--hardware", "rtx-2000-ada", "--target", "qwen3-4b", "--json").stdout)
    assert len(document["points"]) == 16


def test_the_table_on_the_terminal_shows_both_counts(shared_data):
    shown = perf("import", shared_data / "vllm-cpu/metrics-cmp-dflash_copy-k7.txt")
    assert "8 (7)" in shown.stdout
    assert "taken for vllm-prometheus" in shown.stderr


def test_records_hold_no_nan(shared_data):
    for folder in ("bench", "published", "vllm-cpu"):
        for path in sorted((shared_data / folder).iterdir()):
            try:
                record, _ = import_files([path])
            except InputError:
                continue
            assert isinstance(record, Imported)
            numbers = [run.tau for run in record.records] + [value for run in record.records for value in run.survival or ()]
            assert all(value is None or math.isfinite(value) for value in numbers)


def test_the_documentation_lists_every_reader():
    page = (Path(__file__).resolve().parent.parent / "docs" / "formats.md").read_text()
    for reader in READERS:
        assert f"| `{reader.name}` | {reader.description} | {reader.cannot_know} |" in page
