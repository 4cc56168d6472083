"""Faults of the guarantee that hide beyond the first group, cut, epoch or alphabet of a test."""

from fault import Fault, P, in_streams, of_kind

_BOUNDS, _FINDINGS = "tests/audit/test_bounds.py", "tests/audit/test_findings.py"
_OBSERVE = "tests/audit/test_observe.py"
_GROUPS = "tests/opacus/test_groups_of_parameters.py"
_SECURE = "tests/opacus/test_secure_mode.py"
_DEALT = "tests/opacus/test_dealt_out.py"
_LATE_AVERAGES = "tests/methods/test_late_averages.py"

_STREAMS = [
    in_streams(
        "names in another alphabet share the host's noise",
        "hashlib.sha256(name.encode()).digest()",
        'hashlib.sha256(name.encode("ascii", "replace")).digest()',
        P + "test_names.py",
    ),
    Fault(
        "names in another alphabet share the accelerator's noise",
        "privacy/philox.py",
        'f"{run_id}\\x00{purpose}".encode()',
        'f"{run_id}\\x00{purpose}".encode("ascii", "replace")',
        P + "test_names.py",
    ),
]

_AUDIT = [
    Fault(
        "audit: of a score's cuts only one is paid for",
        "audit/bounds.py",
        "SIGNIFICANCE / len(tests)",
        "SIGNIFICANCE / len(inside)",
        _BOUNDS,
    ),
    *of_kind(
        "reported",
        Fault(
            "audit: one run is said to have the steps of many",
            "audit/findings.py",
            "one_run_steps=ONE_RUN.steps",
            "one_run_steps=MANY_RUNS.steps",
            _FINDINGS,
        ),
        Fault(
            "audit: canaries that were left out are not counted",
            "audit/findings.py",
            "len(one.inside[0].values) + len(one.outside[0].values)",
            "len(one.inside[0].values)",
            _FINDINGS,
        ),
    ),
    Fault(
        "audit: C that falls has not moved",
        "audit/observe.py",
        ".diff(dim=0).abs().amax(dim=0)",
        ".diff(dim=0).amax(dim=0)",
        _OBSERVE,
    ),
    Fault(
        "audit: C that moves after the second step has not moved",
        "audit/observe.py",
        "logs.diff(dim=0).abs().amax(dim=0)",
        "logs.diff(dim=0).abs()[0]",
        _OBSERVE,
    ),
]

_DROP_IN = [
    Fault(
        "drop-in: float16 gradients are measured and summed in float16",
        "opacus/model_hooks.py",
        "return torch.promote_types(dtype, torch.float32)",
        "return torch.float32 if dtype == torch.bfloat16 else dtype",
        _GROUPS,
    ),
    Fault(
        "drop-in: bags of words may rewrite their rows without noise",
        "opacus/refusals.py",
        "isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm",
        "isinstance(layer, nn.Embedding) and layer.max_norm",
        "tests/opacus/test_opacus_refusals.py",
    ),
    Fault(
        "drop-in: only the first group's gradients are tried",
        "opacus/private_engine.py",
        'trained = {id(p) for group in optimizer.param_groups for p in group["params"]}',
        'trained = {id(p) for p in optimizer.param_groups[0]["params"]}',
        _GROUPS,
    ),
    Fault(
        "drop-in: a later group may have another module's parameters",
        "opacus/refusals.py",
        'held = [p for group in optimizer.param_groups for p in group["params"]]',
        'held = [*optimizer.param_groups[0]["params"]]',
        _GROUPS,
    ),
    Fault(
        "drop-in: rho adapts where only the first group takes plain steps",
        "opacus/private_engine.py",
        "for group in optimizer.param_groups for name in plain",
        "for group in optimizer.param_groups[:1] for name in plain",
        _GROUPS,
    ),
    Fault(
        "drop-in: only the first group's rate is multiplied by the factor",
        "opacus/sanitizing_optimizer.py",
        "            for group, rate in zip(self.param_groups, rates, strict=True):\n"
        '                group["lr"] = rate * factor\n',
        "            for group, rate in zip(self.param_groups[:1], rates[:1], strict=True):\n"
        '                group["lr"] = rate * factor\n',
        _GROUPS,
    ),
]

_LATE = of_kind(
    "late",
    Fault(
        "Adam's first average is taken for one of two hundred steps ever after",
        "methods/base.py",
        "(1 - beta1**state.step)",
        "(1 - beta1 ** min(state.step, 200))",
        _LATE_AVERAGES,
    ),
    Fault(
        "AUTO-WOSM's average is taken for one of a hundred steps ever after",
        "methods/auto_wosm.py",
        "(1 - beta1 ** (2 * state.step))",
        "(1 - beta1 ** (2 * min(state.step, 100)))",
        _LATE_AVERAGES,
    ),
)

OVERLOOKED_ONCE_MORE_GUARANTEE = [*_STREAMS, *_AUDIT, *_DROP_IN, *_LATE]
