"""The config check: real pairs have nothing wrong; each damaged key leads to its finding, which says what it does to acceptance."""

import json

import pytest
from click.testing import CliRunner

from perfcli.app import app
from perfmodel.errors import InputError
from sweeps.diagnosis.config_check import CHECKS, check_configs
from sweeps.diagnosis.layer_ids import default_layer_ids

TARGET = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 2560,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "vocab_size": 151936,
    "rope_theta": 1000000,
    "max_position_embeddings": 40960,
    "pad_token_id": 151643,
    "eos_token_id": [151645, 151643],
}
DRAFT = {
    **{key: value for key, value in TARGET.items() if key not in ("pad_token_id", "eos_token_id")},
    "architectures": ["DFlashDraftModel"],
    "num_hidden_layers": 5,
    "num_target_layers": 36,
    "block_size": 16,
    "layer_types": ["full_attention"] * 5,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
}


@pytest.fixture
def check(tmp_path):
    """Findings of a pair with changes; None deletes a key, a dict under dflash_config is merged."""

    def run(draft=None, target=None, k=None, context=None):
        paths = []
        for name, base, change in (("target", TARGET, target or {}), ("draft", DRAFT, draft or {})):
            document = {**base, **change}
            if "dflash_config" in change:
                document["dflash_config"] = {**base["dflash_config"], **change["dflash_config"]}
                document["dflash_config"] = {k: v for k, v in document["dflash_config"].items() if v is not None}
            document = {key: value for key, value in document.items() if value is not None}
            path = tmp_path / f"{name}.json"
            path.write_text(json.dumps(document))
            paths.append(str(path))
        return check_configs(*paths, k, context)

    return run


def wrong(findings):
    return [finding.code for finding in findings if finding.severity != "info"]


@pytest.mark.parametrize("k", [None, 2, 16])
def test_a_matching_pair_has_nothing_wrong(check, k):
    assert wrong(check(k=k)) == []


# each: what is changed, the finding it must lead to, a word of the effect
MISTAKES = [
    ({"draft": {"dflash_config": {"target_layer_ids": [1, 9, 17, 25, 36]}}}, "layer-ids-outside", "another target"),
    ({"draft": {"dflash_config": {"target_layer_ids": [2, 10, 18, 26, 34]}}}, "layer-ids-off-by-one", "every position"),
    ({"draft": {"dflash_config": {"target_layer_ids": [9, 1, 17, 25, 33]}}}, "layer-ids-order", "concatenation"),
    ({"draft": {"dflash_config": {"target_layer_ids": None}}}, "layer-ids-missing", "every position"),
    ({"draft": {"num_target_layers": 40}}, "target-layers-differ", "another target"),
    ({"k": 17}, "k-above-block", "collapse"),
    ({"draft": {"block_size": None}}, "block-size-missing", "collapses"),
    ({"draft": {"block_size": 7}}, "label-layout-unknown", "below 1 %"),
    ({"draft": {"dflash_config": {"mask_token_id": 151936}}}, "mask-id-outside", "borrows"),
    ({"draft": {"dflash_config": {"mask_token_id": 151643}}}, "mask-id-taken", "silently"),
    ({"draft": {"dflash_config": {"mask_token_id": 151645}}}, "mask-id-taken", "silently"),
    ({"draft": {"dflash_config": {"mask_token_id": None}}}, "mask-id-missing", "acceptance falls"),
    ({"draft": {"head_dim": None}}, "head-dim-missing", "cut wrongly"),
    ({"draft": {"hidden_size": 2048}}, "hidden-size-differs", "cannot fit"),
    ({"draft": {"rope_theta": 10000}}, "rope-differs", "decay"),
    ({"draft": {"rope_theta": None}}, "rope-missing", "decay"),
    ({"draft": {"layer_types": ["sliding_attention"] * 5}}, "window-missing", "11 %"),
    ({"draft": {"layer_types": ["sliding_attention"] * 5, "sliding_window": 2048}, "context": 32768}, "window-to-honour", "11 %"),
    ({"draft": {"layer_types": ["full_attention"] * 4}}, "layer-types-differ", "other layers"),
    ({"context": 65536}, "context-past-positions", "decay"),
    ({"draft": {"vocab_size": 151669}}, "vocabulary-differs", "near zero"),
    ({"draft": {"draft_vocab_size": 200000}}, "draft-vocabulary-large", "do not exist"),
    ({"target": {"quantization_config": {"quant_method": "awq", "bits": 4}}}, "four-bit-target", "other features"),
]


@pytest.mark.parametrize(("change", "code", "effect"), MISTAKES)
def test_each_mistake_leads_to_its_finding(check, change, code, effect):
    findings = {finding.code: finding for finding in check(**change)}
    assert code in findings
    assert effect in findings[code].cause, "it says what it does to acceptance"
    assert findings[code].next_step


def test_k_is_shown_in_every_engines_way_of_counting(check):
    finding = next(finding for finding in check(k=16) if finding.code == "k-counts")
    assert "num_speculative_tokens 15 in vLLM" in finding.evidence
    assert "num-draft-tokens 16 in SGLang" in finding.evidence
    mixed_up = next(finding for finding in check(k=17) if finding.code == "k-above-block")
    assert "a block size given where drafts are counted" in mixed_up.evidence


def test_a_drafter_that_samples_from_the_anchor_gives_one_draft_more(check):
    assert wrong(check(draft={"block_size": 7, "sample_from_anchor": True}, k=8)) == []
    assert wrong(check(draft={"block_size": 7, "sample_from_anchor": True}, k=9)) == ["k-above-block"]


