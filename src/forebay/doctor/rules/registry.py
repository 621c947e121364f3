"""The table of all rules, and functions that import a rule by its id.

No rule imports this module, because this module imports all rules.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Protocol, cast

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.model.capture import Capture
from forebay.doctor.rules.finding import Finding
from forebay.doctor.rules.precedence import PRECEDENCE, RuleView

__all__ = ["RULES", "Rule", "SiteRule", "load_rule", "view_for_rules"]

RULES = {  # rule id: module; the report lists findings with equal gains (`diagnose._sort_key`) in this order
    "input_bound": "forebay.doctor.rules.input_bound",
    "loader": "forebay.doctor.rules.loader",
    "made_in_loop": "forebay.doctor.rules.made_in_loop",
    "repeated_upload": "forebay.doctor.rules.repeated_upload",
    "conversion_in_loop": "forebay.doctor.rules.conversion_in_loop",
    "pageable_upload": "forebay.doctor.rules.pageable_upload",
    "copy_not_overlapped": "forebay.doctor.rules.copy_not_overlapped",
    "many_small_copies": "forebay.doctor.rules.many_small_copies",
    "wide_dtype": "forebay.doctor.rules.wide_dtype",
    "fits_on_device": "forebay.doctor.rules.fits_on_device",
    "placement": "forebay.doctor.rules.placement",
    "eager": "forebay.doctor.rules.eager",
    "nnx_modules": "forebay.doctor.rules.nnx_modules",
    "tiny_ops": "forebay.doctor.rules.tiny_ops",
    "keras_steps": "forebay.doctor.rules.keras_steps",
    "jax_steps": "forebay.doctor.rules.jax_steps",
    "launch_bound": "forebay.doctor.rules.launch_bound",
    "small_batch": "forebay.doctor.rules.small_batch",
    "low_occupancy": "forebay.doctor.rules.low_occupancy",
    "tensor_cores": "forebay.doctor.rules.tensor_cores",
    "memory_bound": "forebay.doctor.rules.memory_bound",
    "faster_on_cpu": "forebay.doctor.rules.faster_on_cpu",
    "unused_gpu": "forebay.doctor.rules.unused_gpu",
    "collectives": "forebay.doctor.rules.collectives",
    "retracing": "forebay.doctor.rules.retracing",
    "rebuilt": "forebay.doctor.rules.rebuilt",
    "constants": "forebay.doctor.rules.constants",
    "read_back": "forebay.doctor.rules.read_back",
    "host_check": "forebay.doctor.rules.host_check",
    "sync": "forebay.doctor.rules.sync",
    "threads": "forebay.doctor.rules.threads",
    "pauses": "forebay.doctor.rules.pauses",
    "drift": "forebay.doctor.rules.drift",
    "settings": "forebay.doctor.rules.settings",
    "graph_breaks": "forebay.doctor.rules.graph_breaks",
    "host": "forebay.doctor.rules.host",
    "allocator": "forebay.doctor.rules.allocator",
    "out_of_memory": "forebay.doctor.rules.out_of_memory",
}


class Rule(Protocol):
    """A module that looks for one cause of lost time or of a warning."""

    def examine(self, view: RuleView) -> Iterable[Finding]:
        """Return the findings of this rule in the capture of `view`."""


class SiteRule(Rule, Protocol):
    """A rule that explains the time of call sites.

    `RuleView` assigns each call site to at most one rule, so that two findings do not report the same calls.
    """

    def recognises(self, view: CaptureView, site: CallSite) -> bool:
        """Whether this rule can explain the time of a call site."""


def load_rule(rule: str) -> Rule:
    return cast("Rule", import_module(RULES[rule]))


def view_for_rules(capture: Capture) -> RuleView:
    """Return the view of a capture that all rules examine."""
    site_rules = {rule for rules in PRECEDENCE.values() for rule in rules}
    return RuleView(capture, {rule: cast("SiteRule", load_rule(rule)).recognises for rule in site_rules})
