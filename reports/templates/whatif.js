// The step-time law and τ(K) as pure functions of the records embedded in the page: the equations of perfmodel.cost, .draftcost,
// .layercost, .parallel, .stepmodel and .taucurve for one shape at a time. A test holds the two to 1e-6 of each other.
const WhatIf = (function () {
  "use strict";
  const NONE = { flops: 0, weight: 0, kv: 0, activation: 0, attention: 0 };
  const DELTA_RULE_FLOPS = 6;
  const STATE_BYTES = 4;
  const LOGIT_BYTES = 4;
  const VERIFY = "verify", DRAFT = "draft", COMMIT = "commit";

  const scaled = (cost, factor) => Object.fromEntries(Object.entries(cost).map(([name, value]) => [name, value * factor]));
  const plus = (...costs) => costs.reduce((total, cost) =>
    Object.fromEntries(Object.keys(NONE).map((name) => [name, total[name] + (cost[name] || 0)])), NONE);
  const tokensOf = (sizes) => sizes.batch * sizes.queries;

  // Bytes per element of what is stored: the quantised width below 16 bits, else the dtype's.
  const stored = (bits, wide) => (bits < 16 ? bits / 8 : wide);
  const weightBytes = (spec, wide) => stored(spec.weight_bits, wide);
  const headBytes = (spec, wide) => stored(spec.head_bits === null ? spec.weight_bits : spec.head_bits, wide);
  const expertBytes = (spec, wide) => stored(spec.expert_bits === null ? spec.weight_bits : spec.expert_bits, wide);
  const kvBytes = (spec, wide) => stored(spec.kv_bits, wide);

  // --- token mixers -------------------------------------------------------------------------------------------------------

  function layerKinds(spec) {
    const attention = spec.num_layers - (spec.linear === null ? 0 : spec.linear.num_layers);
    const full = spec.num_full_attention_layers === null ? attention : spec.num_full_attention_layers;
    return [full, attention - full];
  }

  function windowedPairs(sizes, window) {
    const rising = Math.min(Math.max(window - sizes.context, 0), sizes.queries);
    return rising * sizes.context + rising * (rising + 1) / 2 + (sizes.queries - rising) * window;
  }

  function grouped(spec, sizes, causal, writesCache, wide, extraInputs) {
    const query = spec.num_heads * spec.head_dim, key = spec.num_kv_heads * spec.head_dim;
    const [full, windowed] = layerKinds(spec);
    const layers = full + windowed;
    const gated = spec.attention_gate ? query : 0;
    const rows = full * sizes.context + (windowed ? windowed * Math.min(sizes.context, spec.sliding_window || 0) : 0);
    const written = writesCache ? layers * sizes.queries : 0;
    const { queries, context } = sizes;
    let pairs = full * (queries * context + (causal ? queries * (queries + 1) / 2 : queries * queries));
    if (windowed) pairs += windowed * windowedPairs(sizes, spec.sliding_window || 0);
    return {
      matrices: layers * (spec.hidden_size * (query + gated + 2 * key) + query * spec.hidden_size) + extraInputs * (query + 2 * key),
      norms: spec.qk_norm ? layers * 2 * spec.head_dim : 0,
      contextFlops: 4 * query * sizes.batch * pairs,
      kv: sizes.batch * (rows + written) * 2 * key * kvBytes(spec, wide),
      activations: layers * (4 * query + 2 * gated + 2 * key),
    };
  }

  function latent(spec, sizes, wide) {
    const known = spec.latent, layers = spec.num_layers, heads = spec.num_heads;
    const query = heads * (known.nope_dim + known.rope_dim), value = heads * known.value_dim;
    const expand = known.kv_rank * heads * (known.nope_dim + known.value_dim);
    const down = spec.hidden_size * (known.q_rank + known.kv_rank + known.rope_dim);
    const pairs = layers * sizes.batch * (sizes.queries * sizes.context + sizes.queries * (sizes.queries + 1) / 2);
    const absorbed = 2 * heads * (2 * known.kv_rank + known.rope_dim) * pairs;
    const expanded = 2 * (query + value) * pairs + 2 * layers * sizes.batch * sizes.context * expand;
    return {
      matrices: layers * (down + known.q_rank * query + expand + value * spec.hidden_size),
      norms: layers * (known.q_rank + known.kv_rank),
      contextFlops: Math.min(absorbed, expanded),
      kv: sizes.batch * layers * (sizes.context + sizes.queries) * (known.kv_rank + known.rope_dim) * kvBytes(spec, wide),
      activations: layers * (2 * known.q_rank + 2 * query + 4 * heads * known.kv_rank + 2 * value + known.kv_rank + known.rope_dim),
    };
  }

  function linear(spec, sizes, wide) {
    const known = spec.linear;
    const keys = known.num_key_heads * known.key_dim, values = known.num_value_heads * known.value_dim;
    const channels = 2 * keys + values, state = values * known.key_dim;
    const projections = spec.hidden_size * (channels + values + 2 * known.num_value_heads) + values * spec.hidden_size;
    return {
      matrices: known.num_layers * (projections + channels * known.conv_kernel),
      norms: known.num_layers * (known.value_dim + 2 * known.num_value_heads),
      contextFlops: DELTA_RULE_FLOPS * known.num_layers * state * tokensOf(sizes),
      kv: sizes.batch * known.num_layers * 2 * (state * STATE_BYTES + channels * known.conv_kernel * wide),
      activations: known.num_layers * (2 * channels + 4 * values),
    };
  }

  function compressed(spec, sizes, wide) {
    const known = spec.compressed, hidden = spec.hidden_size, width = spec.head_dim;
    const query = spec.num_heads * width, groupsOut = known.output_rank * known.output_groups;
    const common = hidden * known.q_rank + known.q_rank * query + hidden * width + query * known.output_rank;
    let matrices = 0, norms = 0, contextFlops = 0, rows = 0;
    for (const ratio of known.ratios) {
      const isIndexed = ratio !== 0 && ratio === known.indexed_ratio;
      let seen = windowedPairs(sizes, known.window), indexFlops = 0, weights = common + groupsOut * hidden;
      let kept = Math.min(sizes.context, known.window) + sizes.queries;
      if (ratio) {
        const pooled = sizes.context / ratio, overlap = isIndexed ? 2 : 1;
        const picked = isIndexed ? Math.min(pooled, known.index_top_k) : pooled;
        weights += 2 * hidden * overlap * width;
        seen += sizes.queries * picked;
        kept += Math.min(pooled, sizes.queries * picked);
        if (isIndexed) {
          const scorers = known.index_heads * known.index_dim;
          weights += known.q_rank * scorers + hidden * known.index_heads + 2 * hidden * overlap * known.index_dim;
          indexFlops = 2 * scorers * sizes.queries * pooled;
          kept += pooled * known.index_dim / width;
        }
      }
      matrices += weights;
      norms += known.q_rank + 2 * width;
      contextFlops += sizes.batch * (4 * query * seen + indexFlops);
      rows += kept;
    }
    const activations = spec.num_layers * (2 * known.q_rank + 4 * query + 2 * width + 2 * groupsOut);
    return { matrices, norms, contextFlops, kv: sizes.batch * rows * width * kvBytes(spec, wide), activations };
  }

  function mixers(spec, sizes, causal, writesCache, wide, extraInputs) {
    if (spec.compressed !== null) return compressed(spec, sizes, wide);
    if (spec.latent !== null) return latent(spec, sizes, wide);
    const attention = grouped(spec, sizes, causal, writesCache, wide, extraInputs);
    if (spec.linear === null) return attention;
    const recurrent = linear(spec, sizes, wide);
    return Object.fromEntries(Object.keys(attention).map((name) => [name, attention[name] + recurrent[name]]));
  }

  // --- passes -------------------------------------------------------------------------------------------------------------

  function layersCost(spec, sizes, causal, writesCache, wide, extraInputs = 0) {
    const mixer = mixers(spec, sizes, causal, writesCache, wide, extraInputs);
    const tokens = tokensOf(sizes), layers = spec.num_layers, hidden = spec.hidden_size;
    const numDense = spec.num_experts === 0 ? layers : (spec.num_dense_layers || 0), numSparse = layers - numDense;
    const dense = 3 * hidden * spec.intermediate_size, router = hidden * spec.num_experts;
    const expert = 3 * hidden * spec.moe_intermediate_size, shared = 3 * hidden * spec.shared_expert_intermediate_size;
    const chosen = spec.num_experts_per_token;
    const touched = numSparse ? spec.num_experts * (1 - (1 - chosen / spec.num_experts) ** tokens) : 0;
    const streams = spec.compressed === null ? 1 : spec.compressed.num_streams;
    const mixing = spec.compressed === null ? 0 : layers * 2 * streams * hidden * (streams + 2) * streams;
    const matrices = mixer.matrices + numDense * dense + numSparse * (router + shared + chosen * expert) + mixing;
    const body = mixer.matrices + numDense * dense + numSparse * shared;
    const norms = mixer.norms + layers * 2 * hidden + hidden;
    const width = numDense * spec.intermediate_size
      + numSparse * (chosen * spec.moe_intermediate_size + spec.shared_expert_intermediate_size);
    const activations = mixer.activations + layers * 4 * hidden * streams + 3 * width + numSparse * spec.num_experts;
    return {
      flops: 2 * tokens * matrices + mixer.contextFlops,
      weight: body * weightBytes(spec, wide) + (numSparse * router + mixing + norms) * wide
        + numSparse * expert * expertBytes(spec, wide) * touched,
      kv: mixer.kv,
      activation: tokens * activations * wide,
      attention: mixer.contextFlops,
    };
  }

  const embedding = (spec, tokens, wide) => ({ weight: Math.min(tokens, spec.vocab_size) * spec.hidden_size * wide });

  function head(spec, vocabulary, rows, wide) {
    const weights = spec.hidden_size * vocabulary;
    return {
      flops: 2 * rows * weights,
      weight: rows > 0 ? weights * headBytes(spec, wide) : 0,
      activation: rows * (spec.hidden_size * wide + 2 * vocabulary * LOGIT_BYTES),
    };
  }

  function targetPass(target, draft, sizes, wide) {
    const tokens = tokensOf(sizes);
    const features = tokens * draft.target_layer_ids.length * target.hidden_size * wide;
    return plus(layersCost(target, sizes, true, true, wide), embedding(target, tokens, wide),
      head(target, target.vocab_size, tokens, wide), { activation: features });
  }

  function blockDraft(target, draft, sizes, wide) {
    const isPeagle = draft.drafter === "peagle", numDrafts = sizes.queries - 1;
    const slots = draft.sample_from_anchor || isPeagle ? numDrafts : sizes.queries;
    if (slots <= 0) return NONE;
    const block = { ...sizes, queries: slots };
    const owner = draft.borrows_head ? target : draft;
    const vocabulary = draft.borrows_head ? target.vocab_size : (draft.draft_vocab_size || draft.vocab_size);
    const rows = sizes.batch * numDrafts;
    return plus(layersCost(draft, block, isPeagle, false, wide, isPeagle ? draft.hidden_size : 0),
      embedding(target, tokensOf(block), wide), head(owner, vocabulary, rows, wide),
      correction(draft, vocabulary, rows, numDrafts, wide));
  }

  function correction(draft, vocabulary, rows, numDrafts, wide) {
    const rank = draft.correction_rank, state = draft.correction_state, hidden = draft.hidden_size;
    if (!rank) return NONE;
    const matrices = rank * vocabulary + (state ? 3 * state * (hidden + state) + (hidden + state) * rank : 0);
    return {
      flops: 2 * rows * matrices,
      weight: numDrafts * matrices * weightBytes(draft, wide) + rows * rank * wide,
      activation: rows * 2 * vocabulary * LOGIT_BYTES,
    };
  }

  function chainedDraft(draft, sizes, wide) {
    const passes = sizes.queries - 1;
    const onePass = (context) => {
      const one = { batch: sizes.batch, queries: 1, context };
      return plus(layersCost(draft, one, true, true, wide, draft.num_layers * draft.hidden_size),
        embedding(draft, sizes.batch, wide), head(draft, draft.draft_vocab_size || draft.vocab_size, sizes.batch, wide));
    };
    return scaled(plus(onePass(sizes.context), onePass(Math.max(sizes.context + passes - 1, 0))), passes / 2);
  }

  function commitCost(draft, sizes, wide) {
    if (sizes.queries <= 1) return NONE; // plain decoding keeps no drafter's context
    const featureWidth = (draft.target_layer_ids.length || 3) * (draft.target_hidden_size || draft.hidden_size);
    const key = draft.num_kv_heads * draft.head_dim, layers = draft.num_layers, tokens = tokensOf(sizes);
    const isDflare = draft.drafter === "dflare";
    const fuse = isDflare ? 0 : featureWidth * draft.hidden_size, element = weightBytes(draft, wide);
    if (draft.drafter === "peagle") {
      return plus(layersCost(draft, sizes, true, true, wide, draft.hidden_size),
        { flops: 2 * tokens * fuse, weight: fuse * element, activation: tokens * featureWidth * wide });
    }
    const inputWidth = draft.drafter === "eagle3" ? 2 * draft.hidden_size : draft.hidden_size;
    const matrices = fuse + layers * 2 * key * inputWidth;
    const norms = draft.hidden_size + (draft.qk_norm ? layers * draft.head_dim : 0);
    const activations = (isDflare ? layers * featureWidth : featureWidth) + 2 * draft.hidden_size + layers * inputWidth;
    return {
      flops: 2 * tokens * matrices,
      weight: matrices * element + norms * wide,
      kv: tokens * layers * 2 * key * kvBytes(draft, wide),
      activation: tokens * activations * wide,
      attention: 0,
    };
  }

  // --- several chips ------------------------------------------------------------------------------------------------------

  function split(cost, spec, numChips) {
    if (numChips === 1) return cost;
    const heads = spec.latent !== null || spec.compressed !== null ? 1 : spec.num_kv_heads;
    return { ...scaled(cost, 1 / numChips), kv: cost.kv / Math.min(numChips, heads) };
  }

  function reduces(phase, sizes, pair, chip, wide) {
    if (chip.num_chips === 1 || phase === COMMIT) return { count: 0, seconds: 0 };
    const spec = phase === DRAFT ? pair.draft : pair.target;
    const chained = phase === DRAFT && spec.drafter === "eagle3", passes = chained ? sizes.queries - 1 : 1;
    const tokens = chained ? sizes.batch : tokensOf(sizes), count = 2 * spec.num_layers * passes;
    const sent = count * tokens * spec.hidden_size * wide * 2 * (chip.num_chips - 1) / chip.num_chips;
    return { count, seconds: count > 0 ? sent / chip.egress_bytes_per_s : 0 };
  }

  // --- the law of step time ----------------------------------------------------------------------------------------------

  function cost(phase, pair, sizes, chip, wide) {
    if (phase === VERIFY) return split(targetPass(pair.target, pair.draft, sizes, wide), pair.target, chip.num_chips);
    if (phase === COMMIT) return split(commitCost(pair.draft, sizes, wide), pair.draft, chip.num_chips);
    const made = pair.draft.drafter === "eagle3" ? chainedDraft(pair.draft, sizes, wide) : blockDraft(pair.target, pair.draft, sizes, wide);
    return split(made, pair.draft, chip.num_chips);
  }

  function softMax(a, b, exponent) {
    const larger = Math.max(a, b), smaller = Math.min(a, b);
    return larger > 0 ? larger * Math.exp(Math.log1p((smaller / larger) ** exponent) / exponent) : 0;
  }

  // Seconds of one phase of a step and what they are made of.
  function phaseTime(phase, pair, sizes, chip, dtypeBytes) {
    const wide = dtypeBytes[chip.dtype], values = chip.values, tokens = tokensOf(sizes);
    const work = cost(phase, pair, sizes, chip, wide);
    const get = (name, otherwise) => (name in values ? values[name] : otherwise);
    // A program without a causal kernel multiplies all query-key pairs and masks half of the block.
    const masked = phase === VERIFY ? (sizes.context + sizes.queries) / (sizes.context + (sizes.queries + 1) / 2) : 1;
    const tile = get("tile_tokens", null);
    const linearFlops = (work.flops - work.attention) * (tile === null ? 1 : Math.ceil(tokens / tile) * tile / tokens);
    const rate = chip.peak_flops_per_s === null ? values.compute_flops_per_s : values.compute_efficiency * chip.peak_flops_per_s;
    const memory = (work.weight + work.activation + get("cache_slowdown", 1) * work.kv)
      / (values.memory_efficiency * chip.bandwidth_bytes_per_s);
    const compute = (linearFlops + work.attention * masked * get("attention_slowdown", 1)) / rate * get(`${phase}_compute_ratio`, 1);
    const reduce = reduces(phase, sizes, pair, chip, wide);
    const overhead = get(`${phase}_overhead_s`, get("overhead_s", 0)) + get("batch_overhead_s", 0) * sizes.batch
      + reduce.count * get("reduce_latency_s", chip.reduce_latency_s) + reduce.seconds;
    const kernel = phase === VERIFY && tokens === 1 ? get("kernel", 1) : 1;
    const ratio = get(`${phase}_ratio`, 1);
    return {
      seconds: (softMax(memory, compute, values.exponent) * ratio + overhead) * kernel,
      memory: memory * ratio * kernel,
      compute: compute * ratio * kernel,
      overhead: overhead * kernel,
    };
  }

  // One step of K tokens: draft (with its context update), verify and host seconds. Plain decoding (K = 1) drafts nothing.
  function step(model, chip, blockSize, batch, context) {
    const sizes = { batch, queries: blockSize, context };
    const time = (phase) => phaseTime(phase, model.pair, sizes, chip, model.dtype_bytes);
    const verify = time(VERIFY), plain = blockSize === 1;
    const draft = plain ? 0 : time(DRAFT).seconds + time(COMMIT).seconds;
    const host = plain ? chip.host_s.plain : chip.host_s.drafting;
    const longest = Math.max(verify.memory, verify.compute);
    const bound = verify.overhead >= longest ? "overhead" : verify.compute >= verify.memory ? "compute" : "memory";
    return { draft_s: draft, verify_s: verify.seconds, host_s: host, step_s: draft + verify.seconds + host, bound };
  }

  // τ(K) = 1 + Σ_{i<K} S_i, every conditional acceptance α_i = S_i / S_(i−1) multiplied by a factor and never above 1.
  function tau(survival, blockSize, alphaScale) {
    let total = 1, product = 1, previous = 1;
    for (let i = 0; i < blockSize - 1; i += 1) {
      const alpha = previous > 0 ? survival[i] / previous : 0;
      product *= Math.min(alpha * alphaScale, 1);
      previous = survival[i];
      total += product;
    }
    return total;
  }

  // The gain of every block size 1 … last under one setting: rows like a prediction's, and the best within the trained block.
  function curve(model, chip, profile, batch, context, alphaScale, last) {
    const rows = [];
    for (let blockSize = 1; blockSize <= last; blockSize += 1) {
      const times = step(model, chip, blockSize, batch, context);
      const mean = tau(profile.survival, blockSize, alphaScale);
      const plain = rows.length ? rows[0].step_s : times.step_s;
      rows.push({ ...times, block_size: blockSize, tau: mean, tpot_s: times.step_s / mean, speedup: mean * plain / times.step_s });
    }
    const allowed = rows.filter((row) => row.block_size <= profile.trained_block_size);
    return { rows, best: allowed.reduce((one, other) => (other.speedup > one.speedup ? other : one)) };
  }

  return { step, tau, curve };
})();