def test_memory_of_the_drafter(check):
    finding = next(finding for finding in check(context=32768) if finding.code == "drafter-memory")
    # 5 layers of 100.9 M weights and fc 5·2560 × 2560 = 32.8 M: 537 M, 1.07 GB in bfloat16
    assert "weights 1.07 GB" in finding.evidence
    # 2 · 5 layers · 8 heads · 128 · 2 B = 20,480 B per token; · 32,768 = 671 MB
    assert "32,768 tokens 671 MB per request" in finding.evidence
    windowed = check(draft={"layer_types": ["sliding_attention"] * 4 + ["full_attention"], "sliding_window": 2048}, context=32768)
    finding = next(finding for finding in windowed if finding.code == "drafter-memory")
    # one full layer 134 MB and four of 2048 tokens at 4,096 B: 33.6 MB
    assert "168 MB where windows are allocated as windows" in finding.evidence


def test_a_shallow_target_leaves_eagle_two_features(shared_data):
    pair = [str(shared_data / "vllm-cpu" / name) for name in ("target-config.json", "eagle3-config.json")]
    assert wrong(check_configs(*pair, 4, None)) == []


def test_eagle_defaults_that_coincide(tmp_path, shared_data):
    document = json.loads((shared_data / "vllm-cpu/eagle3-config.json").read_text())
    del document["eagle_aux_hidden_state_layer_ids"]
    (tmp_path / "draft.json").write_text(json.dumps(document))
    findings = check_configs(str(shared_data / "vllm-cpu/target-config.json"), str(tmp_path / "draft.json"), 4, None)
    assert "default-layers-coincide" in wrong(findings)  # 2, 6 // 2 and 6 - 3


def test_real_pairs_have_no_error(shared_data):
    pairs = [
        ("target_Qwen3-4B", "draft_specforge_qwen3-4b-dflash", 16),
        ("target_Qwen3-8B", "draft_specforge_qwen3-8b-dflash", 16),
        ("target_Qwen3.5-35B-A3B", "draft_specforge_qwen3.5-35b-a3b-dflash", 16),
        ("target_Qwen3-8B", "draft_specforge_qwen3-8b-eagle3", 4),
    ]
    for target, draft, k in pairs:
        configs = shared_data / "configs"
        findings = check_configs(str(configs / f"{target}.json"), str(configs / f"{draft}.json"), k, None)
        assert [finding.code for finding in findings if finding.severity == "error"] == []


def test_every_published_config_is_checked_or_refused_by_name(shared_data):
    configs = sorted((shared_data / "configs").glob("*.json"))
    for target in (path for path in configs if path.name.startswith("target")):
        for draft in (path for path in configs if path.name.startswith("draft")):
            findings = check_configs(str(target), str(draft), 8, 4096)
            assert all(finding.message for finding in findings)


def test_a_config_of_the_wrong_target_is_caught(shared_data):
    configs = shared_data / "configs"
    findings = check_configs(
        str(configs / "target_Qwen3-8B.json"), str(configs / "draft_specforge_qwen3.5-4b-dflash.json"), 16, None
    )
    assert {"target-layers-differ", "hidden-size-differs", "vocabulary-differs", "mask-id-outside"} <= set(wrong(findings))


def test_speculators_ids_count_hidden_states(shared_data):
    configs = shared_data / "configs"
    target, draft = configs / "target_Qwen3.5-35B-A3B.json", configs / "draft_issue613_speculators_dflash_qwen36_35b.json"
    finding = next(f for f in check_configs(str(target), str(draft), 16, None) if f.code == "layer-ids-off-by-one")
    assert "count hidden states" in finding.evidence


@pytest.mark.parametrize(
    ("layers", "features", "expected"),
    [(36, 5, [1, 9, 17, 25, 33]), (32, 5, [1, 8, 15, 22, 29]), (64, 5, [1, 16, 31, 46, 61]), (24, 1, [12])],
)
def test_default_layers(layers, features, expected):
    assert default_layer_ids(layers, features) == expected


def test_shipped_names_and_folders_are_taken(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(DRAFT))
    assert check_configs("qwen3-4b", str(tmp_path), 16, None) is not None


def test_what_a_shipped_name_does_not_hold_is_not_called_missing():
    codes = {finding.code for finding in check_configs("qwen3-4b", "qwen3-4b-dflash-b16", 16, None)}
    assert "config-not-whole" in codes
    assert not codes & {"mask-id-missing", "rope-missing", "layer-ids-missing", "layer-ids-off-by-one"}
    eagle = {finding.code for finding in check_configs("qwen3-8b", "qwen3-8b-eagle3", 8, None)}
    assert "draft-vocabulary-reduced" in eagle
    assert "block-size-missing" not in eagle


@pytest.mark.parametrize("text", ["[]", "{", "{}", '{"num_hidden_layers": "many"}', '{"num_hidden_layers": 5, "block_size": -1}'])
def test_what_is_no_config_is_refused(tmp_path, text):
    (tmp_path / "d.json").write_text(text)
    (tmp_path / "t.json").write_text(json.dumps(TARGET))
    with pytest.raises(InputError):
        check_configs(str(tmp_path / "t.json"), str(tmp_path / "d.json"), 16, None)


def test_the_verb_checks_a_pair(shared_data):
    configs = shared_data / "configs"
    args = ["--target", configs / "target_Qwen3-4B.json", "--draft", configs / "draft_specforge_qwen3-4b-dflash.json"]
    result = CliRunner().invoke(app, ["diagnose", *map(str, args), "--k", "17", "--json"])
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert document["findings"][0]["code"] == "k-above-block"
    assert set(document["checked"]) == set(CHECKS)
