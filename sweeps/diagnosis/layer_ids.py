"""Feature layers: which of the target's layers the drafter reads.

A layer that is off by one gives features that look right and carry another statistic: acceptance falls at every position. A layer
beyond the last is an index error, or silently the last. Ids count decoder layers from 0 in z-lab's files and hidden states
(one higher, entry 0 being the embedding) in the speculators format and in GGUF.
"""

from perfmodel.records import Diagnosed

from .config_pair import Config, Pair
from .finding import diagnosed

_EFFECT = "features of other layers lower acceptance at every position, often below a half at the first"


def check_layer_ids(pair: Pair) -> list[Diagnosed]:
    """Range, order, off by one, and the number of layers the drafter was made for."""
    layers = pair.target.count("num_hidden_layers")
    if layers is None:
        return []
    found = [*_made_for(pair, layers)]
    ids, counts_states = pair.draft.layer_ids
    if not ids:
        return found + _defaults(pair.draft, layers)
    shown = ", ".join(map(str, ids))
    outside = [value for value in ids if not 0 <= value < layers]
    if outside:
        evidence = f"feature layer {outside[0]} is not among the target's layers 0 … {layers - 1} (ids {shown})"
        found.append(
            diagnosed(
                "layer-ids-outside",
                "error",
                pair.draft.name,
                evidence,
                "ids of another target, or counted from 1",
                _fix(counts_states),
            )
        )
    elif len(set(ids)) < len(ids) or ids != sorted(ids):
        evidence = f"feature layers {shown} repeat or are out of order"
        cause = "the order is that of the concatenation, so it must be the trained one; repeated layers leave features out"
        found.append(
            diagnosed("layer-ids-order", "warning", pair.draft.name, evidence, cause, "compare with the published config")
        )
    else:
        found += _off_by_one(pair.draft, ids, layers, counts_states)
    return found


def default_layer_ids(num_layers: int, num_features: int) -> list[int]:
    """The layers that DFlash drafters read where their config lists none: evenly from the second to the third from last."""
    if num_features == 1:
        return [num_layers // 2]
    return [round(1 + index * (num_layers - 4) / (num_features - 1)) for index in range(num_features)]


def _made_for(pair: Pair, layers: int) -> list[Diagnosed]:
    stated = pair.draft.count("num_target_layers")
    if stated is None or stated == layers:
        return []
    evidence = f"the drafter was made for a target of {stated} layers, this one has {layers}"
    return [
        diagnosed(
            "target-layers-differ",
            "error",
            pair.draft.name,
            evidence,
            f"another target; {_EFFECT}",
            "use the drafter's own target",
        )
    ]


def _off_by_one(draft: Config, ids: list[int], layers: int, counts_states: bool) -> list[Diagnosed]:
    if draft.is_eagle:
        return []
    usual = default_layer_ids(layers, len(ids))
    shift = ids[0] - usual[0]
    if abs(shift) != 1 or any(value - default != shift for value, default in zip(ids, usual, strict=True)):
        return []
    side = "one above" if shift > 0 else "one below"
    evidence = f"feature layers {', '.join(map(str, ids))} are each {side} the usual {', '.join(map(str, usual))}"
    if counts_states:
        evidence += f" (the config's {', '.join(str(value + 1) for value in ids)} count hidden states, one above the layer)"
    cause = f"off by one between decoder layers and hidden states (entry 0 is the embedding); {_EFFECT}"
    return [diagnosed("layer-ids-off-by-one", "warning", draft.name, evidence, cause, _fix(counts_states))]


def _defaults(draft: Config, layers: int) -> list[Diagnosed]:
    if draft.is_eagle:
        usual = [2, layers // 2, layers - 3]
        if len(set(usual)) == 3 and min(usual) >= 0:
            return []
        evidence = f"an EAGLE-3 drafter without listed layers reads {usual[0]}, {usual[1]} and {usual[2]} of a target with {layers} layers"
        cause = (
            "the default layers coincide in a shallow target, so there are too few features; the engine dies at its first request"
        )
        return [
            diagnosed(
                "default-layers-coincide", "error", draft.name, evidence, cause, "list eagle_aux_hidden_state_layer_ids yourself"
            )
        ]
    features = draft.count("num_hidden_layers")
    if features is None:
        return []
    usual = default_layer_ids(layers, features)
    evidence = (
        f"no feature layers are listed; the default for {layers} layers and {features} features is {', '.join(map(str, usual))}"
    )
    return [
        diagnosed(
            "layer-ids-missing",
            "warning",
            draft.name,
            evidence,
            f"an engine with another default reads other layers; {_EFFECT}",
            "add target_layer_ids to the config",
        )
    ]


def _fix(counts_states: bool) -> str:
    if counts_states:
        return "aux_hidden_state_layer_ids are target_layer_ids + 1: check which of the two the file holds"
    return "target_layer_ids count decoder layers from 0; GGUF and speculators files hold them + 1"
